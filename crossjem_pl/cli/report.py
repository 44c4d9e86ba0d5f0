"""`crossjem report`: runs as one page, with curves, breakdowns, calibration and examples."""

from __future__ import annotations

import argparse
from pathlib import Path

from crossjem_pl.cli.compare import add_run_arguments, run_options
from crossjem_pl.cli.console import wide_console
from crossjem_pl.evaluation import charts
from crossjem_pl.evaluation.report import build_report, write_report
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    parser.add_argument("--out", type=Path, default=Path("report"), metavar="FOLDER")
    parser.add_argument(
        "--metric", default="RR@10", metavar="NAME", help="what is broken down (default RR@10)"
    )
    parser.add_argument("--examples", type=int, default=5, metavar="N", help="lists of each kind (default 5)")
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="count the overlap of items in tokens of this encoder (default: words)",
    )


def run(args: argparse.Namespace) -> None:
    tokenizer = None if args.tokenizer is None else ShortTextTokenizer(load_tokenizer(args.tokenizer))
    with wide_console().status("report"):
        options = {name: getattr(args, name) for name in ("metric", "examples")}
        report = build_report(tokenizer=tokenizer, **options, **run_options(args))
        write_report(report, args.out)
    for note in report.notes:
        print(note)
    plots = f" and {len(report.plots)} figures" if charts.available() else ""
    print(f"wrote {args.out}/report.html, report.md{plots}")
