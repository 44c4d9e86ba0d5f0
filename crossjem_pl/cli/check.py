"""`crossjem check`: what ranking lists hold, and what is wrong with them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from crossjem_pl.cli.console import wide_console
from crossjem_pl.data.checks import CheckReport, FileReport, check
from crossjem_pl.data.database import Summary
from crossjem_pl.rankers.encoders import PACKAGED, load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["add_arguments", "run"]

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


def _figures(report: CheckReport) -> Table:
    """One column for each file, one line for each figure, by its name in the JSON."""
    table = Table("", title="Figures (p5 / p50 / p95 / most)", title_justify="left")
    for file in report.files:
        table.add_column(escape(file.source), justify="right", overflow="fold")
    columns = [dict(_lines(file.figures)) for file in report.files]
    for name in columns[-1]:
        table.add_row(name.replace("_", " "), *(column.get(name, "–") for column in columns))
    return table


def _lines(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of each figure; those of a group one by one."""
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from ((f"{name}: {inner}", text) for inner, text in _lines(value))
        elif value is None:
            yield name, "–"
        elif isinstance(value, Summary):
            yield name, f"{value.p5:.3g} / {value.p50:.3g} / {value.p95:.3g} / {value.largest:.3g}"
        elif isinstance(value, list):
            yield name, ", ".join(f"{label:g}: {count:,}" for label, count in value)
        else:
            yield name, f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _problems(file: FileReport) -> Table | str:
    if not file.problems:
        return f"{escape(file.source)}: nothing found"
    table = Table(title=f"\nProblems of {escape(file.source)}", title_justify="left")
    for column in ("grade", "count", "what (code)", "examples"):
        table.add_column(column, overflow="fold")
    for problem in file.problems:
        table.add_row(
            f"[{_STYLES[problem.grade]}]{problem.grade}",
            f"{problem.count:,}" + ("" if problem.of is None else f"\nof {problem.of:,}"),
            f"{problem.unit}: {escape(problem.text)} ({problem.code})",
            escape("\n".join(problem.examples)),
        )
    return table
