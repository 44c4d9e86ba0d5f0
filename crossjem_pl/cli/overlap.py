"""`crossjem overlap`: how much items share their tokens, and whether a joint pass pays."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path

from rich.markup import escape
from rich.progress import track
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.overlap_report import OverlapReport, measure_overlap
from crossjem_pl.data.pass_cost import encoder_shape
from crossjem_pl.evaluation.overlap_markdown import (
    Cells,
    growth_table,
    limit_table,
    method,
    overlap_markdown,
    summary_line,
)
from crossjem_pl.evaluation.overlap_plot import draw_overlap
from crossjem_pl.evaluation.plots import MISSING, available
from crossjem_pl.rankers.encoders import PACKAGED, load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lists", type=Path, help="file or folder of ranking lists")
    parser.add_argument("--encoder", default=PACKAGED, help=f"hub id or folder (default {PACKAGED})")
    parser.add_argument("--max-item-tokens", type=int, nargs="+", default=[12, 16, 32], metavar="L")
    parser.add_argument("--items", type=int, nargs="+", default=[10, 30, 100], metavar="N")
    parser.add_argument("--max-query-tokens", type=int, default=64, metavar="L", help="default 64")
    parser.add_argument("--max-items-per-pass", type=int, default=100, metavar="N", help="default 100")
    parser.add_argument("--max-union-tokens", type=int, default=262, metavar="L_U", help="default 262")
    parser.add_argument("--out", type=Path, default=Path("overlap"), metavar="FOLDER", help="default overlap")
    parser.add_argument("--limit", type=int, metavar="K", help="only the first K lists")


def run(args: argparse.Namespace) -> None:
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit must be at least 1, got {args.limit}")
    tokenizer = ShortTextTokenizer(load_tokenizer(args.encoder), cache_size=100_000)
    lists = islice(read_lists(args.lists, labels_field=None, scores_field=None, unique=False), args.limit)
    report = measure_overlap(
        track(lists, description="counting", total=None, show_speed=False),
        tokenizer,
        encoder_shape(args.encoder),
        max_item_tokens=args.max_item_tokens,
        items=args.items,
        max_query_tokens=args.max_query_tokens,
        max_items_per_pass=args.max_items_per_pass,
        max_union_tokens=args.max_union_tokens,
    )
    _print(report, args.items)
    files = _write(report, args.out, str(args.lists), args.encoder)
    print(f"wrote {args.out}/{', '.join(files)}")
    if not available():
        print(MISSING)


def _print(report: OverlapReport, asked: list[int]) -> None:
    console = wide_console()
    console.print(summary_line(report), soft_wrap=True)
    limit = report.rows[-1].max_item_tokens
    console.print(_table(limit_table(report), "By item limit L, all items of each list"))
    console.print(_table(growth_table(report), f"By number of items N, item limit {limit}"))
    absent = sorted(set(asked) - {row.items for row in report.growth})
    if absent:
        console.print(f"No list has {', '.join(map(str, absent))} items.")
    for paragraph in method(report):
        console.print(f"[dim]{escape(paragraph)}[/dim]", soft_wrap=True)
    console.print(f"[bold]{escape(report.verdict)}[/bold]", soft_wrap=True)


def _table(cells: Cells, title: str) -> Table:
    header, rows = cells
    table = Table(title=title, title_justify="left")
    for column in header:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _write(report: OverlapReport, folder: Path, source: str, encoder: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    found = {"lists_file": source, "encoder": encoder, **report.to_json()}
    (folder / "overlap.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    plot = "overlap.png" if available() else None
    if plot is not None:
        draw_overlap(report, folder / plot)
    (folder / "overlap.md").write_text(overlap_markdown(report, source, encoder, plot), encoding="utf-8")
    return ["overlap.json", "overlap.md", *([plot] if plot else [])]
