"""`crossjem compare`: several runs on one table."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.evaluation import wording
from crossjem_pl.evaluation.compare import compare
from crossjem_pl.evaluation.results import Comparison

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder or TREC run file")
    parser.add_argument("--baseline", help="the system the others are tested against (default: the first)")
    parser.add_argument("--metrics", nargs="+", default=["RR@10", "AP@10"], metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("comparison"), metavar="DIR")
    parser.add_argument("--split", default="val", help="which run of the folders: val or test (default val)")
    parser.add_argument("--qrels", type=Path, metavar="FILE", help="judgements, where no run is a folder")
    parser.add_argument(
        "--allow-different", action="store_true", help="accept runs over different candidates"
    )


def run(args: argparse.Namespace) -> None:
    comparison = compare(
        args.runs,
        args.baseline,
        args.metrics,
        args.out,
        args.qrels,
        split=args.split,
        allow_different=args.allow_different,
    )
    console = wide_console()
    console.print(_table(comparison))
    for note in comparison.notes:
        console.print(escape(note))
    console.print(
        f"Δ and p against {escape(comparison.baseline)}: paired randomisation test, Holm-corrected. "
        f"Wrote {escape(str(args.out))}/compare.md, compare.csv and compare.html",
        soft_wrap=True,
    )


def _table(comparison: Comparison) -> Table:
    table = Table(title=wording.where(comparison), title_justify="left")
    table.add_column("system")
    for metric in comparison.metrics:
        table.add_column(metric, justify="right")
        table.add_column("Δ (p)", justify="right")
    table.add_column("parameters", justify="right")
    table.add_column("training", justify="right")
    for system in comparison.systems:
        cells = [escape(system.name)]
        for metric in comparison.metrics:
            result = system.metrics[metric]
            cells.append(wording.number(result.mean))
            if result.difference is None:
                cells.append("")
            else:
                p = wording.p_value(result.difference.p_randomisation_holm)
                cells.append(f"{wording.signed(result.difference.mean)} ({p})")
        table.add_row(
            *cells, wording.parameters(system.parameters), wording.training_time(system.train_seconds)
        )
    return table
