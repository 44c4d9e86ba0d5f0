"""Builds the report of one or several runs, and writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import pandas as pd

from crossjem_pl.data.formats import read_qrels
from crossjem_pl.evaluation import drawing, plots, wording
from crossjem_pl.evaluation.compare import compare_runs
from crossjem_pl.evaluation.metrics import parse_measures
from crossjem_pl.evaluation.report.breakdowns import breakdown_section
from crossjem_pl.evaluation.report.contents import (
    Block,
    Differences,
    Figure,
    HardLists,
    Missing,
    Paragraph,
    Report,
    Results,
    Section,
)
from crossjem_pl.evaluation.report.folders import RunRecord, named, read_record
from crossjem_pl.evaluation.report.hardest import hardest_lists
from crossjem_pl.evaluation.report.latency import Latency, read_latency
from crossjem_pl.evaluation.report.learning import learning_section
from crossjem_pl.evaluation.report.probabilities import calibration_section
from crossjem_pl.evaluation.report.reproduction import reproduction_section
from crossjem_pl.evaluation.report.speed import latency_section
from crossjem_pl.evaluation.report.to_html import to_html
from crossjem_pl.evaluation.report.to_markdown import to_markdown
from crossjem_pl.evaluation.results import Comparison
from crossjem_pl.evaluation.run_folder import StoredRun, read_texts_of
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["STEPS", "build_report", "write_report"]

Qrels = Mapping[str, Mapping[str, int]]
Texts = tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]]

STEPS = (
    "reading",
    "metrics",
    "learning curves",
    "kinds of lists",
    "calibration",
    "latency",
    "examples",
    "settings",
)
"""What `build_report` tells `progress` it begins, in this order."""

_TABLE = ("RR@10", "AP@10", "nDCG@10")
"""Metrics that stand beside the chosen one in the table."""


def build_report(
    runs: Sequence[str | Path],
    metric: str = "RR@10",
    *,
    baseline: str | None = None,
    qrels: str | Path | None = None,
    latency: str | Path | None = None,
    split: str = "val",
    allow_different: bool = False,
    examples: int = 5,
    tokenizer: ShortTextTokenizer | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
) -> Report:
    """Reads runs and builds their report. What a run lacks is said in the section that would show it.

    Plots need matplotlib (the extra `plots`); without it there are none, and a note says so.

    Args:
        runs: run folders, or TREC run files.
        metric: ir-measures name of what is broken down, drawn and picks the examples.
        baseline: see `compare_runs`; the first run unless told.
        qrels: judgements in place of the folders' own.
        latency: JSON file of `make bench-latency`.
        split: which run of a folder.
        allow_different: accept runs over different queries or candidates.
        examples: lists a system gains most on, as many that it loses most on, and as many hardest ones.
        tokenizer: counts the overlap of items in its tokens; None counts words.
        seed: of the randomisation test and the bootstrap.
        progress: called with each of `STEPS` when it begins.

    Raises:
        FileNotFoundError: for a run, qrels or latency file that is not there.
        ValueError: for no run, a folder with nothing that a report could show, a malformed file, an unknown
            metric or baseline, and whatever `compare_runs` refuses.
    """
    names = _metrics(metric)
    if not runs:
        raise ValueError("there is no run to report on")
    if examples < 0:
        raise ValueError(f"examples must be at least 0, got {examples}")
    progress(STEPS[0])
    times = None if latency is None else read_latency(latency)
    records = [read_record(path, split) for path in runs]
    for record in records:
        if record.empty:
            raise ValueError(
                f"{record.path}: there is nothing to report on: no {split}.trec, metrics.csv, config.yaml or "
                "summary.json"
            )
    progress(STEPS[1])
    judged, reason = _judgements(records, qrels, split)
    comparison = None
    if judged is not None:
        evaluated = [record.path for record in records if record.stored is not None]
        comparison = compare_runs(
            evaluated,
            baseline,
            names,
            qrels,
            split=split,
            allow_different=allow_different,
            examples=examples,
            seed=seed,
        )
    found = () if comparison is None else comparison.systems
    records = named(records, {system.path: system.name for system in found})
    draw = drawing.available()
    progress(STEPS[2])
    learning = learning_section(records, metric, draw)
    if comparison is None or judged is None:
        results: list[Section] = [
            Section("Results", (Missing(f"No metrics, breakdowns and examples: {reason}."),))
        ]
        rest: list[Section] = []
    else:
        results = [_results(comparison, records, draw)]
        rest = _evaluated_sections(
            comparison, records, judged, times, examples, tokenizer, draw, split, progress
        )
    progress(STEPS[7])
    return Report(
        "Report on " + ", ".join(record.name for record in records),
        _subtitle(comparison, len(records)),
        (*(() if comparison is None else comparison.notes), *(() if draw else (drawing.MISSING,))),
        (*results, learning, *rest, reproduction_section(records)),
        comparison,
    )


def write_report(report: Report, out: str | Path) -> list[Path]:
    """Writes `report.html`, `report.md`, `figures/*.svg` and, where runs were evaluated, `compare.csv`.

    Returns the files written, the page first.
    """
    folder = Path(out)
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    written = [folder / "report.html", folder / "report.md"]
    written[0].write_text(to_html(report), encoding="utf-8")
    written[1].write_text(to_markdown(report), encoding="utf-8")
    for one in report.figures():
        written.append(figures / f"{one.name}.svg")
        written[-1].write_text(one.plot.svg, encoding="utf-8")
    if report.comparison is not None:
        written.append(folder / "compare.csv")
        report.comparison.to_frame().to_csv(written[-1], index=False)
    return written


def _metrics(metric: str) -> tuple[str, ...]:
    """The chosen metric, then those that stand beside it."""
    chosen = parse_measures([metric])[metric]
    return (metric, *(name for name, measure in parse_measures(_TABLE).items() if measure != chosen))


def _judgements(
    records: Sequence[RunRecord], qrels: str | Path | None, split: str
) -> tuple[Qrels | None, str]:
    """The judgements of the runs (`compare_runs` holds them together), or why nothing can be evaluated."""
    if all(record.stored is None for record in records):
        return None, "; ".join(record.no_scores for record in records)
    if qrels is not None:
        return read_qrels(qrels), ""
    for record in records:
        if record.stored is not None and record.stored.qrels is not None:
            return record.stored.qrels, ""
    lacking = ", ".join(
        str(one.path / f"{split}.qrels") if one.path.is_dir() else str(one.path)
        for one in records
        if one.stored is not None
    )
    return None, f"there are no judgements ({lacking}); --qrels names a file of them"


def _subtitle(comparison: Comparison | None, runs: int) -> str:
    count = "1 run" if runs == 1 else f"{runs} runs"
    return count if comparison is None else f"{count}, {wording.where(comparison)}"


def _results(comparison: Comparison, records: Sequence[RunRecord], draw: bool) -> Section:
    blocks: list[Block] = [
        Missing(f"{record.name} is not in the table: {record.no_scores}.")
        for record in records
        if record.stored is None
    ]
    blocks.append(Results(comparison))
    blocks += [Paragraph(text) for text in wording.method(comparison)]
    if draw and len(comparison.systems) > 1:
        blocks += [Figure(f"results-{i}", plot) for i, plot in enumerate(plots.draw(comparison), 1)]
    return Section("Results", tuple(blocks))


def _evaluated_sections(
    comparison: Comparison,
    records: Sequence[RunRecord],
    judged: Qrels,
    times: Latency | None,
    examples: int,
    tokenizer: ShortTextTokenizer | None,
    draw: bool,
    split: str,
    progress: Callable[[str], None],
) -> list[Section]:
    """What needs scores and judgements: kinds of lists, calibration, latency, differences, hard lists."""
    metric = comparison.metrics[0]
    evaluated = [(record, record.stored) for record in records if record.stored is not None]
    first, first_run = evaluated[0]
    stored: list[StoredRun] = [run for _, run in evaluated]
    progress(STEPS[3])
    texts = read_texts_of(stored, set(judged))
    no_texts = f"no run holds the texts ({split}_lists.parquet is missing)."
    if any(run.lists is not None for run in stored):
        no_texts = f"the runs' {split}_lists.parquet holds none of the judged queries."
    values = pd.DataFrame({one.name: comparison.per_query[one.name, metric] for one in comparison.systems})
    sections = [breakdown_section(first_run.scores, judged, texts, values, metric, draw, tokenizer, no_texts)]
    progress(STEPS[4])
    sections.append(calibration_section([record for record, _ in evaluated], judged, draw))
    progress(STEPS[5])
    if times is None:
        text = "No latency results were given: --latency names the file that make bench-latency writes."
        sections.append(Section("Latency and accuracy", (Missing(text),)))
    else:
        results = {system.name: system.metrics[metric] for system in comparison.systems}
        items = median(len(scores) for query, scores in first_run.scores.items() if query in judged)
        sections.append(latency_section(records, results, metric, times, items, draw))
    progress(STEPS[6])
    if len(comparison.systems) > 1 and examples:
        blocks: tuple[Block, ...] = (Differences(comparison),)
        if not comparison.examples:
            blocks = (Paragraph(f"No list has a different {metric} in two runs."),)
        sections.append(Section("Where the rankings differ most", blocks))
    if examples:
        sections.append(_hardest(first, first_run, judged, comparison, texts, examples))
    return sections


def _hardest(
    record: RunRecord, run: StoredRun, judged: Qrels, comparison: Comparison, texts: Texts, count: int
) -> Section:
    metric = comparison.metrics[0]
    hard = hardest_lists(run.scores, judged, comparison.per_query[record.name, metric], texts, count)
    text = (
        f"The lists with the lowest {metric}, among equals those whose first relevant item is furthest down. Lists "
        "without a relevant candidate are left out."
    )
    blocks: tuple[Block, ...] = (Paragraph(text), HardLists(metric, hard))
    if not hard:
        blocks = (Missing("No list has a relevant candidate."),)
    return Section(f"Hardest lists of {record.name}", blocks)
