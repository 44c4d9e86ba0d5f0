"""`crossjem teach`: a model's scores of a file of lists, for distillation."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="model folder or hub repository")
    parser.add_argument("lists", type=Path, help="file or folder of ranking lists")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.parquet")
    parser.add_argument("--shard", type=int, default=0, help="this process's part")
    parser.add_argument("--shards", type=int, default=1, help="how many processes share the work")
    parser.add_argument("--block", type=int, default=256, help="lists per part (default 256)")
    parser.add_argument("--device")
    parser.add_argument("--precision", choices=["float32", "bfloat16", "float16"], help="default: as tuned")


def run(args: argparse.Namespace) -> None:
    from functools import partial

    from rich.progress import track

    from crossjem_pl.inference.teach import teach

    report = teach(
        args.model,
        args.lists,
        args.out,
        shard=args.shard,
        shards=args.shards,
        block=args.block,
        device=args.device,
        precision=args.precision,
        progress=partial(track, description="scoring"),
    )
    state = f"wrote {args.out}" if report.complete else f"{args.out} waits for the other shards"
    print(f"{state}: {report.lists} lists, {report.scored} scored now")
    if report.truncated:
        print(f"{report.truncated} texts were longer than the teacher's limits and were cut")
