"""Memory of streaming: the peak of one epoch over a small and a large folder of shards, which should be the same.

    python benchmarks/streaming_memory.py --lists 20000 200000 --items 30

Simulated lists are written to shards in a temporary folder (or `--folder`, where they are kept). Then a fresh process
per measurement goes through one shuffled epoch of the streaming loader: it reads, draws 10 items a list, makes
batches with a small tokenizer whose cache of texts is off (it would fill up first), and trains nothing. Its peak is
VmHWM of /proc/self/status (Linux): `ru_maxrss` would take over the peak of the process that started it. Seconds are
the processor's, of the process itself: with workers, what it costs to read and to hand over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from crossjem_pl.data.batches import ItemSampler
from crossjem_pl.data.shards import Manifest, generate_shards
from crossjem_pl.data.simulator import simulate
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.data.streaming import StreamingLoader
from crossjem_pl.rankers import CrossJEM
from crossjem_pl.training.run_folder import describe_machine

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOLERANCE = 0.1
DRAWN = 10
"""Items of a list that are tokenised, as in training; all of them are read."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lists", type=int, nargs=2, default=[20_000, 200_000])
    parser.add_argument("--items", type=int, default=30)
    parser.add_argument("--shard-size", type=int, default=10_000)
    parser.add_argument("--buffer", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--folder", type=Path, help="where the shards are kept (default: a temporary folder)")
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure is not None:
        print(json.dumps(measure(args.measure, args.buffer, args.batch_size, args.workers[0])))
        return
    if args.folder is not None:
        compare(args, args.folder)
    else:
        with tempfile.TemporaryDirectory() as folder:
            compare(args, Path(folder))


def compare(args: argparse.Namespace, root: Path) -> None:
    """Writes the shards, measures each in fresh processes, prints the table and writes the figures."""
    write_encoder(root / "encoder")
    reports = [write(args, root / str(count), count) for count in args.lists]
    found: dict[str, Any] = {"machine": describe_machine(), "items": args.items, "buffer": args.buffer}
    table = Table(title=f"one epoch of streaming, {args.items} items a list, {describe_machine()}")
    for column in (
        "lists",
        "on disk",
        "bytes a list",
        "workers",
        "CPU seconds",
        "lists a CPU second",
        "at the start",
        "peak",
    ):
        table.add_column(column, justify="right")
    for workers in args.workers:
        peaks = []
        for report in reports:
            figures = measured(args, report.folder, workers)
            peaks.append(figures["peak_mib"])
            found.setdefault("runs", []).append({**figures, "bytes": report.bytes, "workers": workers})
            table.add_row(
                f"{report.lists:,}",
                f"{report.bytes / 1e6:.1f} MB",
                f"{report.bytes / report.lists:.0f}",
                str(workers),
                f"{figures['seconds']:.1f}",
                f"{report.lists / figures['seconds']:.0f}",
                f"{figures['start_mib']:.1f} MiB",
                f"{figures['peak_mib']:.1f} MiB",
            )
        found.setdefault("ratios", {})[str(workers)] = peaks[1] / peaks[0]
    Console(width=140).print(table)
    for workers, ratio in found["ratios"].items():
        state = "within" if ratio <= 1 + TOLERANCE else "OUTSIDE"
        print(f"workers {workers}: peak of the large over the small one: {ratio:.3f} ({state} 10 %)")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def write(args: argparse.Namespace, folder: Path, count: int) -> Manifest:
    options: dict[str, str | int | float] = {"generator": "simulator", "items": args.items, "seed": 0}
    with Progress() as progress:
        task = progress.add_task(f"{count:,} lists", total=count)
        return generate_shards(
            lambda start, lists: simulate(lists, args.items, start=start),
            count,
            folder,
            options,
            args.shard_size,
            advance=lambda lists: progress.advance(task, lists),
        )


def write_encoder(folder: Path) -> None:
    """A one-layer BERT with a word-piece vocabulary of the letters and the common words of the lists."""
    words = {word for one in simulate(200, 30) for text in one.items for word in text.split()}
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-'&"
    vocabulary = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *sorted(words - set(letters))]
    pieces = Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocabulary)}, unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = {"pad_token": 0, "unk_token": 1, "cls_token": 2, "sep_token": 3, "mask_token": 4}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pieces, **{name: SPECIAL[i] for name, i in names.items()}
    )
    tokenizer.save_pretrained(folder)
    BertModel(
        BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=16,
        )
    ).save_pretrained(folder)


def measured(args: argparse.Namespace, folder: Path, workers: int) -> dict[str, float]:
    program = [sys.executable, __file__, "--measure", str(folder), "--workers", str(workers)]
    options = ["--buffer", str(args.buffer), "--batch-size", str(args.batch_size)]
    done = subprocess.run([*program, *options], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(folder: Path, buffer: int, batch_size: int, workers: int) -> dict[str, float]:
    """Peak of this process over one epoch of `folder`, in MiB, and the lists that it saw."""
    ranker = CrossJEM(str(folder.parent / "encoder"), max_query_tokens=32, max_item_tokens=16)
    ranker.tokenizer.cache_size = 0
    loader = StreamingLoader(
        ShardSource(folder.name, buffer).stream(folder.parent),
        ranker,
        batch_size,
        sampler=ItemSampler(DRAWN, 0),
        shuffle=True,
        num_workers=workers,
    )
    start = memory("VmRSS")
    begun = time.process_time()
    lists = sum(len(batch.query_ids) for batch in loader)
    return {
        "lists": lists,
        "seconds": time.process_time() - begun,
        "start_mib": start,
        "peak_mib": memory("VmHWM"),
    }


def memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


if __name__ == "__main__":
    main()
