"""Memory of streaming: the peak of one epoch over a small and a large folder of shards, which should be the same.

    python -m benchmarks.streaming_memory --lists 20000 200000 --items 30

Simulated lists are written to shards in a temporary folder (or `--folder`, where they are kept). Then a fresh process
per measurement goes through one shuffled epoch of the streaming loader: it reads, draws 10 items a list, makes
batches with a tokenizer whose cache of texts is off (it would fill up first), and trains nothing. Its peak is
VmHWM of /proc/self/status (Linux): `ru_maxrss` would take over the peak of the process that started it. Seconds are
the processor's, of the process itself: with workers, what it costs to read and to hand over.

Writes streaming_memory.json and streaming_memory.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

from benchmarks.measuring import resident
from benchmarks.pages import provenance, table, write
from benchmarks.program import defaults, fresh, parser
from benchmarks.program import run as run_program
from crossjem_pl.data.batches import ItemSampler
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.simulator import simulate
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.data.streaming import StreamingLoader
from crossjem_pl.rankers import CrossJEM
from crossjem_pl.rankers.encoders import PACKAGED

TOLERANCE = 0.1
"""How much larger the peak over the large folder may be."""
DRAWN = 10
"""Items of a list that are tokenised, as in training; all of them are read."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after a mistake in the input."""
    return run_program(_options(), argv, run)


def run(args: argparse.Namespace) -> None:
    """Writes the shards, measures each in fresh processes, prints and writes the figures."""
    if args.measure is not None:
        print(json.dumps(measure(json.loads(args.measure))))
        return
    defaults(args, {"lists": [20_000, 200_000]}, {"lists": [100, 400]})
    with tempfile.TemporaryDirectory() as folder:
        root = args.folder or Path(folder)
        found: dict[str, Any] = {"provenance": provenance(torch.device("cpu"), args.command)}
        found |= {"items": args.items, "buffer": args.buffer, "runs": [], "ratios": {}}
        sizes = {count: _write_shards(args, root / str(count), count) for count in args.lists}
        for workers in args.workers:
            peaks = []
            for count, size in track(sizes.items(), description=f"{workers} workers"):
                spec = {"folder": root / str(count), "buffer": args.buffer, "batch_size": args.batch_size}
                figures = fresh("benchmarks.streaming_memory", {**spec, "workers": workers})
                found["runs"].append({**figures, "bytes": size, "workers": workers})
                peaks.append(figures["peak_mib"])
            found["ratios"][str(workers)] = peaks[-1] / peaks[0]
    write(found, page(found), args.out, "streaming_memory")


def page(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    columns: dict[str, Any] = {"lists": "{lists:,}", "on disk": lambda row: f"{row['bytes'] / 1e6:.1f} MB"}
    columns["bytes a list"] = lambda row: f"{row['bytes'] / row['lists']:.0f}"
    columns |= {"workers": "{workers:d}", "CPU seconds": "{seconds:.1f}"}
    columns["lists a CPU second"] = lambda row: f"{row['lists'] / row['seconds']:.0f}"
    columns |= {"at the start": "{start_mib:.1f} MiB", "peak": "{peak_mib:.1f} MiB"}
    lines = ["# Memory of streaming", "", f"One epoch, {found['items']} items a list.", ""]
    lines += [*table(found["runs"], columns), ""]
    for workers, ratio in found["ratios"].items():
        state = "within" if ratio <= 1 + TOLERANCE else "OUTSIDE"
        lines.append(f"- {workers} workers: peak of the large over the small one: {ratio:.3f} ({state} 10%)")
    return lines


def measure(spec: Mapping[str, Any]) -> dict[str, float]:
    """Peak of this process over one epoch of `folder`, in MiB, and the lists that it saw."""
    folder = Path(spec["folder"])
    ranker = CrossJEM(PACKAGED, max_query_tokens=32, max_item_tokens=16)
    ranker.tokenizer.cache_size = 0
    loader = StreamingLoader(
        ShardSource(folder.name, spec["buffer"]).stream(folder.parent),
        ranker,
        spec["batch_size"],
        sampler=ItemSampler(DRAWN, 0),
        shuffle=True,
        num_workers=spec["workers"],
    )
    start, begun = resident("VmRSS"), time.process_time()
    lists = sum(len(batch.query_ids) for batch in loader)
    seconds = time.process_time() - begun
    return {"lists": lists, "seconds": seconds, "start_mib": start, "peak_mib": resident("VmHWM")}


def _write_shards(args: argparse.Namespace, folder: Path, count: int) -> int:
    """Their bytes."""
    options = {"generator": "simulator", "items": args.items, "seed": 0, "lists": count}

    def lists(start: int) -> Any:
        return simulate(count - start, args.items, start=start)

    manifest = write_shards(lists, folder, args.shard_size, options=options)
    return sum(shard["bytes"] for shard in manifest.shards)


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.streaming_memory", __doc__, "runs/streaming_memory", encoder=None)
    out.add_argument("--lists", type=int, nargs=2, help="default 20000 200000")
    out.add_argument("--items", type=int, default=30)
    out.add_argument("--shard-size", type=int, default=10_000)
    out.add_argument("--buffer", type=int, default=4096)
    out.add_argument("--batch-size", type=int, default=32)
    out.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    out.add_argument("--folder", type=Path, help="where the shards are kept (default: a temporary folder)")
    out.add_argument("--measure", help=argparse.SUPPRESS)
    return out


if __name__ == "__main__":
    raise SystemExit(main())
