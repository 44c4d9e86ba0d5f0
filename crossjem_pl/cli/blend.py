"""`crossjem blend`: graded targets from labels and a zero-shot bi-encoder, before there is a teacher."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_arguments", "run"]

_PACKAGED = "packaged:all-MiniLM-L6-v2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lists", type=Path, help="ranking lists with labels")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.parquet")
    parser.add_argument("--model", default=_PACKAGED, help=f"dual encoder (default {_PACKAGED})")
    parser.add_argument("--device")


def run(args: argparse.Namespace) -> None:
    from functools import partial

    from rich.progress import track

    from crossjem_pl.inference.teach import blend

    progress = partial(track, description="scoring")
    count = blend(args.model, args.lists, args.out, device=args.device, progress=progress)
    print(f"wrote {args.out}: {count} lists")
