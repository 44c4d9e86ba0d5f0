"""`crossjem export`: a model for ONNX Runtime or OpenVINO, and whether it pays."""

from __future__ import annotations

import argparse
import dataclasses
from itertools import islice
from pathlib import Path

import torch
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.hashing import weights_sha256
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.agreement import Agreement, agreement
from crossjem_pl.inference.export.runtimes import BACKENDS
from crossjem_pl.inference.export.write import Description, export_ranker
from crossjem_pl.inference.timing import Timings, take_turns
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.threshold import write_threshold

__all__ = ["add_arguments", "run"]

_TOLERANCE = 1e-3
_ROUNDS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="model folder or hub repository")
    parser.add_argument("--to", choices=sorted(BACKENDS), required=True, help="the runtime")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--int8", action="store_true", help="8-bit weights in the matrix products")
    parser.add_argument(
        "--lists",
        type=Path,
        metavar="FILE",
        help="ranking lists to compare the two models on (default: simulated ones of 100 items)",
    )
    parser.add_argument("--samples", type=int, default=8, help="how many of these lists (default 8)")


def run(args: argparse.Namespace) -> None:
    if args.samples < 1:
        raise ValueError(f"--samples must be at least 1, got {args.samples}")
    lists = _samples(args.lists, args.samples)
    original = Reranker.from_pretrained(args.model, device="cpu", backend="torch")
    threshold = original.threshold
    description = export_ranker(original.ranker, args.out, args.to, args.int8, str(args.model))
    exported = Reranker.from_pretrained(args.out, backend=args.to)
    expected = original.score(lists)
    found, largest = (
        agreement(expected, exported.score(lists)),
        max(float(one.abs().max()) for one in expected),
    )
    candidates = {"torch": lambda one: original.score([one]), "exported": lambda one: exported.score([one])}
    times = take_turns(candidates, track([*lists] * _ROUNDS, description="comparing"), warmup=len(lists))
    console = wide_console()
    console.print(_table(description, found, largest, times, original, args.out, len(lists)))
    if not args.int8 and found.difference > _TOLERANCE * max(1.0, largest):
        raise ValueError(
            f"{args.out}: scores differ by up to {found.difference:.3g} from the original's: the export "
            "went wrong and must not be used"
        )
    if threshold is not None:
        if args.int8:
            note = f"The threshold is not carried over, as scores have shifted: `crossjem threshold {args.out} LISTS`"
        else:
            own = dataclasses.replace(threshold, weights_sha256=weights_sha256(exported.ranker))
            write_threshold(own, args.out)
            note = "The model's threshold goes with it."
        console.print(escape(note), soft_wrap=True)
    console.print(f"Wrote {escape(str(args.out))}", soft_wrap=True)


def _samples(path: Path | None, count: int) -> list[RankingList]:
    lists = list(islice(simulate(count, 100, seed=1) if path is None else read_lists(path), count))
    if not lists:
        raise ValueError(f"{path}: no lists")
    return lists


def _table(
    description: Description,
    found: Agreement,
    largest: float,
    times: dict[str, Timings],
    original: Reranker,
    out: Path,
    samples: int,
) -> Table:
    title = f"{samples} lists, one at a time, {torch.get_num_threads()} threads"
    table = Table(title=title, title_justify="left")
    for name in ("", "weights, MB", "ms a list (median)", "greatest score difference", "Kendall tau"):
        table.add_column(name, justify="right" if name else "left")
    weights = sum(value.nbytes for value in original.ranker.state_dict().values())
    files = sum((out / name).stat().st_size for name in description.files)
    torch_ms, own_ms = (one.median for one in times.values())
    table.add_row("torch float32", f"{weights / 1e6:.1f}", f"{torch_ms:.1f}", "", "")
    table.add_row(
        f"{description.backend} {description.precision}",
        f"{files / 1e6:.1f}",
        f"{own_ms:.1f} ({torch_ms / own_ms:.2f}x as fast)",
        f"{found.difference:.2g} of scores up to {largest:.2g}",
        f"{found.tau:.4f}",
    )
    return table
