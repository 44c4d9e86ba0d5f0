"""Cost against the number of items and against the size of the token union, with fitted exponents.

    python -m benchmarks.scaling --items 10 30 100 300 700 1400 --out runs/scaling

Beside the measured latency: the model's operations by formula, and the cost formula of the CROSS-JEM paper (section
5.2), (L_q + L_k N/C)^2 L for a joint pass against (L_q + L_k)^2 L N for one pass a pair.

Writes scaling.json, scaling.md and scaling.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from rich.progress import Progress

from benchmarks.latency.contenders import OwnRanker
from benchmarks.latency.turns import WARMUP, measured_lists
from benchmarks.measuring.build import build_ranker
from benchmarks.measuring.options import add_options, exit_status, parser, prepare_device
from benchmarks.measuring.pages import conditions, write
from benchmarks.scaling.lists import pooled_lists
from benchmarks.scaling.page import page, plot
from benchmarks.scaling.sweep import Point, exponents, sweep
from crossjem_pl.cli.main import quiet_libraries
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

ONE_PASS = "crossjem-one-pass"
BASELINE = "monobert"
SYSTEMS = ("crossjem", "crossjem-best", ONE_PASS, BASELINE)

_EVERYTHING = 1_000_000
"""More items and union tokens than a list has."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after a mistake in the input."""
    args = _options().parse_args(argv)
    quiet_libraries()
    return exit_status(lambda: run(_resolved(args)))


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    device = prepare_device(args.device, args.threads)
    precision = args.precision[0]
    contenders = [_contender(name, args.encoder, device, precision) for name in SYSTEMS]
    tokenizer = ShortTextTokenizer(load_tokenizer(args.encoder))
    found: dict[str, Any] = {
        "conditions": conditions(device),
        "encoder": args.encoder,
        "precision": precision,
        "rounds": args.rounds,
        "warmup": WARMUP,
        "one_pass": ONE_PASS,
        "union_items": args.union_items,
    }
    with Progress() as bar:
        steps = (len(args.items) + len(args.pools)) * (args.rounds + WARMUP) * len(contenders)
        task = bar.add_task("lists", total=steps)
        by_items, found["milliseconds_by_items"] = sweep(
            contenders,
            {items: measured_lists(items, args.rounds) for items in args.items},
            lambda: bar.advance(task),
        )
        by_union, found["milliseconds_by_union"] = sweep(
            contenders,
            {
                pool: pooled_lists(tokenizer, args.rounds + WARMUP, args.union_items, pool)
                for pool in args.pools
            },
            lambda: bar.advance(task),
        )
    tail = sorted(args.items)[-max(len(args.items) * 2 // 3, 2) :]
    found["tail"] = tail[0]
    fits = {
        "items": exponents(by_items, _items),
        "tail": exponents([point for point in by_items if point.size in tail], _items),
        "union": exponents(by_union, _union),
    }
    found["by_items"] = [point.as_dict() for point in by_items]
    found["by_union"] = [point.as_dict() for point in by_union]
    found["exponents"] = {
        over: {name: {kind: asdict(one) for kind, one in kinds.items()} for name, kinds in names.items()}
        for over, names in fits.items()
    }
    write(found, page(found, by_items, by_union, fits, BASELINE), args.out, "scaling")
    plot(by_items, by_union, f"{found['conditions']['machine']}, {precision}", args.out / "scaling.png")
    print(f"wrote {args.out}/scaling.json, scaling.md, scaling.png")


def _contender(name: str, encoder: str, device: torch.device, precision: str) -> OwnRanker:
    if name == ONE_PASS:
        limits = {"max_items_per_pass": _EVERYTHING, "max_union_tokens": _EVERYTHING}
        ranker = build_ranker("crossjem-shared", encoder, limits)
    else:
        ranker = build_ranker(name, encoder)
    return OwnRanker(name, Reranker(ranker, device, precision), False, precision)  # type: ignore[arg-type]


def _items(point: Point) -> float:
    return point.tokens.items


def _union(point: Point) -> float:
    return point.tokens.union


def _resolved(args: argparse.Namespace) -> argparse.Namespace:
    """The options with their defaults.

    Raises:
        ValueError: for numbers below 1, or fewer than two sizes.
    """
    smoke = args.smoke
    args.items = sorted(args.items or ([10, 30, 100] if smoke else [10, 30, 100, 300, 700, 1400]))
    args.pools = sorted(args.pools or ([30, 100, 300] if smoke else [25, 50, 100, 200, 400, 1600]))
    args.rounds = args.rounds or (1 if smoke else 10)
    args.union_items = args.union_items or (50 if smoke else 100)
    for name in ("items", "pools"):
        if len(set(getattr(args, name))) < 2:
            raise ValueError(f"--{name}: an exponent needs at least two sizes")
    for name, value in (("items", args.items[0]), ("rounds", args.rounds), ("union-items", args.union_items)):
        if value < 1:
            raise ValueError(f"--{name}: expected at least 1, got {value}")
    return args


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.scaling", __doc__)
    add_options(out, "runs/scaling", precisions=False)
    out.add_argument("--items", type=int, nargs="+", help="default 10 30 100 300 700 1400")
    out.add_argument("--pools", type=int, nargs="+", help="words to draw items from (default 25 to 1600)")
    out.add_argument("--union-items", type=int, help="items of the lists with different unions (default 100)")
    out.add_argument("--rounds", type=int, help="counted lists a size (default 10)")
    return out


if __name__ == "__main__":
    raise SystemExit(main())
