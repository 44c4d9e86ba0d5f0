"""Pairs a second and peak memory of one optimiser step, on the same lists.

    python -m benchmarks.training --items 10 30 100 --batch-sizes 1 8 --out runs/training

CROSS-JEM and monoBERT with the ranking probability loss against sentence-transformers' CrossEncoder with its
ListNetLoss (model and loss in the same loop: its trainer's overhead is left out). Every measurement runs in a fresh
process, whose peak memory is its own: VmHWM minus the resident size before the first step, on a GPU torch's peak.
`--processes 1 2` adds training with several processes (gloo, CPU), the threads divided among them.

Writes training.json, training.md and training.png.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from rich.progress import track

from benchmarks.measuring.build import overlays
from benchmarks.measuring.fresh import fresh
from benchmarks.measuring.options import add_options, exit_status, parser, prepare_device
from benchmarks.measuring.pages import conditions, write
from benchmarks.training.learners import SENTENCE_TRANSFORMERS
from benchmarks.training.page import page, plot, with_ratios

DEFAULT_SYSTEMS = ("crossjem", "crossjem-best", "monobert", SENTENCE_TRANSFORMERS)
BASELINES = ("monobert", SENTENCE_TRANSFORMERS)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after a mistake in the input."""
    args = _options().parse_args(argv)
    return exit_status(lambda: run(_resolved(args)))


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    device = prepare_device(args.device, args.threads)
    left_out = {}
    if importlib.util.find_spec("sentence_transformers") is None:
        left_out[SENTENCE_TRANSFORMERS] = "is not installed: pip install 'crossjem_pl[bench]'"
    systems = [name for name in args.systems if name not in left_out]
    found: dict[str, Any] = {
        "conditions": conditions(device),
        "encoder": args.encoder,
        "steps": args.steps,
        "left_out": {name: why for name, why in left_out.items() if name in args.systems},
    }
    settings = list(itertools.product(args.processes, args.precision, args.batch_sizes, args.items, systems))
    rows = []
    for processes, precision, size, items, name in track(settings, description="training steps"):
        if processes > 1 and name == SENTENCE_TRANSFORMERS:
            continue
        spec = {
            "name": name,
            "items": items,
            "batch_size": size,
            "precision": precision,
            "processes": processes,
        }
        common = {
            "encoder": args.encoder,
            "device": device.type,
            "threads": max(torch.get_num_threads() // processes, 1),
            "steps": args.steps,
            "random_init": args.random_init,
        }
        rows.append({**spec, **fresh("benchmarks.training.one", {**spec, **common})})
    if SENTENCE_TRANSFORMERS in systems and max(args.processes) > 1:
        found["left_out"][f"{SENTENCE_TRANSFORMERS} with several processes"] = (
            "has its own launcher and trainer for them"
        )
    baselines = [name for name in BASELINES if name in systems]
    found["rows"] = with_ratios(rows, baselines)
    write(found, page(found, baselines), args.out, "training")
    plot(rows, found["conditions"]["machine"], args.out / "training.png")
    print(f"wrote {args.out}/training.json, training.md, training.png")


def _resolved(args: argparse.Namespace) -> argparse.Namespace:
    """The options with their defaults.

    Raises:
        ValueError: for numbers below 1, or several processes on a GPU.
    """
    args.items = args.items or ([10] if args.smoke else [10, 30, 100])
    args.batch_sizes = args.batch_sizes or ([2] if args.smoke else [1, 8])
    args.steps = args.steps or (2 if args.smoke else 10)
    if args.systems is None:
        args.systems = [name for name in DEFAULT_SYSTEMS if not (args.smoke and name == "crossjem-best")]
    for name in ("items", "batch_sizes", "processes"):
        if any(value < 1 for value in getattr(args, name)):
            raise ValueError(f"--{name.replace('_', '-')}: expected numbers of at least 1")
    if max(args.processes) > 1 and prepare_device(args.device, None).type != "cpu":
        raise ValueError("--processes above 1 are measured with gloo on the CPU: add --device cpu")
    if "float16" in args.precision and prepare_device(args.device, None).type == "cpu":
        raise ValueError("--precision float16 is for training on a GPU; use bfloat16 on a CPU")
    return args


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.training", __doc__)
    add_options(out, "runs/training")
    names = [*overlays(), SENTENCE_TRANSFORMERS]
    out.add_argument("--systems", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    out.add_argument("--items", type=int, nargs="+", help="items a list (default 10 30 100)")
    out.add_argument("--batch-sizes", type=int, nargs="+", help="lists a step and process (default 1 8)")
    out.add_argument("--steps", type=int, help="counted steps (default 10)")
    out.add_argument("--processes", type=int, nargs="+", default=[1], help="default 1")
    out.add_argument("--random-init", action="store_true", help="encoders from their configurations alone")
    return out


if __name__ == "__main__":
    raise SystemExit(main())
