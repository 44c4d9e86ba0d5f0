"""`crossjem evaluate`: metrics of a TREC run against judgements."""

from __future__ import annotations

import argparse
from pathlib import Path

from crossjem_pl.data.formats import read_qrels, read_run
from crossjem_pl.evaluation.measures import evaluate_run

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="TREC run file")
    parser.add_argument("qrels", type=Path, help="TREC qrels file")
    parser.add_argument("--metrics", nargs="+", default=["RR@10", "AP@10", "nDCG@10"], metavar="NAME")
    parser.add_argument("--out", type=Path, metavar="DIR", help="also write metrics.json and metrics.md")


def run(args: argparse.Namespace) -> None:
    evaluation = evaluate_run(read_run(args.run), read_qrels(args.qrels), args.metrics)
    print(evaluation.to_markdown())
    if args.out is not None:
        evaluation.write(args.out)
