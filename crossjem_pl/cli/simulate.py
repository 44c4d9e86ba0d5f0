"""`crossjem simulate`: simulated sponsored-search lists as Parquet, in flat memory."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from rich.progress import track

from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.shards import generate_shards
from crossjem_pl.data.simulator import SPLITS, Split, simulate
from crossjem_pl.lists import RankingList

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lists", type=int, default=5000, help="training lists (default 5000)")
    parser.add_argument("--items", type=int, default=100, help="keywords per list (default 100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--held-out", type=int, default=500, help="lists each of dev and test (default 500)")
    parser.add_argument(
        "--shard-size",
        type=int,
        metavar="N",
        help="write each split as a folder of shards of N lists; a call that was interrupted goes on where it stopped",
    )


def run(args: argparse.Namespace) -> None:
    for split in SPLITS:
        count = args.lists if split == "train" else args.held_out
        make = partial(_lists, args, split)
        if args.shard_size is None:
            path = args.out / f"{split}.parquet"
            written = write_lists(make(0, count), path, unique=False)  # ids are numbered
            print(f"{path}: {written} lists of {args.items} keywords")
        else:
            options = {"generator": "simulator", "items": args.items, "seed": args.seed, "split": split}
            print(generate_shards(make, count, args.out / split, options, args.shard_size))


def _lists(args: argparse.Namespace, split: Split, start: int, count: int) -> Iterable[RankingList]:
    lists = simulate(count, args.items, args.seed, start=start, split=split)
    return track(lists, description=f"{split:5}", total=count)
