"""`crossjem blend`: graded targets from labels and a zero-shot bi-encoder, before there is a teacher."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from rich.progress import track

from crossjem_pl.inference.blend import blend
from crossjem_pl.rankers.encoders import PACKAGED

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lists", type=Path, help="ranking lists with labels")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.parquet")
    parser.add_argument("--model", default=PACKAGED, help=f"dual encoder (default {PACKAGED})")
    parser.add_argument("--device")


def run(args: argparse.Namespace) -> None:
    progress = functools.partial(track, description="scoring")
    count = blend(args.model, args.lists, args.out, device=args.device, progress=progress)
    print(f"wrote {args.out}: {count} lists")
