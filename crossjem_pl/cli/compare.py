"""`crossjem compare`: several runs on one table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.evaluation.report import compare
from crossjem_pl.evaluation.sections import results_table

__all__ = ["add_arguments", "add_run_arguments", "run", "run_options"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    parser.add_argument("--metrics", nargs="+", default=["RR@10", "AP@10"], metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("comparison"), metavar="DIR")
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object per system instead of a table"
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say which runs are compared, and how."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder or TREC run file")
    parser.add_argument("--baseline", help="the system the others are tested against (default: the first)")
    parser.add_argument("--split", default="val", help="which run of the folders: val or test (default val)")
    parser.add_argument("--qrels", type=Path, metavar="FILE", help="judgements, where no run is a folder")
    parser.add_argument(
        "--allow-different", action="store_true", help="accept runs over different candidates"
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=0.01,
        metavar="DIFFERENCE",
        help="systems are called level when their difference is shown to be below this (default 0.01)",
    )
    parser.add_argument(
        "--relevant-from",
        type=float,
        metavar="GRADE",
        help="lowest grade that is relevant (default: what the run folders say, else 1)",
    )


def run_options(args: argparse.Namespace) -> dict[str, Any]:
    """What `add_run_arguments` added, as arguments of `compare_runs`."""
    names = ("runs", "baseline", "split", "qrels", "allow_different", "margin", "relevant_from")
    return {name: getattr(args, name) for name in names}


def run(args: argparse.Namespace) -> None:
    comparison = compare(names=args.metrics, out=args.out, **run_options(args))
    if args.json:
        print(comparison.to_frame().to_json(orient="records"))
        return
    table = Table(title=comparison.lists, title_justify="left")
    found = results_table(comparison)
    for column in found.columns:
        table.add_column(escape(column), justify="left" if column == "System" else "right")
    for row in found.to_numpy():
        table.add_row(*map(escape, row))
    console = wide_console()
    console.print(table)
    for note in comparison.notes:
        console.print(escape(note))
    console.print(
        f"Δ and p against {escape(comparison.baseline)}: paired randomisation test, Holm-corrected. "
        f"Wrote {escape(str(args.out))}/compare.md, compare.csv and compare.html",
        soft_wrap=True,
    )
