"""`crossjem check` and `overlap`: what ranking lists hold, what is wrong with them, and what their items share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from json import dumps
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from crossjem_pl.cli.command import make_table, new_console, passes_on
from crossjem_pl.data import checks
from crossjem_pl.data.database import Summary
from crossjem_pl.data.overlap import encoder_shape, measure_overlap
from crossjem_pl.lists import counted
from crossjem_pl.rankers.encoders import PACKAGED, load_tokenizer
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["check", "overlap"]

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


@passes_on(checks.check, "tests")
def check(
    lists: Path,
    *,
    test: Sequence[Path] = (),
    config: Sequence[str] = (),
    encoder: str = PACKAGED,
    json: bool = False,
    strict: bool = False,
    **options: Any,
) -> None:
    """Looks for mistakes in ranking lists before training on them.

    Args:
        lists: the training lists, a file or folder.
        test: lists compared with the first.
        config: configurations of a training, as of `crossjem fit`, whose tokenizer and limits are used.
        encoder: hub id or folder.
        json: print one JSON object instead of tables.
        strict: exit with status 1 on an error or a warning.
    """
    if config:
        from crossjem_pl.cli.training import configured_ranker

        ranker = configured_ranker(config)
        if not isinstance(ranker, NeuralRanker):
            raise ValueError(f"{', '.join(config)}: a {ranker.name} ranker has no limits in tokens")
        tokenizer = ranker.tokenizer
        limits = {name: getattr(ranker, name) for name in ("max_query_tokens", "max_item_tokens")}
        options = limits | options
    else:
        tokenizer = ShortTextTokenizer(load_tokenizer(encoder, cls_and_sep=False), cache_size=100_000)
    report = checks.check(lists, tokenizer, tests=test, **options)
    counts = report.counts()
    if json:
        print(dumps(report.to_json(), ensure_ascii=False))
    else:
        _print(report)
    if strict and counts["error"] + counts["warning"]:
        raise SystemExit(1)


def _print(report: checks.CheckReport) -> None:
    """The tables of figures and problems, and how many of each grade there are."""
    console = new_console()
    columns = [dict(_figures(file.figures)) for file in report.files]
    title = "Figures (p5 / p50 / p95 / most)"
    console.print(make_table(title, ["", *(file.source for file in report.files)], _by_figure(columns)))
    for file in report.files:
        console.print(_problems(file))
    console.print(", ".join(counted(count, grade) for grade, count in report.counts().items()))


def _figures(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of each figure; those of a group one by one."""
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from ((f"{name}: {inner}", text) for inner, text in _figures(value))
        elif value is None:
            yield name, "–"
        elif isinstance(value, Summary):
            yield name, f"{value.p5:.3g} / {value.p50:.3g} / {value.p95:.3g} / {value.largest:.3g}"
        elif isinstance(value, list) and value and isinstance(value[0], tuple):
            yield name, ", ".join(f"{label:g}: {count:,}" for label, count in value)
        elif isinstance(value, list):
            yield name, " / ".join(f"{quantile:.3g}" for quantile in value)
        else:
            yield name, f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _by_figure(columns: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """A row for each figure of the last column, with the values of all columns."""
    return [(name.replace("_", " "), *(each.get(name, "–") for each in columns)) for name in columns[-1]]


def _problems(file: checks.FileReport) -> Table | str:
    """What is wrong with a file, by grade."""
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


@passes_on(measure_overlap)
def overlap(
    lists: Path,
    *,
    encoder: str = PACKAGED,
    json: bool = False,
    limit: int | None = None,
    **options: Any,
) -> None:
    """How much items share their tokens, and whether a joint pass pays.

    Args:
        lists: file or folder of ranking lists.
        encoder: hub id or folder.
        json: print one JSON object instead of tables.
        limit: only the first so many lists.
    """
    from crossjem_pl.data.formats import read_lists
    from crossjem_pl.progress import track

    if limit is not None and limit < 1:
        raise ValueError(f"--limit must be at least 1, got {limit}")
    read = islice(read_lists(lists, label_column=None, score_column=None, unique=False), limit)
    report = measure_overlap(
        track(read, "counting"),
        ShortTextTokenizer(load_tokenizer(encoder), cache_size=100_000),
        encoder_shape(encoder),
        **options,
    )
    if json:
        found = {"lists_file": str(lists), "encoder": encoder, **options, **report.to_json()}
        print(dumps(found, ensure_ascii=False))
        return
    query, console = report.query_tokens, new_console()
    console.print(
        f"{counted(report.lists, 'list')}, {report.limits[-1].mean_items:.1f} items a list; queries of "
        f"{query.mean:.1f} tokens ({query.p5:.0f} to {query.p95:.0f}, {report.cut_queries:,} cut)",
        soft_wrap=True,
    )
    limits = ["item limit L", *(row.max_item_tokens for row in report.limits)]
    sizes = ["items N", *(row.items or "all" for row in report.growth)]
    for header, rows in ((limits, report.limits), (sizes, report.growth)):
        columns = [dict(_figures(dict(list(row._asdict().items())[2:]))) for row in rows]
        console.print(make_table("Means; by list: p5 / p50 / p95", header, _by_figure(columns)))
    console.print(report.verdict, style="bold", soft_wrap=True, markup=False)
