"""`crossjem compare`: several runs on one table."""

from __future__ import annotations

import argparse
from pathlib import Path

from crossjem_pl.evaluation.compare import compare
from crossjem_pl.evaluation.markdown import to_markdown

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
    print(to_markdown(comparison))
    print(f"wrote {args.out}/compare.md, compare.csv and compare.html")
