"""`crossjem check`: what ranking lists hold, and what is wrong with them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.data.check import CheckReport, Figures, FileReport, check
from crossjem_pl.data.distributions import Summary
from crossjem_pl.data.inspection import LabelFigures, LengthFigures, ScoreFigures
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
    tokenizer = load_tokenizer(args.encoder, cls_and_sep=False)
    report = check(
        args.lists,
        ShortTextTokenizer(tokenizer, cache_size=100_000),
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
        _print_problems(console, file)
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
    if len(report.files) > 1:
        table.add_row("items seen in training", *(_seen(file.figures) for file in report.files))
    return table


def _print_problems(console: Console, file: FileReport) -> None:
    if not file.problems:
        console.print(f"{file.source}: nothing found", markup=False)
        return
    console.print(f"\n[bold]Problems of {escape(file.source)}[/bold]", soft_wrap=True)
    table = Table()
    table.add_column("grade")
    table.add_column("count", justify="right")
    table.add_column("what (code)", max_width=44)
    table.add_column("examples", overflow="fold")
    for problem in file.problems:
        style = _STYLES[problem.grade]
        of = "" if problem.of is None else f"\nof {problem.of:,}"
        table.add_row(
            f"[{style}]{problem.grade}[/{style}]",
            f"{problem.count:,}{of}",
            f"{problem.unit}: {escape(problem.text)} ({problem.code})",
            escape("\n".join(problem.examples)),
        )
    console.print(table)


def _quantiles(summary: Summary | None) -> str:
    if summary is None:
        return "–"
    return f"{summary.p50:.0f} / {summary.p95:.0f} / {summary.largest:.0f}"


def _pieces(lengths: LengthFigures) -> str:
    return "–" if lengths.pieces_per_word is None else f"{lengths.pieces_per_word:.2f}"


def _cut(lengths: LengthFigures) -> str:
    return f"{lengths.cut_texts:,} texts, {lengths.cut_tokens:,} tokens"


def _labels(labels: LabelFigures) -> str:
    if labels.labels is None:
        return "none"
    if labels.counts is not None and len(labels.counts) <= 6:
        return ", ".join(f"{label:g}: {count:,}" for label, count in labels.counts)
    return f"{labels.labels.smallest:g} to {labels.labels.largest:g}, mean {labels.labels.mean:.3g}"


def _first_positive(labels: LabelFigures) -> str:
    if labels.first_positive is None or labels.first_positive_random is None:
        return "–"
    return f"{labels.first_positive:.2f} ({labels.first_positive_random:.2f})"


def _scores(scores: ScoreFigures) -> str:
    if scores.scores is None:
        return "none"
    found = scores.scores
    return f"{found.smallest:.3g} to {found.largest:.3g}, p5 {found.p5:.3g}, p50 {found.p50:.3g}, p95 {found.p95:.3g}"


def _agreement(scores: ScoreFigures) -> str:
    return "–" if scores.agreement is None else f"{scores.agreement:.1%}"


def _seen(figures: Figures) -> str:
    found = figures.leakage
    return "" if found is None else f"{found.items:,} of {found.distinct_items:,} ({found.item_share:.1%})"


_LINES: dict[str, Callable[[Figures], str]] = {
    "lists (rows refused)": lambda f: f"{f.lists:,} ({f.refused_rows:,})",
    "items": lambda f: f"{f.items:,}",
    "distinct queries": lambda f: f"{f.repeats.distinct_queries:,}",
    "distinct items, by text (by id)": lambda f: (
        f"{f.repeats.distinct_items:,} ({f.repeats.distinct_item_ids:,})"
    ),
    "items a list": lambda f: _quantiles(f.items_per_list),
    "query words": lambda f: _quantiles(f.queries.words),
    "query tokens": lambda f: _quantiles(f.queries.tokens),
    "item words": lambda f: _quantiles(f.item_texts.words),
    "item tokens": lambda f: _quantiles(f.item_texts.tokens),
    "tokens a word: queries, items": lambda f: f"{_pieces(f.queries)}, {_pieces(f.item_texts)}",
    "cut queries": lambda f: f"{_cut(f.queries)} (limit {f.queries.limit})",
    "cut items": lambda f: f"{_cut(f.item_texts)} (limit {f.item_texts.limit})",
    "labels": lambda f: _labels(f.labels),
    "positives a list": lambda f: _quantiles(f.labels.positives),
    "first positive: mean rank (in random order)": lambda f: _first_positive(f.labels),
    "scores": lambda f: _scores(f.scores),
    "positive scored above other": lambda f: _agreement(f.scores),
}
