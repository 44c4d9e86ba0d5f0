"""`crossjem plan`: the fastest split of long lists into passes on this machine."""

from __future__ import annotations

import argparse
import functools
from itertools import islice
from pathlib import Path

import torch
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.plan import (
    MeasuredSplit,
    choose_split,
    joint_ranker,
    measure_splits,
    possible_splits,
    save_split,
)
from crossjem_pl.lists import RankingList

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="folder of a crossjem model, or hub repository")
    parser.add_argument("--items", type=int, default=700, help="items of a list (default 700)")
    parser.add_argument("--budget-ms", type=float, metavar="MS", help="the most that ranking a list may take")
    parser.add_argument(
        "--lists",
        type=Path,
        metavar="FILE",
        help="ranking lists of about so many items, longer ones are cut to it (default: simulated)",
    )
    parser.add_argument("--samples", type=int, default=3, help="how many lists (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed (default 3)")
    parser.add_argument(
        "--min-tau",
        type=float,
        default=0.9,
        metavar="TAU",
        help="least Kendall tau with the ranking by the model's own split (default 0.9)",
    )
    parser.add_argument("--precision", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--threads", type=int, metavar="T", help="threads of torch on a CPU")
    parser.add_argument("--device", help="cpu, cuda, ... (default: a GPU if there is one)")
    parser.add_argument(
        "--save", action="store_true", help="write the choice into the model folder, as the model's own split"
    )


def run(args: argparse.Namespace) -> None:
    for name in ("items", "samples", "rounds", "threads"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    if args.save and not Path(args.model).is_dir():
        raise ValueError(f"--save needs a model folder, and {args.model} is none")
    lists = _lists(args.lists, args.items, args.samples)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    reranker = Reranker.from_pretrained(args.model, device=args.device, precision=args.precision)
    splits = possible_splits(joint_ranker(reranker), lists)
    measured = measure_splits(
        reranker, lists, splits, args.rounds, functools.partial(track, description="measuring")
    )
    chosen = choose_split(measured, args.budget_ms, args.min_tau)
    console = wide_console()
    console.print(_table(measured, chosen, reranker, lists))
    if chosen is None:
        fastest = choose_split(measured, None, args.min_tau)
        assert fastest is not None  # the model's own split agrees with itself
        raise ValueError(
            f"no split takes at most {args.budget_ms:g} ms at Kendall tau {args.min_tau:g}: the fastest takes "
            f"{fastest.milliseconds:.1f} ms"
        )
    split = chosen.split
    console.print(
        f"max_items_per_pass: {split.max_items_per_pass}, max_union_tokens: {split.max_union_tokens}, "
        f"pass_order: {split.pass_order}",
        soft_wrap=True,
    )
    if args.save:
        save_split(args.model, split)
        console.print(f"Saved in {escape(str(Path(args.model) / 'config.json'))}", soft_wrap=True)
        if reranker.threshold is not None and not chosen.own:
            console.print(
                "The model's threshold was chosen with the former split, which gives other scores; choose it "
                f"again with: crossjem threshold {escape(args.model)} LISTS",
                soft_wrap=True,
            )


def _lists(path: Path | None, items: int, samples: int) -> list[RankingList]:
    if path is None:
        return list(simulate(samples, items, seed=1))
    found = list(islice(read_lists(path, labels_field=None, scores_field=None), samples))
    if not found:
        raise ValueError(f"{path}: no lists")
    return [one.select(range(min(len(one), items))) for one in found]


def _table(
    measured: list[MeasuredSplit],
    chosen: MeasuredSplit | None,
    reranker: Reranker,
    lists: list[RankingList],
) -> Table:
    sizes = sorted({len(one) for one in lists})
    items = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
    threads = f", {torch.get_num_threads()} threads" if reranker.device.type == "cpu" else ""
    title = f"{len(lists)} lists of {items} items, {reranker.device}{threads}, {reranker.precision}"
    table = Table(title=title, title_justify="left")
    for name in ("N", "L_u", "order", "passes", "tokens", "padded", "ms (median)", "tau", "top-10", ""):
        table.add_column(name, justify="left" if name in ("order", "") else "right")
    for one in sorted(measured, key=lambda row: row.milliseconds):
        notes = [word for word, holds in (("chosen", one is chosen), ("the model's own", one.own)) if holds]
        table.add_row(
            str(one.split.max_items_per_pass),
            str(one.split.max_union_tokens),
            one.split.pass_order,
            f"{one.passes:.1f}",
            f"{one.tokens:.0f}",
            f"{one.padded_tokens:.0f}",
            f"{one.milliseconds:.1f}",
            f"{one.tau:.3f}",
            f"{one.top10:.2f}",
            ", ".join(notes),
            style="bold" if one is chosen else None,
        )
    return table
