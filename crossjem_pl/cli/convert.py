"""`crossjem convert`: ranking lists from one file layout to another."""

from __future__ import annotations

import argparse
from pathlib import Path

from crossjem_pl.data.convert import SOURCES, convert
from crossjem_pl.data.formats import TARGETS

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--from", dest="from_format", choices=["auto", *SOURCES], default="auto")
    parser.add_argument("--to", dest="to_format", choices=["auto", *TARGETS], default="auto")
    parser.add_argument("--queries", type=Path, metavar="FILE", help="texts of a TREC run's queries")
    parser.add_argument("--items", type=Path, metavar="FILE", help="texts of a TREC run's items")
    parser.add_argument("--qrels", type=Path, metavar="FILE", help="judgements of a TREC run")
    parser.add_argument("--labels-field", default="labels", metavar="NAME")
    parser.add_argument("--scores-field", default="scores", metavar="NAME")
    parser.add_argument(
        "--shard-size",
        type=int,
        metavar="N",
        help="write a folder of Parquet shards of N lists, for streaming",
    )
    parser.add_argument(
        "--teacher-scores",
        type=Path,
        metavar="PATH",
        help="scores that crossjem teach wrote for these lists, a file or a folder; they become the lists' scores",
    )


def run(args: argparse.Namespace) -> None:
    options = {name: value for name, value in vars(args).items() if name != "command"}
    print(convert(**options))
