"""Latency, throughput, stages and memory of all rankers and of public cross-encoders on the same lists.

    python -m benchmarks.latency --items 10 30 100 300 700 1400 --out runs/latency

Texts in, sorted items out. The contenders take turns on every list, so a machine whose speed drifts slows all of them
alike; rounds that warm up are not counted. Cold (the default): every text is tokenised within the time. `--warm`: the
token caches know the texts, as in a service whose items repeat. Rankers that encode queries and items apart (ColBERT,
DPR, ANCE, TwinBERT, CoRAL, INSTRUCTOR) have their item vectors computed ahead either way, as the paper's latencies
assume. "by id": CROSS-JEM and monoBERT once more by id, the items' token ids in a store, the
query a text. Weights are the encoder's with fresh heads: they do not change the time.

Writes latency.json (`crossjem report --latency` reads it), latency.md, latency.png and stages.png.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from benchmarks.latency.contenders import Contender, OwnRanker
from benchmarks.latency.field import BY_ID, DEFAULT_RANKERS, MONOBERT, Field, contenders_of
from benchmarks.latency.figures import Row, rows_of
from benchmarks.latency.page import page, plot_latency, plot_stages
from benchmarks.latency.peak_memory import peak_memory
from benchmarks.latency.peers import LIGHTNING_IR, SENTENCE_TRANSFORMERS, missing_peers
from benchmarks.latency.saturated import Throughput, batch_sizes, saturate, saturated_lists
from benchmarks.latency.stages import has_stages, stage_milliseconds
from benchmarks.latency.turns import WARMUP, measured_lists, take_turns
from benchmarks.measuring.build import overlays
from benchmarks.measuring.options import add_options, exit_status, parser, prepare_device
from benchmarks.measuring.pages import conditions, write
from benchmarks.measuring.peak import matrix_peak
from crossjem_pl.cli.main import quiet_libraries
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import ShortTextTokenizer
from crossjem_pl.text.token_store import TokenStore

HEADLINE = 700
"""Items of the paper's latency table."""

_SMOKE_RANKERS = ("crossjem", "crossjem-best", "monobert", "dpr")


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after a mistake in the input."""
    args = _options().parse_args(argv)
    quiet_libraries()
    return exit_status(lambda: run(_resolved(args)))


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    device = prepare_device(args.device, args.threads)
    left_out = missing_peers(args.lightning_ir)
    peers = [peer for peer in args.peers if peer not in left_out]
    field = Field(
        rankers=args.rankers,
        encoder=args.encoder,
        device=device,
        precisions=args.precision,
        own_encoders=dict(pair.split("=", 1) for pair in args.encoder_of),
        random_init=args.random_init,
        passes=args.passes,
        pairs_per_pass=args.pairs_per_pass,
        exported=args.exported,
        peers=peers,
        peer_batches=args.peer_batches,
        lightning_ir=args.lightning_ir,
        warm=args.warm,
    )
    around = conditions(device)
    found: dict[str, Any] = {
        "conditions": around,
        "machine": around["machine"],
        "encoder": args.encoder,
        "precision": args.precision[0],
        "warm": args.warm,
        "rounds": args.rounds,
        "warmup": WARMUP,
        "passes": args.passes,
        "left_out": {name: why for name, why in left_out.items() if name in args.peers},
        "matrix_peak_gflops": {name: matrix_peak(device, name) / 1e9 for name in args.precision},
    }
    with tempfile.TemporaryDirectory() as folder:
        store = _store(args, Path(folder) / "store") if set(BY_ID) & set(args.rankers) else None
        contenders = contenders_of(field, store)
        names = [one.name for one in contenders]
        baselines = [name for name in (MONOBERT, SENTENCE_TRANSFORMERS, LIGHTNING_IR) if name in names]
        try:
            rows, throughput = _measure(args, contenders, baselines, found)
        finally:
            for one in contenders:
                one.close()
    found["memory_items"] = args.memory_items
    found["peak_memory_mib"] = peak_memory(field, args.memory_items) if args.memory_items else {}
    write(found, page(found, rows, throughput, baselines), args.out, "latency")
    title = f"{found['machine']}, {args.precision[0]}"
    plot_latency(rows, title, args.out / "latency.png")
    if found["stages"]:
        plot_stages(found["stages"], title, args.out / "stages.png")
    print(
        f"wrote {args.out}/latency.json, latency.md, latency.png" + (", stages.png" * bool(found["stages"]))
    )


def _store(args: argparse.Namespace, folder: Path) -> TokenStore:
    """Token ids of the items of all lists that are going to be measured."""
    lists = [one for items in {*args.items, *args.stages} for one in measured_lists(items, args.rounds)]
    for items in args.saturated:
        for queries in batch_sizes(items, args.most_pairs):
            lists += chain.from_iterable(saturated_lists(items, queries, _rounds_of_batches(args)))
    items_of = (pair for one in lists for pair in zip(one.item_ids, one.items, strict=True))
    return TokenStore.build(folder, items_of, ShortTextTokenizer(load_tokenizer(args.encoder)))


def _rounds_of_batches(args: argparse.Namespace) -> int:
    return min(args.rounds, 3)


def _measure(
    args: argparse.Namespace, contenders: Sequence[Contender], baselines: Sequence[str], found: dict[str, Any]
) -> tuple[list[Row], list[Throughput]]:
    rows: list[Row] = []
    found["milliseconds"], found["stages"], found["stopped"] = {}, {}, {}
    running = list(contenders)
    peaks = {name: gflops * 1e9 for name, gflops in found["matrix_peak_gflops"].items()}
    with Progress() as bar:
        steps = len(args.items) * (args.rounds + WARMUP) * len(contenders)
        task = bar.add_task("one query at a time", total=steps)
        for items in sorted(args.items):
            if not running:
                break
            lists = measured_lists(items, args.rounds)
            times = take_turns(running, lists, advance=lambda: bar.advance(task))
            bar.advance(task, len(lists) * (len(contenders) - len(running)))
            found["milliseconds"][str(items)] = times
            rows += rows_of(running, times, lists[WARMUP:], baselines, peaks)
            for name in (name for name, own in times.items() if np.median(own) > 1000 * args.longest):
                found["stopped"][name] = items
            running = [one for one in running if one.name not in found["stopped"]]
        staged = [one for one in contenders if isinstance(one, OwnRanker) and has_stages(one)]
        task = bar.add_task("stages", total=len(args.stages) * len(staged))
        for items in args.stages if staged else []:
            lists = measured_lists(items, args.rounds)
            found["stages"][str(items)] = {}
            for one in staged:
                found["stages"][str(items)][one.name] = stage_milliseconds(one, lists, WARMUP)
                bar.advance(task)
        task = bar.add_task("several queries at a time", total=len(args.saturated))
        throughput = []
        for items in args.saturated:
            rounds = _rounds_of_batches(args)
            throughput += saturate(contenders, items, args.most_pairs, rounds, 3 * args.longest)
            bar.advance(task)
    found["latency"] = [row.as_dict() for row in rows]
    found["throughput"] = [one.as_dict() for one in throughput]
    return rows, throughput


def _resolved(args: argparse.Namespace) -> argparse.Namespace:
    """The options with their defaults, which depend on `--smoke` and on the device.

    Raises:
        ValueError: naming the option, for a number below 1 or an encoder without its ranker's name.
    """
    smoke = args.smoke
    on_gpu = prepare_device(args.device, None).type == "cuda"
    args.items = args.items or ([10, 100] if smoke else [10, 30, 100, 300, HEADLINE, 1400])
    args.rounds = args.rounds or (2 if smoke else 15)
    args.rankers = args.rankers or list(_SMOKE_RANKERS if smoke else DEFAULT_RANKERS)
    if args.saturated is None:
        args.saturated = [10] if smoke else [30, HEADLINE]
    if args.stages is None:
        args.stages = [100] if smoke else [100, HEADLINE]
    if args.memory_items is None:
        args.memory_items = 0 if smoke else HEADLINE
    args.most_pairs = args.most_pairs or (100 if smoke else 50_000 if on_gpu else 3_000)
    if args.pairs_per_pass is None:
        args.pairs_per_pass = [512] if on_gpu else []
    args.peer_batches = args.peer_batches or ([32, 512] if on_gpu else [32])
    if args.passes is not None:
        args.passes = (args.passes[0], args.passes[1])
    for name in ("items", "saturated", "stages", "pairs_per_pass", "peer_batches"):
        if any(value < 1 for value in getattr(args, name)):
            raise ValueError(f"--{name.replace('_', '-')}: expected numbers of at least 1")
    if args.rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {args.rounds}")
    for pair in args.encoder_of:
        if pair.partition("=")[0] not in overlays() or "=" not in pair:
            raise ValueError(f"--encoder-of: expected RANKER=ENCODER, got {pair!r}")
    return args


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.latency", __doc__)
    add_options(out, "runs/latency")
    out.add_argument("--rankers", nargs="+", choices=overlays(), metavar="NAME", help=", ".join(overlays()))
    out.add_argument("--items", type=int, nargs="+", help="items a query (default 10 30 100 300 700 1400)")
    out.add_argument("--rounds", type=int, help="counted lists a size (default 15)")
    out.add_argument(
        "--longest",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="a contender that takes longer a query is not measured at larger sizes (default 5)",
    )
    out.add_argument("--warm", action="store_true", help="texts are known to the token caches")
    out.add_argument(
        "--passes", type=int, nargs=2, metavar=("N", "L_U"), help="items and union tokens of a CROSS-JEM pass"
    )
    out.add_argument(
        "--pairs-per-pass",
        type=int,
        nargs="*",
        metavar="N",
        help="monoBERT also with N (default: 512 on a GPU)",
    )
    out.add_argument("--exported", type=Path, nargs="+", default=[], metavar="FOLDER")
    out.add_argument(
        "--peers",
        nargs="*",
        choices=[SENTENCE_TRANSFORMERS, LIGHTNING_IR],
        default=[SENTENCE_TRANSFORMERS, LIGHTNING_IR],
    )
    out.add_argument("--peer-batches", type=int, nargs="+", metavar="N", help="of sentence-transformers")
    out.add_argument(
        "--lightning-ir", type=Path, metavar="PYTHON", help="an interpreter with lightning-ir, transformers 4"
    )
    out.add_argument("--encoder-of", nargs="+", default=[], metavar="RANKER=ENCODER", help="for T5s and GPTs")
    out.add_argument("--random-init", action="store_true", help="encoders from their configurations alone")
    out.add_argument(
        "--saturated", type=int, nargs="*", metavar="N", help="sizes with several queries a batch"
    )
    out.add_argument("--most-pairs", type=int, help="of a batch of several queries")
    out.add_argument("--stages", type=int, nargs="*", metavar="N", help="sizes whose stages are timed apart")
    out.add_argument("--memory-items", type=int, metavar="N", help="size of the peak memory; 0 for none")
    return out


if __name__ == "__main__":
    raise SystemExit(main())
