"""`crossjem overlap`: how much items share their tokens, and whether a joint pass pays."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.overlap import encoder_shape, measure_overlap
from crossjem_pl.rankers.encoders import PACKAGED, load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["add_arguments", "run"]

PAPER = {12: (498.38, 93.70, 5.32), 16: (499.34, 94.02, 5.31), 32: (501.52, 94.60, 5.30)}
"""(m, N_u, m / N_u) by item limit L: Table 8b of the CROSS-JEM paper, a log of sponsored search."""
_LIMITS = ("L", "m", "N_u", "p5 / p50 / p95", "m / N_u", "p5 / p50 / p95", "items cut",
           "paper: m", "N_u", "m / N_u")  # fmt: skip
_GROWTH = ("N", "lists", "m", "N_u", "m / N_u", "passes", "lists split", "speed-up", "p5 / p50 / p95")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lists", type=Path, help="file or folder of ranking lists")
    parser.add_argument("--encoder", default=PACKAGED, help=f"hub id or folder (default {PACKAGED})")
    parser.add_argument("--max-item-tokens", type=int, nargs="+", default=[12, 16, 32], metavar="L")
    parser.add_argument("--items", type=int, nargs="+", default=[10, 30, 100], metavar="N")
    parser.add_argument("--max-query-tokens", type=int, default=64, metavar="L", help="default 64")
    parser.add_argument("--max-items-per-pass", type=int, default=100, metavar="N", help="default 100")
    parser.add_argument("--max-union-tokens", type=int, default=262, metavar="L_U", help="default 262")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    parser.add_argument("--limit", type=int, metavar="K", help="only the first K lists")


def run(args: argparse.Namespace) -> None:
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit must be at least 1, got {args.limit}")
    names = ("max_item_tokens", "items", "max_query_tokens", "max_items_per_pass", "max_union_tokens")
    options = {name: getattr(args, name) for name in names}
    lists = islice(read_lists(args.lists, labels_field=None, scores_field=None, unique=False), args.limit)
    report = measure_overlap(
        track(lists, description="counting", total=None, show_speed=False),
        ShortTextTokenizer(load_tokenizer(args.encoder), cache_size=100_000),
        encoder_shape(args.encoder),
        **options,
    )
    by_limit = [
        [
            row.max_item_tokens, f"{row.total_tokens:.2f}", f"{row.union_tokens:.2f}", _by_list(row.union_by_list, 0),
            f"{row.ratio:.2f}", _by_list(row.ratio_by_list, 2), f"{row.cut_items / (row.lists * row.mean_items):.1%}",
            *(f"{value:.2f}" for value in PAPER.get(row.max_item_tokens, ())),
        ]
        for row in report.limits
    ]  # fmt: skip
    by_items = [
        [
            row.items or f"all ({row.mean_items:.1f})", f"{row.lists:,}", f"{row.total_tokens:.1f}",
            f"{row.union_tokens:.1f}", f"{row.ratio:.2f}", f"{row.passes:.2f}", f"{row.split_lists / row.lists:.1%}",
            f"{row.speedup:.1f}", _by_list(row.speedup_by_list, 1),
        ]
        for row in report.growth
    ]  # fmt: skip
    query, console = report.query_tokens, wide_console()
    console.print(
        f"{report.lists:,} lists, {report.limits[-1].mean_items:.1f} items a list; queries of {query.mean:.1f} tokens "
        f"({query.p5:.0f} to {query.p95:.0f}, {report.cut_queries:,} cut)",
        soft_wrap=True,
    )
    console.print(_table("By item limit L, all items of each list", _LIMITS, by_limit))
    limit = report.rows[-1].max_item_tokens
    console.print(_table(f"By number of items N, item limit {limit}", _GROWTH, by_items))
    console.print(f"[bold]{escape(report.verdict)}[/bold]", soft_wrap=True)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        found = {"lists_file": str(args.lists), "encoder": args.encoder, **options, **report.to_json()}
        args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(f"wrote {args.json}")


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    table = Table(*header, title=title, title_justify="left", box=box.MARKDOWN)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def _by_list(quantiles: Sequence[float], decimals: int) -> str:
    return " / ".join(f"{value:.{decimals}f}" for value in quantiles)
