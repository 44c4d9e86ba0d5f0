"""`crossjem check`: what ranking lists hold, and what is wrong with them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from rich.markup import escape
from rich.progress import track
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.data.checks import CheckReport, FileReport, check
from crossjem_pl.data.database import Summary
from crossjem_pl.rankers.encoders import PACKAGED, load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["add_arguments", "run"]

T = TypeVar("T")

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lists", type=Path, help="the training lists, a file or folder")
    parser.add_argument(
        "--test", type=Path, nargs="+", default=[], metavar="LISTS", help="lists compared with the first"
    )
    parser.add_argument("--encoder", default=PACKAGED, help=f"hub id or folder (default {PACKAGED})")
    parser.add_argument("--max-query-tokens", type=int, default=64, metavar="L", help="default 64")
    parser.add_argument("--max-item-tokens", type=int, default=32, metavar="L", help="default 32")
    parser.add_argument("--labels-field", default="labels", metavar="NAME")
    parser.add_argument("--scores-field", default="scores", metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 on an error or a warning")


def run(args: argparse.Namespace) -> None:
    report = check(
        args.lists,
        ShortTextTokenizer(load_tokenizer(args.encoder, cls_and_sep=False), cache_size=100_000),
        tests=args.test,
        max_query_tokens=args.max_query_tokens,
        max_item_tokens=args.max_item_tokens,
        labels_field=args.labels_field,
        scores_field=args.scores_field,
        progress=_progress,
    )
    console = wide_console()
    console.print(_figures(report))
    for file in report.files:
        console.print(_problems(file))
    counts = report.counts()
    console.print(", ".join(f"{count} {grade}{'' if count == 1 else 's'}" for grade, count in counts.items()))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n", "utf-8")
        print(f"wrote {args.json}")
    if args.strict and counts["error"] + counts["warning"]:
        raise SystemExit(1)


def _progress(lists: Iterable[T], source: str) -> Iterable[T]:
    return track(lists, description=Path(source).name, total=None, show_speed=False)


def _figures(report: CheckReport) -> Table:
    table = Table(title="Figures (p50 / p95 / most)", title_justify="left")
    table.add_column("")
    for file in report.files:
        table.add_column(escape(file.source), justify="right", overflow="fold")
    for name, show in _LINES.items():
        table.add_row(name, *(escape(show(file.figures)) for file in report.files))
    return table


def _problems(file: FileReport) -> Table | str:
    if not file.problems:
        return f"{escape(file.source)}: nothing found"
    table = Table(title=f"\nProblems of {escape(file.source)}", title_justify="left")
    for column in ("grade", "count", "what (code)", "examples"):
        table.add_column(column, overflow="fold")
    for problem in file.problems:
        style = _STYLES[problem.grade]
        of = "" if problem.of is None else f"\nof {problem.of:,}"
        table.add_row(
            f"[{style}]{problem.grade}[/{style}]",
            f"{problem.count:,}{of}",
            f"{problem.unit}: {escape(problem.text)} ({problem.code})",
            escape("\n".join(problem.examples)),
        )
    return table


def _quantiles(summary: Summary | None) -> str:
    if summary is None:
        return "–"
    return f"{summary.p50:.0f} / {summary.p95:.0f} / {summary.largest:.0f}"


def _cut(lengths: dict[str, Any]) -> str:
    return f"{lengths['cut_texts']:,} texts, {lengths['cut_tokens']:,} tokens (limit {lengths['limit']})"


def _number(value: float | None, format: str = ".2f") -> str:
    return "–" if value is None else f"{value:{format}}"


def _labels(figures: dict[str, Any]) -> str:
    if figures["labels"] is None:
        return "none"
    if figures["label_counts"] is not None and len(figures["label_counts"]) <= 6:
        return ", ".join(f"{label:g}: {count:,}" for label, count in figures["label_counts"])
    return (
        f"{figures['labels'].smallest:g} to {figures['labels'].largest:g}, mean {figures['labels'].mean:.3g}"
    )


def _scores(scores: Summary | None) -> str:
    if scores is None:
        return "none"
    quantiles = f"p5 {scores.p5:.3g}, p50 {scores.p50:.3g}, p95 {scores.p95:.3g}"
    return f"{scores.smallest:.3g} to {scores.largest:.3g}, {quantiles}"


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "lists (rows refused)": lambda f: f"{f['lists']:,} ({f['refused_rows']:,})",
    "items": lambda f: f"{f['items']:,}",
    "distinct queries": lambda f: f"{f['distinct_queries']:,}",
    "distinct items, by text (by id)": lambda f: f"{f['distinct_items']:,} ({f['distinct_item_ids']:,})",
    "items a list": lambda f: _quantiles(f["items_per_list"]),
    "query words": lambda f: _quantiles(f["queries"]["words"]),
    "query tokens": lambda f: _quantiles(f["queries"]["tokens"]),
    "item words": lambda f: _quantiles(f["item_texts"]["words"]),
    "item tokens": lambda f: _quantiles(f["item_texts"]["tokens"]),
    "tokens a word: queries, items": lambda f: (
        f"{_number(f['queries']['pieces_per_word'])}, {_number(f['item_texts']['pieces_per_word'])}"
    ),
    "cut queries": lambda f: _cut(f["queries"]),
    "cut items": lambda f: _cut(f["item_texts"]),
    "labels": _labels,
    "positives a list": lambda f: _quantiles(f["positives"]),
    "first positive: mean rank (in random order)": lambda f: (
        f"{_number(f['first_positive'])} ({_number(f['first_positive_random'])})"
    ),
    "scores": lambda f: _scores(f["scores"]),
    "positive scored above other": lambda f: _number(f["agreement"], ".1%"),
    "items seen in training": lambda f: (
        "–" if f["seen_items"] is None else f"{f['seen_items']:,} of {f['distinct_items']:,}"
    ),
}
