"""What all benchmark programs share: their options, how they end, work in fresh processes."""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch

from crossjem_pl.process import quiet_libraries
from crossjem_pl.rankers.encoders import PACKAGED

PRECISIONS = ("float32", "bfloat16", "float16")

T = TypeVar("T")


def parser(
    program: str, text: str | None, out: str, *, encoder: str | None = PACKAGED
) -> argparse.ArgumentParser:
    """A parser with `--device`, `--threads`, `--smoke`, `--out`, and `--encoder` unless `encoder` is None.

    Args:
        program: name of the module, such as "benchmarks.latency".
        text: shown by `--help` as it stands.
        out: the folder that `--out` defaults to.
        encoder: the default of `--encoder`.
    """
    options = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if encoder is not None:
        options.add_argument("--encoder", default=encoder, help=f"of every ranker (default {encoder})")
    options.add_argument("--device", help="cpu or cuda (default: a GPU if there is one)")
    options.add_argument("--threads", type=int, help="of torch (default: OMP_NUM_THREADS, or all cores)")
    options.add_argument("--smoke", action="store_true", help="small sizes: under two minutes on two cores")
    options.add_argument("--out", type=Path, default=Path(out), metavar="FOLDER")
    return options


def program(
    make_options: Callable[[], argparse.ArgumentParser],
    work: Callable[[argparse.Namespace], int | None],
    argv: Sequence[str] | None = None,
) -> int:
    """Parses the command line into `work`'s argument; `args.command` is the whole line.

    Returns:
        The exit status: what `work` returns, 0 for None, or 2 after a mistake in the input or a failed step, which is
        printed in one line.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    options = make_options()
    args = options.parse_args(given)
    args.command = shlex.join([*options.prog.split(), *given])
    quiet_libraries()
    try:
        if args.threads is not None:
            at_least_one(args, "threads")
            torch.set_num_threads(args.threads)
        return work(args) or 0
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def torch_device(name: str | None) -> torch.device:
    """The device of that name; without one a GPU if there is one."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def defaults(args: argparse.Namespace, full: Mapping[str, Any], smoke: Mapping[str, Any]) -> None:
    """Fills in the options that nobody gave: those of a full run, or of a smoke run where it has others.

    Raises:
        ValueError: naming the option, for one of these options with a number below 1.
    """
    for name, value in {**full, **(smoke if args.smoke else {})}.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    at_least_one(args, *(name for name, value in full.items() if isinstance(value, int | list)))


def at_least_one(args: argparse.Namespace, *names: str) -> None:
    """Refuses, by a ValueError that names the option, numbers below 1 in these arguments."""
    for name in names:
        value = getattr(args, name)
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(number, int) and number < 1 for number in numbers):
            raise ValueError(f"--{name.replace('_', '-')}: expected at least 1, got {value}")


def fresh(work: Callable[[Mapping[str, Any]], T], spec: Mapping[str, Any]) -> T:
    """`work(spec)` in a process of its own, where nothing is warm and the peak memory is its own.

    Raises:
        RuntimeError: if the process dies; and what `work` raises.
    """
    spawn, module = multiprocessing.get_context("spawn"), work.__module__
    if module == "__main__":  # a new process has another one
        module = sys.modules["__main__"].__spec__.name  # type: ignore[union-attr]
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=quiet_libraries) as pool:
        return pool.submit(_call, module, work.__name__, spec).result()


def _call(module: str, name: str, spec: Mapping[str, Any]) -> Any:
    return getattr(importlib.import_module(module), name)(spec)
