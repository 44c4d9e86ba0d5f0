"""Reports of runs: `compare` is the table of several runs, `build_report` adds how they learned, cost and fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from crossjem_pl.evaluation import charts, sections
from crossjem_pl.evaluation.charts import Plot
from crossjem_pl.evaluation.comparison import Comparison, compare_runs
from crossjem_pl.evaluation.metrics import parse_measures
from crossjem_pl.evaluation.page import render
from crossjem_pl.evaluation.runs import read_run_folder, read_texts_of, with_names
from crossjem_pl.evaluation.sections import Section
from crossjem_pl.files import replacing
from crossjem_pl.lists import counted
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["Report", "build_report", "compare", "comparison_report", "write_report"]

_TABLE = ("RR@10", "AP@10", "nDCG@10")
"""Metrics that stand beside the chosen one in the table."""


@dataclass(frozen=True)
class Report:
    """The whole report.

    Args:
        title: names the runs.
        subtitle: says on which lists.
        notes: what a reader must know before trusting the numbers.
        sections: in reading order.
        results: one row per system, see `Comparison.to_frame`; None where no run could be evaluated.
    """

    title: str
    subtitle: str
    notes: list[str]
    sections: list[Section]
    results: pd.DataFrame | None

    @property
    def plots(self) -> dict[str, Plot]:
        """All plots by the names of their files, without the ending."""
        return {name: plot for section in self.sections for name, plot in section.plots.items()}


def comparison_report(comparison: Comparison, examples: int = 3) -> Report:
    """The table, its charts and the lists on which systems differ most.

    Args:
        comparison: of `compare_runs`.
        examples: lists shown per system where it gains most on the baseline, and as many where it loses most.
    """
    found = [sections.results(comparison)]
    if comparison.others:
        texts = partial(read_texts_of, list(comparison.runs.values()))
        differing = sections.differing(comparison, texts, examples)
        found += [differing] * bool(differing.data["examples"])
    lists = f"{counted(len(comparison.runs), 'system')} on {comparison.lists}"
    return Report("Comparison", lists, _notes(comparison), found, comparison.to_frame())


def compare(
    runs: Sequence[str | Path],
    baseline: str | None = None,
    names: Sequence[str] = ("RR@10", "AP@10"),
    out: str | Path = "comparison",
    qrels: str | Path | None = None,
    **options: Any,
) -> Comparison:
    """Compares runs and writes `compare.md`, `compare.csv` (unrounded) and `compare.html` into `out`.

    `out` is made if absent; the other arguments and the errors are those of `compare_runs`. The page is one file; its
    charts need matplotlib, and without it page and Markdown say which extra brings it.
    """
    comparison = compare_runs(runs, baseline, names, qrels, **options)
    report = comparison_report(comparison)
    texts = {f"compare.{ending}": render(report, ending) for ending in ("md", "html")}
    _write({"compare.csv": comparison.to_frame().to_csv(index=False), **texts}, Path(out))
    return comparison


def build_report(
    runs: Sequence[str | Path],
    metric: str = "RR@10",
    *,
    qrels: str | Path | None = None,
    split: str = "val",
    examples: int = 5,
    tokenizer: ShortTextTokenizer | None = None,
    **options: Any,
) -> Report:
    """Reads runs and builds their report. What a run lacks is said in the section that would show it.

    Plots need matplotlib (the extra `plots`); without it there are none, and a note says so.

    Args:
        runs: run folders, or TREC run files.
        metric: ir-measures name of what is broken down, drawn and picks the examples.
        examples: lists a system gains most on, as many that it loses most on, and as many hardest ones.
        tokenizer: counts the overlap of items in its tokens; None counts words.
        qrels, split, options: see `compare_runs`.

    Raises:
        FileNotFoundError: for a run or qrels file that is not there.
        ValueError: for no run, a folder with nothing that a report could show, a malformed file, an unknown
            metric or baseline, and whatever `compare_runs` refuses.
    """
    chosen = parse_measures([metric])[metric]
    names = (metric, *(name for name, other in parse_measures(_TABLE).items() if other != chosen))
    if not runs:
        raise ValueError("there is no run to report on")
    if examples < 0:
        raise ValueError(f"examples must be at least 0, got {examples}")
    found = with_names([read_run_folder(path, split) for path in runs])
    for run in found:
        if not run.scores and run.curve is None and not run.config and not run.summary:
            files = f"{split}.trec, metrics.csv, config.yaml or summary.json"
            raise ValueError(f"{run.path}: there is nothing to report on: no {files}")
    missing = [f"{run.path / f'{split}.trec'} is missing" for run in found if not run.scores]
    evaluated = [run for run in found if run.scores]
    title, lists = f"Report on {', '.join(run.name for run in found)}", counted(len(found), "run")
    learning, reproduction = sections.learning(found, metric), sections.reproduction(found)
    if not evaluated or (qrels is None and all(run.qrels is None for run in evaluated)):
        if evaluated:
            missing = ["there are no judgements; --qrels names a file of them"]
        nothing = Section("Results", "results", {"table": None, "missing": missing}, {})
        return Report(title, lists, _notes(None), [nothing, learning, reproduction], None)
    comparison = compare_runs(evaluated, names=names, qrels=qrels, **options)
    texts = read_texts_of(evaluated, comparison.qrels)
    parts = [sections.results(comparison, missing), learning]
    parts += [sections.kinds_of_lists(comparison, texts, tokenizer), sections.calibration(comparison)]
    if examples and comparison.others:
        parts.append(sections.differing(comparison, lambda _: texts, examples))
    if examples:
        parts.append(sections.hardest(comparison, texts, examples))
    lists = f"{lists}, {comparison.lists}"
    return Report(title, lists, _notes(comparison), [*parts, reproduction], comparison.to_frame())


def write_report(report: Report, out: str | Path) -> list[Path]:
    """Writes `report.html`, `report.md`, `figures/*.svg` and, where runs were evaluated, `compare.csv`.

    Returns the files written, the page first.
    """
    folder = Path(out)
    texts = {"report.html": render(report, "html"), "report.md": render(report, "md", "figures")}
    texts |= {f"figures/{name}.svg": plot.svg for name, plot in report.plots.items()}
    if report.results is not None:
        texts["compare.csv"] = report.results.to_csv(index=False)
    _write(texts, folder)
    return [folder / name for name in texts]


def _write(texts: dict[str, str], folder: Path) -> None:
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())


def _notes(comparison: Comparison | None) -> list[str]:
    return (comparison.notes if comparison else []) + ([] if charts.available() else [charts.MISSING])
