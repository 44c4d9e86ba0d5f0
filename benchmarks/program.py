"""What all benchmark programs share: their options, how they end, work in fresh processes."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from crossjem_pl.process import quiet_libraries
from crossjem_pl.rankers.encoders import PACKAGED

PRECISIONS = ("float32", "bfloat16", "float16")

_ROOT = Path(__file__).parents[1]


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


def run(
    options: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    work: Callable[[argparse.Namespace], None],
) -> int:
    """Parses the command line into `work`'s argument; `args.command` is the whole line.

    Returns:
        The exit status: 0, or 2 after a mistake in the input or a failed step, which is printed in one line.
    """
    given = sys.argv[1:] if argv is None else list(argv)
    args = options.parse_args(given)
    args.command = shlex.join([*options.prog.split(), *given])
    quiet_libraries()
    try:
        if args.threads is not None:
            at_least_one(args, "threads")
            torch.set_num_threads(args.threads)
        work(args)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


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
    """Raises:
    ValueError: naming the option, for a number below 1 in one of these arguments.
    """
    for name in names:
        value = getattr(args, name)
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(number, int) and number < 1 for number in numbers):
            raise ValueError(f"--{name.replace('_', '-')}: expected at least 1, got {value}")


def fresh(module: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Runs `python -m <module> --measure <spec as JSON>` and reads the JSON object on its last line.

    In a process of its own nothing is warm and the peak memory is its own.

    Raises:
        RuntimeError: if it fails, with the end of what it printed.
    """
    command = [sys.executable, "-m", module, "--measure", json.dumps(spec, default=str)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module} failed on {dict(spec)}:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
