"""Options that all benchmark programs have."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from crossjem_pl.rankers.encoders import PACKAGED

__all__ = ["PRECISIONS", "add_options", "exit_status", "parser", "prepare_device"]

PRECISIONS = ("float32", "bfloat16", "float16")


def exit_status(work: Callable[[], None]) -> int:
    """Does the work: 0, or 2 after a mistake in the input or a failed step, which is printed in one line."""
    try:
        work()
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parser(program: str, text: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows the program's text as it stands."""
    return argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_options(options: argparse.ArgumentParser, out: str, precisions: bool = True) -> None:
    """`--encoder`, `--device`, `--precision`, `--threads`, `--smoke`, `--out`.

    Args:
        options: gets them.
        out: the folder that `--out` defaults to.
        precisions: whether `--precision` may name several; `precision` is a list either way.
    """
    options.add_argument("--encoder", default=PACKAGED, help=f"of every ranker (default {PACKAGED})")
    options.add_argument("--device", help="cpu or cuda (default: a GPU if there is one)")
    options.add_argument(
        "--precision", nargs="+" if precisions else 1, choices=PRECISIONS, default=["float32"]
    )
    options.add_argument("--threads", type=int, help="of torch (default: OMP_NUM_THREADS, or all cores)")
    options.add_argument("--smoke", action="store_true", help="small sizes: under two minutes on two cores")
    options.add_argument("--out", type=Path, default=Path(out), metavar="FOLDER")


def prepare_device(name: str | None, threads: int | None) -> torch.device:
    """The device, with the number of threads set.

    Raises:
        ValueError: for fewer than one thread.
    """
    if threads is not None:
        if threads < 1:
            raise ValueError(f"--threads must be at least 1, got {threads}")
        torch.set_num_threads(threads)
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
