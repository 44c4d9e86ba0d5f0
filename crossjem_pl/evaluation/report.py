"""Reports of runs: `compare` is the table of several runs, `report` adds how they learned, cost and fail."""

from __future__ import annotations

import json
import math
import platform
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

import crossjem_pl
from crossjem_pl import losses
from crossjem_pl.evaluation import charts
from crossjem_pl.evaluation.breakdown import Calibration, break_down, calibrate, word_overlap
from crossjem_pl.evaluation.comparison import Comparison, Difference, compare_runs, example
from crossjem_pl.evaluation.measures import rank_items
from crossjem_pl.evaluation.metrics import parse_measures
from crossjem_pl.evaluation.page import (
    Block,
    Code,
    Examples,
    Figure,
    Folded,
    Report,
    Section,
    Table,
    Text,
    p_value,
    parameters,
    render,
    training_time,
)
from crossjem_pl.evaluation.runs import Curve, Run, read_run_folder, with_names
from crossjem_pl.text import ShortTextTokenizer

__all__ = [
    "Latency",
    "build_report",
    "compare",
    "comparison_report",
    "read_latency",
    "results_table",
    "write_report",
]

_TABLE = ("RR@10", "AP@10", "nDCG@10")
"""Metrics that stand beside the chosen one in the table."""

_METHOD = (
    "Intervals are 95% bootstrap intervals over queries: they say how much the choice of queries matters, "
    "and nothing about training again with another seed.",
    "Differences are paired, query by query. p: two-sided randomisation test; in brackets the paired t-test. "
    "* marks a randomisation p below .05; ≈ marks systems that are level: two one-sided t-tests put the difference "
    "within {margin:g} to either side with p below .05. All p are Holm-corrected over the systems compared with the "
    "baseline on the same metric; the uncorrected ones are in compare.csv.",
    "Win/tie/loss: queries on which the system is better than, equal to and worse than the baseline.",
)


def results_table(comparison: Comparison) -> Table:
    """One row per system: metrics with intervals, differences and p-values, parameters, training time."""
    tested = len(comparison.systems) > 1
    columns, rows, strong = ["System"], [], set()
    for metric in comparison.metrics:
        columns.append(f"{metric} [95% CI]")
        columns += [f"Δ {metric} [95% CI]", "p (t-test)", "win/tie/loss"] if tested else []
    best = {name: max(one.metrics[name].mean for one in comparison.systems) for name in comparison.metrics}
    for number, system in enumerate(comparison.systems):
        cells = [
            f"{system.name} (baseline)" if tested and system.name == comparison.baseline else system.name
        ]
        for metric in comparison.metrics:
            result = system.metrics[metric]
            cells.append(str(result))
            if tested:
                strong |= {(number, len(cells) - 1)} if result.mean >= best[metric] else set()
                strong |= (
                    {(number, len(cells))} if result.difference and result.difference.significant else set()
                )
                cells += _difference(result.difference)
        rows.append((*cells, parameters(system.parameters), training_time(system.train_seconds)))
    return Table((*columns, "Parameters", "Training"), tuple(rows), strong=frozenset(strong))


def _difference(found: Difference | None) -> list[str]:
    if found is None:
        return ["–"] * 3
    mark = "*" * found.significant + "≈" * found.level
    return [
        f"{found.mean:+.4f}{mark} [{found.low:+.4f}, {found.high:+.4f}]",
        f"{p_value(found.p_randomisation_holm)} ({p_value(found.p_t_holm)})",
        "/".join(map(str, found.counts)),
    ]


def comparison_report(comparison: Comparison) -> Report:
    """The table, its charts and the lists on which systems differ most."""
    systems = "1 system" if len(comparison.systems) == 1 else f"{len(comparison.systems)} systems"
    sections = [_results(comparison)]
    if comparison.examples:
        sections.append(_differing_lists(comparison))
    title, lists = "Comparison", f"{systems} on {comparison.lists}"
    return Report(title, lists, _notes(comparison.notes), tuple(sections), comparison.to_frame())


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
    report, folder = comparison_report(comparison), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    comparison.to_frame().to_csv(folder / "compare.csv", index=False)
    (folder / "compare.md").write_text(render(report, "report.md"), encoding="utf-8")
    (folder / "compare.html").write_text(render(report, "report.html"), encoding="utf-8")
    return comparison


def build_report(
    runs: Sequence[str | Path],
    metric: str = "RR@10",
    *,
    qrels: str | Path | None = None,
    latency: str | Path | None = None,
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
        latency: JSON file of `make bench-latency`.
        examples: lists a system gains most on, as many that it loses most on, and as many hardest ones.
        tokenizer: counts the overlap of items in its tokens; None counts words.
        qrels, split, options: see `compare_runs`.

    Raises:
        FileNotFoundError: for a run, qrels or latency file that is not there.
        ValueError: for no run, a folder with nothing that a report could show, a malformed file, an unknown
            metric or baseline, and whatever `compare_runs` refuses.
    """
    chosen = parse_measures([metric])[metric]
    names = (metric, *(name for name, other in parse_measures(_TABLE).items() if other != chosen))
    if not runs:
        raise ValueError("there is no run to report on")
    times = None if latency is None else read_latency(latency)
    found = with_names([read_run_folder(path, split) for path in runs])
    for run in found:
        if run.scores is None and run.curve is None and not run.config and not run.summary:
            files = f"{split}.trec, metrics.csv, config.yaml or summary.json"
            raise ValueError(f"{run.path}: there is nothing to report on: no {files}")
    missing = [f"{run.path / f'{split}.trec'} is missing" for run in found if run.scores is None]
    evaluated = [run for run in found if run.scores is not None]
    title, count = f"Report on {', '.join(run.name for run in found)}", len(found)
    lists = f"{count} run{'s' * (count > 1)}"
    sections = [_learning(found, metric), _reproduction(found)]
    if not evaluated or (qrels is None and all(run.qrels is None for run in evaluated)):
        if evaluated:
            missing = ["there are no judgements; --qrels names a file of them"]
        text = f"No metrics, breakdowns and examples: {'; '.join(missing)}."
        results = Section("Results", (Text(text, True),))
        return Report(title, lists, _notes(()), (results, *sections), None)
    options |= {"names": names, "qrels": qrels, "examples": examples, "all_texts": True}
    comparison = compare_runs(evaluated, **options)
    rest = [_kinds_of_lists(comparison, tokenizer), _calibration(comparison), _latency(comparison, times)]
    if examples and comparison.others:
        rest.append(_differing_lists(comparison))
    if examples:
        rest.append(_hardest(comparison, examples))
    results = _results(comparison, [Text(f"Not in the table: {text}.", True) for text in missing])
    sections = [results, sections[0], *rest, sections[1]]
    lists, notes = f"{lists}, {comparison.lists}", _notes(comparison.notes)
    return Report(title, lists, notes, tuple(sections), comparison.to_frame())


def write_report(report: Report, out: str | Path) -> list[Path]:
    """Writes `report.html`, `report.md`, `figures/*.svg` and, where runs were evaluated, `compare.csv`.

    Returns the files written, the page first.
    """
    folder = Path(out)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    texts = {
        "report.html": render(report, "report.html"),
        "report.md": render(report, "report.md", "figures"),
    }
    texts |= {f"figures/{figure.name}.svg": figure.plot.svg for figure in report.figures()}
    if report.results is not None:
        texts["compare.csv"] = report.results.to_csv(index=False)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _notes(notes: Sequence[str]) -> tuple[str, ...]:
    return (*notes, *([] if charts.available() else [charts.MISSING]))


def _figure(name: str, draw: Callable[..., charts.Plot], *arguments: Any, **options: Any) -> list[Block]:
    """The plot, or nothing without matplotlib."""
    return [Figure(name, draw(*arguments, **options))] if charts.available() else []


def _results(comparison: Comparison, missing: Sequence[Block] = ()) -> Section:
    tested = len(comparison.systems) > 1
    blocks: list[Block] = [*missing, results_table(comparison)]
    blocks += [Text(text.format(margin=comparison.margin)) for text in (_METHOD if tested else _METHOD[:1])]
    if not tested:
        return Section("Results", tuple(blocks))
    systems, metric, means = comparison.systems, comparison.metrics[0], comparison.metrics
    estimates = {one.name: [one.metrics[name] for name in means] for one in systems}
    blocks += _figure("results", charts.draw_groups, "Mean and 95% interval", means, "metric", estimates)
    costs: dict[str, tuple[dict[str, float | None], Callable[[float], str]]] = {
        "parameters": ({one.name: one.parameters for one in systems}, parameters),
        "training time": ({one.name: one.train_seconds for one in systems}, training_time),
    }
    for cost, (values, form) in costs.items():
        points = {name: (float(value), estimates[name][0]) for name, value in values.items() if value}
        left_out = [name for name in values if name not in points]
        if len(points) > 1:
            name = f"results-{cost.split()[0]}"
            blocks += _figure(name, charts.draw_costs, metric, cost, points, form, left_out)
    table = comparison.values(metric).dropna()
    for number, one in enumerate(comparison.others, 1):
        pair = (one.name, comparison.baseline)
        differences = table[one.name] - table[comparison.baseline]
        blocks += _figure(f"differences-{number}", charts.draw_differences, metric, *pair, differences)
    return Section("Results", tuple(blocks))


def _differing_lists(comparison: Comparison) -> Section:
    metric = comparison.metrics[0]
    blocks: list[Block] = [
        Text(f"First items of the lists with the largest differences in {metric}; relevant items have a ✓.")
    ]
    if not comparison.examples:
        blocks = [Text(f"No list has a different {metric} in two runs.")]
    for name, examples in comparison.examples.items():
        blocks.append(Examples(f"{name} against {comparison.baseline}", metric, examples))
    return Section("Where the rankings differ most", tuple(blocks))


def _hardest(comparison: Comparison, count: int) -> Section:
    """The lists with the lowest metric, among equals those whose first relevant item is furthest down."""
    system, metric = comparison.systems[0], comparison.metrics[0]
    values, first = comparison.per_query[system.name, metric].dropna(), {}
    for query, scores in (system.run.scores or {}).items():
        grades = comparison.qrels.get(query, {})
        relevant = [grades.get(item, 0) >= comparison.relevant_from for item in rank_items(scores)]
        if query in values.index and any(relevant):  # no ranking of the other lists is better than another
            first[query] = relevant.index(True)
    hardest = sorted(first, key=lambda query: (float(values[query]), -first[query], query))[:count]
    text = (
        f"The lists with the lowest {metric}, among equals those whose first relevant item is furthest down. Lists "
        "without a relevant candidate are left out."
    )
    shown = tuple(example(comparison, query, [system.name], until_relevant=True) for query in hardest)
    return Section(f"Hardest lists of {system.name}", (Text(text), Examples("", metric, shown)))


def _learning(runs: Sequence[Run], metric: str) -> Section:
    """Training losses and monitored metrics against steps, and where the best validation was.

    Losses of one class share a plot; losses of different classes have different scales and get one each. Of several
    runs `metric` is drawn, of one run all metrics.
    """
    blocks: list[Block] = [
        Text(f"{run.name}: {run.path / 'metrics.csv'} is missing, so it has no curves.", True)
        if run.split
        else Text(f"{run.name} is a bare run file, which tells nothing of a training.", True)
        for run in runs
        if run.curve is None
    ]
    trained = [(run, run.curve) for run in runs if run.curve is not None]
    if not trained:
        return Section("Learning curves", tuple(blocks))
    losses_of: dict[str, dict[str, Curve]] = {}
    for run, curve in trained:
        if curve.loss is not None:
            losses_of.setdefault(run.loss or f"of {run.name}", {})[run.name] = curve.loss
    for number, (loss, curves) in enumerate(losses_of.items(), 1):
        title, axis = f"Training loss {loss}", ("training step", "training loss")
        blocks += _figure(f"training-loss-{number}", charts.draw_lines, title, axis, curves, smooth=True)
    title = f"Validation {metric}"
    lines = {run.name: curve.metrics[metric] for run, curve in trained if metric in curve.metrics}
    if len(trained) == 1:
        title, lines = f"Validation, {trained[0][0].name}", trained[0][1].metrics
    if lines:
        axis = ("training step", "validation metric")
        blocks += _figure("validation", charts.draw_lines, title, axis, lines)
    monitored = dict.fromkeys(name for _, curve in trained for name in curve.metrics)
    names = sorted(monitored, key=lambda name: name != metric)  # the chosen one first
    rows = []
    for run, curve in trained:
        steps = [int(one.steps[-1]) + 1 for one in (curve.loss, *curve.metrics.values()) if one is not None]
        validations = max((len(one.steps) for one in curve.metrics.values()), default=0)
        best = (curve.metrics[name].best if name in curve.metrics else "–" for name in names)
        rows.append((run.name, run.loss or "–", f"{max(steps):,}", f"{validations:,}", *best))
    columns = ("Run", "Loss", "Steps", "Validations", *(f"Best {name} (step)" for name in names))
    blocks.append(Table(columns, tuple(rows), words=(1,)))
    sizes = {run.name: run.setting("data", "batch_size") for run, _ in trained}
    text = (
        "Faint: the logged loss of single batches; strong: a moving mean over a twentieth of the points. Losses of "
        "different classes have different scales: compare the metrics, not the losses."
    )
    if len(set(sizes.values()) - {None}) > 1:
        lists = ", ".join(f"{name} {size}" for name, size in sizes.items())
        text += f" Steps differ in size: lists per step and process are {lists}."
    for run, curve in trained:
        if len(curve.files) > 1:
            files = ", ".join(curve.files)
            text += f" {run.name} was started {len(curve.files)} times: its curves are read from {files}."
    return Section("Learning curves", (*blocks, Text(text)))


def _kinds_of_lists(comparison: Comparison, tokenizer: ShortTextTokenizer | None) -> Section:
    """The metric by words of the query, overlap of the items, and, where they vary, items and relevant items."""
    metric, lowest = comparison.metrics[0], comparison.relevant_from
    per_query = comparison.values(metric).dropna()
    qrels, first = comparison.qrels, comparison.systems[0].run.scores or {}
    scores = {query: items for query, items in first.items() if query in qrels}
    query_texts, item_texts = comparison.texts

    def overlap(items: Mapping[str, str]) -> float:
        if tokenizer is None:
            return word_overlap(list(items.values()))
        values = tokenizer.encode(list(items.values()), 1 << 30).tokens.values
        return len(values) / len(np.unique(values))

    unit = "words" if tokenizer is None else "tokens"
    properties: dict[str, dict[str, float]] = {
        "words of the query": {query: len(text.split()) for query, text in query_texts.items()},
        f"overlap of the items in {unit}": {query: overlap(items) for query, items in item_texts.items()},
        "items of the list": {query: len(items) for query, items in scores.items()},
        "relevant items in the list": {
            query: sum(qrels[query].get(item, 0) >= lowest for item in items)
            for query, items in scores.items()
        },
    }
    figures: list[Block] = []
    blocks: list[Block] = []
    if not query_texts:
        blocks.append(
            Text("Not by words of the query and overlap of the items: no run holds the lists' texts.", True)
        )
    for title, values in properties.items():
        if len(set(values.values())) < 2:
            blocks += [Text(f"All lists have the same number of {title}.")] if values else []
            continue
        found = break_down(title, values, per_query, metric)
        labels = [f"{bucket.label}\n({bucket.queries:,})" for bucket in found.buckets]
        results = {name: [bucket.means[name] for bucket in found.buckets] for name in found.buckets[0].means}
        chart = (f"{metric} by {title}", labels, f"{title} (lists)", results)
        figures += _figure(f"by-{title.replace(' ', '-')}", charts.draw_groups, *chart)
        rows = tuple((b.label, f"{b.queries:,}", *map(str, b.means.values())) for b in found.buckets)
        blocks.append(Table((title[0].upper() + title[1:], "Lists", *results), rows))
        if found.left_out:
            text = f"{found.left_out:,} judged queries are not in it: no run holds their lists."
            blocks.append(Text(text, True))
    blocks.append(
        Text(
            f"Overlap is the number of {unit} in all items of a list over the number of distinct ones: 1 where nothing "
            "is shared. Lists are split into up to five groups of about equal size by the property. In brackets: 95% "
            "bootstrap intervals. Groups differ in more than the property, so a difference between groups is an "
            "observation and not an effect."
        )
    )
    return Section("On which lists", (*figures, *blocks))


def _calibration(comparison: Comparison) -> Section:
    """sigmoid(score) against the share of relevant items, and whether that was what training aimed at."""
    found: dict[str, Calibration] = {}
    rows, bins, reasons = [], [], []
    for system in comparison.systems:
        name, run = system.name, system.run
        if system.parameters == 0:
            reasons.append(Text(f"{name} has no parameters: its scores were never fitted to labels.", True))
            continue
        answer, reason = _what_scores_are(run)
        pairs = [
            (score, comparison.qrels[query].get(item, 0) >= comparison.relevant_from)
            for query, items in (run.scores or {}).items()
            if query in comparison.qrels
            for item, score in items.items()
        ]
        values = np.array(pairs, dtype=np.float64)
        # sigmoid(s) = (1 + tanh(s / 2)) / 2 overflows nowhere
        one = found[name] = calibrate((1 + np.tanh(values[:, 0] / 2)) / 2, values[:, 1])
        mean, share = np.average([one.predicted, one.observed], axis=1, weights=one.items)
        rows.append((name, answer, f"{one.error:.4f}", f"{mean:.4f}", f"{share:.4f}", f"{len(values):,}"))
        reasons.append(Text(f"{name}: {reason}."))
        for number, (predicted, observed, items) in enumerate(
            zip(one.predicted, one.observed, one.items, strict=True), 1
        ):
            bins.append((name, str(number), f"{predicted:.4f}", f"{observed:.4f}", f"{items:,}"))
    if not found:
        return Section("Calibration", tuple(reasons))
    lines = {
        f"{name}, ECE {one.error:.3f}": Curve(one.predicted, one.observed) for name, one in found.items()
    }
    axis = ("predicted: sigmoid of the score", "observed: share relevant")
    columns = ("Run", "Trained as a probability", "ECE", "Mean predicted", "Share relevant", "Items")
    explained = Text(
        "Predicted: sigmoid of the score. Observed: the share of relevant items; items that are not judged are not "
        "relevant. ECE: |predicted - observed|, averaged over ten bins of equal numbers of items (equal scores share a "
        "bin).",
        source=("Nguyen and O'Connor, EMNLP 2015", "https://aclanthology.org/D15-1182/"),
    )
    folded = Folded("The bins", (Table(("Run", "Bin", "Predicted", "Observed", "Items"), tuple(bins)),))
    figure = _figure("calibration", charts.draw_lines, "Calibration", axis, lines, diagonal=True)
    return Section("Calibration", (*figure, Table(columns, tuple(rows)), *reasons, explained, folded))


def _what_scores_are(run: Run) -> tuple[str, str]:
    """Whether sigmoid(score) was trained to be a probability ("yes", "no", "not known"), and the reason."""
    name = run.loss
    if name is None or not run.trained:
        return "not known", "it was not trained in this folder, so the loss behind its scores is not known"
    if name == "BinaryCrossEntropy":
        parts = ["trained with BinaryCrossEntropy: sigmoid(score) is meant to be a probability"]
        if run.setting("model", "targets") == "scores":
            parts.append("the targets were a teacher's scores, so the teacher's own miscalibration is in it")
        if isinstance(drawn := run.setting("data", "n_items"), int):
            parts.append(
                f"{drawn} items were drawn per list, a relevant one always among them, so relevant items were more "
                "frequent in training than in whole lists"
            )
        return "yes", "; ".join(parts)
    if name == "MeanSquaredError":
        return (
            "not known",
            f"trained with {name}: sigmoid(score) is a probability only if the targets were logits",
        )
    if not hasattr(losses, name):
        return "not known", f"its loss {name} is not one of this package: its scores may or may not be logits"
    return "no", (
        f"trained with {name}, which compares the items of a list with each other and leaves the level of the scores "
        "free: sigmoid(score) is not a probability, and the curve shows how wrong it would be to read it so"
    )


@dataclass(frozen=True)
class Latency:
    """Results of `make bench-latency`.

    Args:
        milliseconds: number of items -> ranker -> one value per round.
        machine, precision: on which and in which they were taken; None where the file does not say.
        warm: whether the texts were known to the token caches, likewise.
    """

    milliseconds: dict[int, dict[str, list[float]]]
    machine: str | None
    precision: str | None
    warm: bool | None


def read_latency(path: str | Path) -> Latency:
    """Reads the JSON file of `make bench-latency`.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: naming the file, for anything else than milliseconds above 0 for every size and ranker.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = {int(size): dict(times) for size, times in content["milliseconds"].items()}
        values = [
            float(value) for times in found.values() for name in times for value in times[name] or [math.nan]
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path}: expected the field 'milliseconds' as make bench-latency writes it"
        ) from error
    if not values or min(found) < 1 or not all(0 < value < math.inf for value in values):
        raise ValueError(f"{path}, field 'milliseconds': expected numbers above 0 for every size and ranker")
    return Latency(
        dict(sorted(found.items())), *(content.get(key) for key in ("machine", "precision", "warm"))
    )


def _latency(comparison: Comparison, latency: Latency | None) -> Section:
    """The metric against the measured latency at the list size nearest to the runs'.

    A run's times are those of the ranker called like the run, else like its folder, else like its ranker.
    """
    title, metric = "Latency and accuracy", comparison.metrics[0]
    if latency is None:
        text = "No latency results were given: --latency names the file that make bench-latency writes."
        return Section(title, (Text(text, True),))
    times = latency.milliseconds
    rankers = list(dict.fromkeys(name for of_size in times.values() for name in of_size))
    matched: dict[str, str] = {}
    for system in comparison.systems:
        names = (system.name, system.run.label, system.run.summary.get("ranker"))
        matched |= next(({system.name: str(name)} for name in names if name in rankers), {})
    lists = comparison.systems[0].run.scores or {}
    items = median(len(lists[query]) for query in lists if query in comparison.qrels)
    size = min(times, key=lambda one: abs(math.log(one / items)))
    results = {one.name: one.metrics[metric] for one in comparison.systems}
    points = {
        name: (median(times[size][ranker]), results[name])
        for name, ranker in matched.items()
        if ranker in times[size]
    }
    blocks: list[Block] = []
    if points:
        label = f"milliseconds for {size:,} items"
        blocks += _figure("latency", charts.draw_costs, metric, label, points, "{:.3g}".format)
        best = charts.frontier(points)
        rows = []
        for name, (_, result) in points.items():
            ranker, on_it = matched[name], "yes" if name in best else "no"
            cells = (f"{median(of[ranker]):.1f}" if ranker in of else "–" for of in times.values())
            rows.append((name, ranker, f"{result.mean:.4f}", on_it, *cells))
        columns = ("Run", "Timed as", metric, "On the frontier", *(f"ms, {one:,} items" for one in times))
        rounds = sorted({len(values) for values in times[size].values()})
        blocks.append(Table(columns, tuple(rows), words=(1,)))
        where = "".join(f", {part}" for part in (latency.machine, latency.precision) if part)
        caches = {
            True: "Token caches were warm. ",
            False: "Every list was new to the token caches. ",
            None: "",
        }
        blocks.append(
            Text(
                f"Medians of {' to '.join(map(str, dict.fromkeys((rounds[0], rounds[-1]))))} rounds{where}. "
                f"{caches[latency.warm]}Drawn at {size:,} items, the measured size nearest to the runs' lists "
                f"(median {items:,.0f} items). The line joins the systems that no other beats in both."
            )
        )
    alone = [one.name for one in comparison.systems if one.name not in points]
    left = [ranker for ranker in rankers if ranker not in matched.values()]
    if alone:
        blocks.append(
            Text(f"Not timed by name, folder or ranker at {size:,} items: {', '.join(alone)}.", True)
        )
    if left:
        blocks.append(Text(f"Timed, but none of the runs: {', '.join(left)}.", True))
    shared = [ranker for ranker in rankers if list(matched.values()).count(ranker) > 1]
    if shared:
        blocks.append(
            Text(
                f"Several runs share the times of {', '.join(shared)}: they were matched by ranker, and a benchmark of "
                "one configuration says little about another. A run folder called like the benchmark's ranker is "
                "matched with it alone.",
                True,
            )
        )
    return Section(title, tuple(blocks))


def _reproduction(runs: Sequence[Run]) -> Section:
    """Machine, seed, versions, data and configuration of every run, closed until they are asked for."""
    blocks: list[Block] = []
    for run in runs:
        files = {"config.yaml": run.config_text, "summary.json": run.summary}
        lacking = " and ".join(name for name, content in files.items() if not content)
        if run.split is None:
            blocks.append(Text(f"{run.name} is a bare run file: nothing is known of how it was made.", True))
        elif lacking:
            blocks.append(Text(f"{run.name}: {lacking} missing in {run.path}.", True))
    folders = [run for run in runs if run.split is not None]
    if folders:
        settings = pd.DataFrame({run.name: _settings(run) for run in folders}).dropna(how="all")
        rows = tuple(
            (str(row[0]), *("–" if value is None or value != value else str(value) for value in row[1:]))
            for row in settings.itertuples(name=None)
        )
        columns = ("", *(run.name for run in folders))
        packages = ("torch", "lightning", "transformers", "ir-measures", "numpy")
        versions = ", ".join(f"{package} {metadata.version(package)}" for package in packages)
        writer = (
            f"This report was written by crossjem_pl {crossjem_pl.__version__} on Python {platform.python_version()} "
            f"with {versions}; the runs may have been made with other versions."
        )
        table = Table(columns, rows, words=tuple(range(1, len(columns))))
        blocks.append(Folded("Settings, machine, versions and data", (table, Text(writer))))
    for run in folders:
        if run.config_text is not None:
            config = Code(run.config_text.rstrip(), "yaml")
            blocks.append(Folded(f"Configuration of {run.name}", (*_again(run), config)))
    return Section("Reproduction", tuple(blocks))


def _again(run: Run) -> list[Block]:
    """How to repeat the run with its configuration."""
    blocks: list[Block] = []
    program = "fit"
    if "verbose" in run.config:  # an option of validate and test only
        program = "validate" if run.split == "val" else "test"
        if run.trained:
            text = "This file was written by a later evaluation in the same folder, not by the training: loss, targets "
            blocks.append(Text(f"{text}and optimiser may be those of that command.", True))
    command = f"lightning {program} -c {shlex.quote(str(run.path / 'config.yaml'))}"
    again = f"{command} --trainer.default_root_dir {shlex.quote(f'{run.path}-again')}"
    return [*blocks, Text("To run it again, where the data lies at the same paths:"), Code(again, "text")]


def _settings(run: Run) -> dict[str, object]:
    summary, header = run.summary, (run.config_text or "").partition("\n")[0]
    count, package = summary.get("parameters"), run.model.get("crossjem_pl")
    return {
        "folder": str(run.path),
        "ranker": summary.get("ranker"),
        "encoder": run.setting("model", "ranker", "init_args", "encoder"),
        "started from": run.setting("model", "weights"),
        "loss": run.loss,
        "targets": run.setting("model", "targets"),
        "parameters": None if count is None else f"{count:,}",
        "seed": summary.get("seed", run.setting("seed_everything")),
        "trained lists": summary.get("trained_lists"),
        "training time": training_time(summary["train_seconds"]) if "train_seconds" in summary else None,
        **{key: summary.get(key) for key in ("machine", "precision", "processes")},
        **{f"data.{k}": run.setting("data", k) for k in ("root", "train", "val", "test", "teacher_scores")},
        "crossjem_pl": package.get("version") if isinstance(package, Mapping) else None,
        "lightning": header.partition("==")[2] or None if header.startswith("# lightning") else None,
        "transformers": run.model.get("transformers_version"),
    }
