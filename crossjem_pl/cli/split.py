"""`crossjem split`: train, dev and test out of one set of lists."""

from __future__ import annotations

import argparse
from pathlib import Path

from crossjem_pl.data.split import split_lists

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="lists or pairs in any layout, a file or folder")
    parser.add_argument("out", type=Path, help="folder for train.parquet, dev.parquet and test.parquet")
    parser.add_argument("--by", choices=["query", "group", "time"], default="query", help="default query")
    parser.add_argument("--column", metavar="NAME", help="the column with the group or the time")
    parser.add_argument("--dev", type=float, default=0.1, metavar="SHARE", help="default 0.1")
    parser.add_argument("--test", type=float, default=0.1, metavar="SHARE", help="default 0.1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--labels-field", default="labels", metavar="NAME")
    parser.add_argument("--scores-field", default="scores", metavar="NAME")


def run(args: argparse.Namespace) -> None:
    options = {name: value for name, value in vars(args).items() if name != "command"}
    for name, count in split_lists(**options).items():
        print(f"{args.out / name}.parquet: {count:,} list{'' if count == 1 else 's'}")
