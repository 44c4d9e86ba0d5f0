"""`crossjem simulate`: simulated sponsored-search lists as Parquet, in flat memory."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

from rich.progress import Progress, track

from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.overlap import overlap_statistics
from crossjem_pl.data.shards import generate_shards
from crossjem_pl.data.simulator import Split, simulate
from crossjem_pl.rankers.encoders import PACKAGED, load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

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
    parser.add_argument("--tokenizer", default=PACKAGED, help="for the printed token overlap")


def run(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    counts: dict[Split, int] = {"train": args.lists, "dev": args.held_out, "test": args.held_out}
    for split, count in counts.items():
        if args.shard_size is None:
            _write_file(args, split, count)
        else:
            _write_shards(args, split, count)
    tokenizer = ShortTextTokenizer(load_tokenizer(args.tokenizer))
    sample = list(islice(simulate(args.lists, args.items, args.seed), 500))
    print(overlap_statistics(sample, tokenizer))


def _write_file(args: argparse.Namespace, split: Split, count: int) -> None:
    lists = simulate(count, args.items, args.seed, split=split)
    path = args.out / f"{split}.parquet"
    # ids are numbered, so no memory of them is needed
    written = write_lists(track(lists, description=f"{split:5}", total=count), path, unique=False)
    print(f"{path}: {written} lists of {args.items} keywords")


def _write_shards(args: argparse.Namespace, split: Split, count: int) -> None:
    with Progress() as progress:
        task = progress.add_task(f"{split:5}", total=count)
        report = generate_shards(
            lambda start, lists: simulate(lists, args.items, args.seed, start=start, split=split),
            count,
            args.out / split,
            {"generator": "simulator", "items": args.items, "seed": args.seed, "split": split},
            args.shard_size,
            advance=lambda lists: progress.advance(task, lists),
        )
    print(report)
