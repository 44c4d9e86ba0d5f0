"""Reports of runs: `compare` is the table of several runs, `report` adds how they learned, cost and fail.

Here the numbers are put together; `templates/report.jinja` holds what a report says about them.
"""

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
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import crossjem_pl
from crossjem_pl import losses
from crossjem_pl.evaluation import charts
from crossjem_pl.evaluation.breakdown import break_down, calibrate, calibration_error, word_overlap
from crossjem_pl.evaluation.charts import Plot
from crossjem_pl.evaluation.comparison import TIE, Comparison, compare_runs
from crossjem_pl.evaluation.metrics import parse_measures, rank_items
from crossjem_pl.evaluation.page import p_value, parameters, render, training_time
from crossjem_pl.evaluation.runs import Run, Texts, read_run_folder, read_texts_of, with_names
from crossjem_pl.text import ShortTextTokenizer

__all__ = [
    "Report",
    "Section",
    "build_report",
    "compare",
    "comparison_report",
    "read_latency",
    "results_table",
    "write_report",
]

_TABLE = ("RR@10", "AP@10", "nDCG@10")
"""Metrics that stand beside the chosen one in the table."""

_TOP = 5
"""Items of each ranking that an example shows, as many as the tables of the CROSS-JEM paper."""


class Section(NamedTuple):
    """A part of a report: its title, which part of the template prints it, and what is printed."""

    title: str
    kind: str
    data: dict[str, Any]
    plots: dict[str, Plot]


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


def results_table(comparison: Comparison) -> pd.DataFrame:
    """One row of texts per system: metrics with intervals, differences and p-values, parameters, training time."""
    rows, tested = [], len(comparison.runs) > 1
    for name, run in comparison.runs.items():
        row = {"System": f"{name} (baseline)" if tested and name == comparison.baseline else name}
        for metric in comparison.metrics:
            result: Any = comparison.results.loc[(metric, name)]
            row[f"{metric} [95% CI]"] = _estimate(result)
            if tested:
                row |= {f"Δ {metric} [95% CI]": "–", f"p {metric} (t-test)": "–"}
                row[f"win/tie/loss {metric}"] = "–"
            if name in comparison.others:
                mark = "*" if result["p randomisation holm"] < 0.05 else ""
                mark += "≈" if result["p level holm"] < 0.05 else ""
                figures = result[["difference", "difference low", "difference high"]]
                row[f"Δ {metric} [95% CI]"] = "{:+.4f}{mark} [{:+.4f}, {:+.4f}]".format(*figures, mark=mark)
                p = [p_value(result[f"p {test} holm"]) for test in ("randomisation", "t")]
                row[f"p {metric} (t-test)"] = "{} ({})".format(*p)
                row[f"win/tie/loss {metric}"] = "/".join(
                    f"{result[c]:.0f}" for c in ("wins", "ties", "losses")
                )
        row["Parameters"] = parameters(run.summary.get("parameters"))
        row["Training"] = training_time(run.summary.get("train_seconds"))
        rows.append(row)
    return pd.DataFrame(rows)


def comparison_report(comparison: Comparison, examples: int = 3) -> Report:
    """The table, its charts and the lists on which systems differ most.

    Args:
        comparison: of `compare_runs`.
        examples: lists shown per system where it gains most on the baseline, and as many where it loses most.
    """
    systems = "1 system" if len(comparison.runs) == 1 else f"{len(comparison.runs)} systems"
    picked = _differing(comparison, examples)
    wanted = {query for queries in picked.values() for query in queries}
    texts = read_texts_of(list(comparison.runs.values()), wanted)
    sections = [_results(comparison), *([_differing_lists(comparison, picked, texts)] if picked else [])]
    lists = f"{systems} on {comparison.lists}"
    return Report("Comparison", lists, _notes(comparison), sections, comparison.to_frame())


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
    for ending in ("md", "html"):
        (folder / f"compare.{ending}").write_text(render(report, ending), encoding="utf-8")
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
    if examples < 0:
        raise ValueError(f"examples must be at least 0, got {examples}")
    times = None if latency is None else read_latency(latency)
    found = with_names([read_run_folder(path, split) for path in runs])
    for run in found:
        if not run.scores and run.curve is None and not run.config and not run.summary:
            files = f"{split}.trec, metrics.csv, config.yaml or summary.json"
            raise ValueError(f"{run.path}: there is nothing to report on: no {files}")
    missing = [f"{run.path / f'{split}.trec'} is missing" for run in found if not run.scores]
    evaluated = [run for run in found if run.scores]
    title, lists = (
        f"Report on {', '.join(run.name for run in found)}",
        f"{len(found)} run{'s' * (len(found) > 1)}",
    )
    learning, reproduction = _learning(found, metric), _reproduction(found)
    if not evaluated or (qrels is None and all(run.qrels is None for run in evaluated)):
        if evaluated:
            missing = ["there are no judgements; --qrels names a file of them"]
        results = Section("Results", "results", {"table": None, "missing": missing}, {})
        return Report(title, lists, _notes(None), [results, learning, reproduction], None)
    comparison = compare_runs(evaluated, names=names, qrels=qrels, **options)
    texts = read_texts_of(evaluated, comparison.qrels)
    sections = [_results(comparison, missing), learning, _kinds_of_lists(comparison, texts, tokenizer)]
    sections += [_calibration(comparison), _latency(comparison, times)]
    if examples and comparison.others:
        sections.append(_differing_lists(comparison, _differing(comparison, examples), texts))
    if examples:
        sections.append(_hardest(comparison, examples, texts))
    lists = f"{lists}, {comparison.lists}"
    return Report(title, lists, _notes(comparison), [*sections, reproduction], comparison.to_frame())


def write_report(report: Report, out: str | Path) -> list[Path]:
    """Writes `report.html`, `report.md`, `figures/*.svg` and, where runs were evaluated, `compare.csv`.

    Returns the files written, the page first.
    """
    folder = Path(out)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    texts = {"report.html": render(report, "html"), "report.md": render(report, "md", "figures")}
    texts |= {f"figures/{name}.svg": plot.svg for name, plot in report.plots.items()}
    if report.results is not None:
        texts["compare.csv"] = report.results.to_csv(index=False)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _notes(comparison: Comparison | None) -> list[str]:
    return (comparison.notes if comparison else []) + ([] if charts.available() else [charts.MISSING])


def _plot(name: str, draw: Callable[..., Plot], *arguments: Any, **options: Any) -> dict[str, Plot]:
    """The plot, or nothing without matplotlib."""
    return {name: draw(*arguments, **options)} if charts.available() else {}


def _estimate(result: pd.Series) -> str:
    return "{:.4f} [{:.4f}, {:.4f}]".format(*result[["mean", "low", "high"]])


def _results(comparison: Comparison, missing: Sequence[str] = ()) -> Section:
    """The table, the means with their intervals, the metric against costs, and its differences per query."""
    data: dict[str, Any] = {"table": results_table(comparison), "missing": missing, "margin": None}
    if not comparison.others:
        return Section("Results", "results", data, {})
    metric, results = comparison.metrics[0], comparison.results
    plots = _plot("results", charts.draw_groups, "Mean and 95% interval", "metric", results)
    costs = {"parameters": ("parameters", parameters), "training time": ("train_seconds", training_time)}
    for cost, (key, form) in costs.items():
        values = {name: float(run.summary.get(key) or 0) for name, run in comparison.runs.items()}
        points = results.loc[metric].assign(cost=pd.Series(values))
        left_out, points = [name for name, value in values.items() if not value], points[points["cost"] > 0]
        if len(points) > 1:
            name = f"results-{cost.split()[0]}"
            plots |= _plot(name, charts.draw_costs, metric, cost, points, form, left_out)
    table = comparison.values(metric).dropna()
    for number, name in enumerate(comparison.others, 1):
        pair, differences = (name, comparison.baseline), table[name] - table[comparison.baseline]
        plots |= _plot(f"differences-{number}", charts.draw_differences, metric, *pair, differences)
    return Section("Results", "results", data | {"margin": comparison.margin}, plots)


def _example(
    comparison: Comparison, texts: Texts, query: str, names: Sequence[str], until_relevant: bool = False
) -> dict[str, Any]:
    """A list as some systems rank it: their first items by rank, or also the first relevant one."""
    query_texts, item_texts = texts
    grades, lowest = comparison.qrels[query], comparison.relevant_from
    sides: list[dict[str, Any]] = []
    for name in names:
        ranking: dict[int, dict[str, Any]] = {}
        for rank, item in enumerate(rank_items(comparison.runs[name].scores[query]), 1):
            relevant = grades.get(item, 0) >= lowest
            seen = any(one["relevant"] for one in ranking.values())
            if rank <= _TOP or (until_relevant and relevant and not seen):
                label = item_texts.get(query, {}).get(item, item)
                ranking[rank] = {
                    "item": item,
                    "label": label,
                    "grade": grades.get(item, 0),
                    "relevant": relevant,
                }
        value = comparison.per_query[name, comparison.metrics[0]][query]
        sides.append({"system": name, "value": value, "ranking": ranking})
    candidates = comparison.runs[names[0]].scores[query]
    return {
        "query": query,
        "title": query_texts.get(query, f"query {query}"),
        "relevant": sum(grades.get(item, 0) >= lowest for item in candidates),
        "candidates": len(candidates),
        "sides": sides,
        "ranks": sorted(set().union(*(side["ranking"] for side in sides))),
    }


def _differing(comparison: Comparison, count: int) -> dict[str, list[str]]:
    """The queries with the largest gains, then those with the largest losses, of each system that has some."""
    chosen: dict[str, list[str]] = {}
    values, runs = comparison.values(comparison.metrics[0]), comparison.runs
    for name in comparison.others:
        both = [q for q in values.index if q in runs[name].scores and q in runs[comparison.baseline].scores]
        differences = (values[name] - values[comparison.baseline])[both]
        ordered = differences.sort_values(ascending=False, kind="stable")
        gains, losses = ordered[ordered > TIE].index[:count], ordered[ordered < -TIE].index[::-1][:count]
        if len(gains) or len(losses):
            chosen[name] = [str(query) for query in (*gains, *losses)]
    return chosen


def _differing_lists(comparison: Comparison, picked: Mapping[str, Sequence[str]], texts: Texts) -> Section:
    examples = {
        name: [_example(comparison, texts, query, (name, comparison.baseline)) for query in queries]
        for name, queries in picked.items()
    }
    data = {"metric": comparison.metrics[0], "baseline": comparison.baseline, "examples": examples}
    return Section("Where the rankings differ most", "differing", data, {})


def _hardest(comparison: Comparison, count: int, texts: Texts) -> Section:
    """The lists with the lowest metric, among equals those whose first relevant item is furthest down."""
    (system, run), metric = next(iter(comparison.runs.items())), comparison.metrics[0]
    values, first = comparison.per_query[system, metric].dropna(), {}
    for query, scores in run.scores.items():
        grades = comparison.qrels.get(query, {})
        relevant = [grades.get(item, 0) >= comparison.relevant_from for item in rank_items(scores)]
        if query in values.index and any(relevant):  # no ranking of the other lists is better than another
            first[query] = relevant.index(True)
    hardest = sorted(first, key=lambda query: (float(values[query]), -first[query], query))[:count]
    examples = [_example(comparison, texts, query, [system], until_relevant=True) for query in hardest]
    return Section(f"Hardest lists of {system}", "hardest", {"metric": metric, "examples": examples}, {})


def _learning(runs: Sequence[Run], metric: str) -> Section:
    """Training losses and monitored metrics against steps, and where the best validation was.

    Losses of one class share a plot; losses of different classes have different scales and get one each. Of several
    runs `metric` is drawn, of one run all metrics.
    """
    trained = [(run, run.curve) for run in runs if run.curve is not None]
    losses_of: dict[str, dict[str, pd.Series]] = {}
    for run, curve in trained:
        if curve.loss is not None:
            losses_of.setdefault(run.loss or f"of {run.name}", {})[run.name] = curve.loss
    plots: dict[str, Plot] = {}
    for number, (loss, curves) in enumerate(losses_of.items(), 1):
        title, axis = f"Training loss {loss}", ("training step", "training loss")
        plots |= _plot(f"training-loss-{number}", charts.draw_lines, title, axis, curves, smooth=True)
    title = f"Validation {metric}"
    lines = {run.name: curve.metrics[metric] for run, curve in trained if metric in curve.metrics}
    if len(trained) == 1:
        title, lines = f"Validation, {trained[0][0].name}", trained[0][1].metrics
    if lines:
        axis = ("training step", "validation metric")
        plots |= _plot("validation", charts.draw_lines, title, axis, lines)
    monitored = dict.fromkeys(name for _, curve in trained for name in curve.metrics)
    rows = []
    for run, curve in trained:
        steps = [
            int(line.index[-1]) + 1 for line in (curve.loss, *curve.metrics.values()) if line is not None
        ]
        validations = max(map(len, curve.metrics.values()), default=0)
        row = {"Run": run.name, "Loss": run.loss or "–", "Steps": f"{max(steps):,}"}
        row["Validations"] = f"{validations:,}"
        for name in sorted(monitored, key=lambda name: name != metric):  # the chosen one first
            line = curve.metrics.get(name)
            best = "–" if line is None else f"{line.max():.4f} ({int(line.index[int(line.argmax())]) + 1:,})"
            row[f"Best {name} (step)"] = best
        rows.append(row)
    sizes = {run.name: run.setting("data", "batch_size") for run, _ in trained}
    differ = len(set(sizes.values()) - {None}) > 1
    data = {
        "without": [run for run in runs if run.curve is None],
        "table": pd.DataFrame(rows) if rows else None,
        "sizes": [f"{name} {size}" for name, size in sizes.items()] if differ else [],
        "restarted": {run.name: curve.files for run, curve in trained if len(curve.files) > 1},
    }
    return Section("Learning curves", "learning", data, plots)


def _kinds_of_lists(comparison: Comparison, texts: Texts, tokenizer: ShortTextTokenizer | None) -> Section:
    """The metric by words of the query, overlap of the items, and, where they vary, items and relevant items."""
    metric, lowest, qrels = comparison.metrics[0], comparison.relevant_from, comparison.qrels
    per_query = comparison.values(metric).dropna()
    first = next(iter(comparison.runs.values())).scores
    scores = {query: items for query, items in first.items() if query in qrels}
    query_texts, item_texts = texts

    def overlap(items: Mapping[str, str]) -> float:
        if tokenizer is None:
            return word_overlap(list(items.values()))
        tokens = tokenizer.encode(list(items.values()), 1 << 30).tokens.values
        return len(tokens) / len(np.unique(tokens))

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
    plots: dict[str, Plot] = {}
    data: dict[str, Any] = {"texts": bool(query_texts), "unit": unit, "tables": {}, "left_out": {}}
    for title, values in properties.items():
        if len(set(values.values())) < 2:
            data["tables"] |= {title: None} if values else {}
            continue
        found = break_down(values, per_query)
        queries = found["queries"].groupby(level=0, sort=False).first()
        drawn = found.rename(
            index={group: f"{group}\n({count:,})" for group, count in queries.items()}, level=0
        )
        name = f"by-{title.replace(' ', '-')}"
        plots |= _plot(name, charts.draw_groups, f"{metric} by {title}", f"{title} (lists)", drawn)
        cells = found.apply(_estimate, axis=1).unstack(sort=False)
        cells.insert(0, "Lists", [f"{count:,}" for count in queries])
        data["tables"][title] = cells.rename_axis(index=title[0].upper() + title[1:]).reset_index()
        data["left_out"][title] = len(per_query) - int(queries.sum())
    return Section("On which lists", "groups", data, plots)


def _calibration(comparison: Comparison) -> Section:
    """sigmoid(score) against the share of relevant items, and whether that was what training aimed at."""
    aims = {name: _aim(run) for name, run in comparison.runs.items()}
    data: dict[str, Any] = {"runs": comparison.runs, "aims": aims, "table": None}
    rows, bins, lines = [], [], {}
    for name, run in comparison.runs.items():
        if aims[name] == "unfitted":
            continue
        pairs = [
            (score, comparison.qrels[query].get(item, 0) >= comparison.relevant_from)
            for query, items in run.scores.items()
            if query in comparison.qrels
            for item, score in items.items()
        ]
        scores, relevant = np.array(pairs, dtype=np.float64).T
        # sigmoid(s) = (1 + tanh(s / 2)) / 2 overflows nowhere
        found = calibrate((1 + np.tanh(scores / 2)) / 2, relevant)
        error = calibration_error(found)
        lines[f"{name}, ECE {error:.3f}"] = found.set_index("predicted")["observed"]
        answer = {"probability": "yes", "ranking": "no"}.get(aims[name], "not known")
        mean = np.average(found["predicted"], weights=found["items"])
        rows.append(
            (name, answer, f"{error:.4f}", f"{mean:.4f}", f"{relevant.mean():.4f}", f"{len(pairs):,}")
        )
        for i, one in enumerate(found.itertuples(), 1):
            bins.append((name, str(i), f"{one.predicted:.4f}", f"{one.observed:.4f}", f"{one.items:,}"))
    if not lines:
        return Section("Calibration", "calibration", data, {})
    columns = ["Run", "Trained as a probability", "ECE", "Mean predicted", "Share relevant", "Items"]
    data["table"] = pd.DataFrame(rows, columns=columns)
    data["bins"] = pd.DataFrame(bins, columns=["Run", "Bin", "Predicted", "Observed", "Items"])
    axis = ("predicted: sigmoid of the score", "observed: share relevant")
    plots = _plot("calibration", charts.draw_lines, "Calibration", axis, lines, diagonal=True)
    return Section("Calibration", "calibration", data, plots)


def _aim(run: Run) -> str:
    """What the training made of the scores, as the template explains it."""
    if run.summary.get("parameters") == 0:
        return "unfitted"
    if run.loss is None or not run.trained:
        return "unknown"
    known = {"BinaryCrossEntropy": "probability", "MeanSquaredError": "regression"}
    return known.get(run.loss) or ("ranking" if hasattr(losses, run.loss) else "foreign")


def read_latency(path: str | Path) -> dict[str, Any]:
    """Reads the JSON file of `make bench-latency`.

    Returns:
        Its content; `milliseconds` is number of items, ascending -> ranker -> one value per round.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: naming the file, for anything else than milliseconds above 0 for every size and ranker.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = {int(size): dict(times) for size, times in content["milliseconds"].items()}
        values = [float(v) for times in found.values() for name in times for v in times[name] or [math.nan]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path}: expected the field 'milliseconds' as make bench-latency writes it"
        ) from error
    if not values or min(found) < 1 or not all(0 < value < math.inf for value in values):
        raise ValueError(f"{path}, field 'milliseconds': expected numbers above 0 for every size and ranker")
    return content | {"milliseconds": dict(sorted(found.items()))}


def _latency(comparison: Comparison, latency: Mapping[str, Any] | None) -> Section:
    """The metric against the measured latency at the list size nearest to the runs'.

    A run's times are those of the ranker called like the run, else like its folder, else like its ranker.
    """
    title, metric = "Latency and accuracy", comparison.metrics[0]
    if latency is None:
        return Section(title, "latency", {"times": None}, {})
    times = latency["milliseconds"]
    rankers = list(dict.fromkeys(name for of_size in times.values() for name in of_size))
    matched: dict[str, str] = {}
    for name, run in comparison.runs.items():
        names = (name, run.label, run.summary.get("ranker"))
        matched |= next(({name: str(ranker)} for ranker in names if ranker in rankers), {})
    lists = next(iter(comparison.runs.values())).scores
    items = median(len(lists[query]) for query in lists if query in comparison.qrels)
    size = min(times, key=lambda one: abs(math.log(one / items)))
    costs = {name: median(times[size][ranker]) for name, ranker in matched.items() if ranker in times[size]}
    rounds = sorted({len(values) for values in times[size].values()})
    used = list(matched.values())
    data = {
        "times": latency,
        "table": None,
        "size": size,
        "length": items,
        "rounds": list(dict.fromkeys((rounds[0], rounds[-1]))),
        "untimed": [name for name in comparison.runs if name not in costs],
        "unmatched": [ranker for ranker in rankers if ranker not in used],
        "shared": [ranker for ranker in rankers if used.count(ranker) > 1],
    }
    if not costs:
        return Section(title, "latency", data, {})
    points = comparison.results.loc[metric].loc[list(costs)].assign(cost=pd.Series(costs))
    best, rows = charts.frontier(points), []
    for name, mean in zip(costs, points["mean"], strict=True):
        ranker = matched[name]
        row = {"Run": name, "Timed as": ranker, metric: f"{mean:.4f}"}
        row["On the frontier"] = "yes" if name in best else "no"
        for one, of_size in times.items():
            row[f"ms, {one:,} items"] = f"{median(of_size[ranker]):.1f}" if ranker in of_size else "–"
        rows.append(row)
    data["table"] = pd.DataFrame(rows)
    label = f"milliseconds for {size:,} items"
    plots = _plot("latency", charts.draw_costs, metric, label, points, "{:.3g}".format)
    return Section(title, "latency", data, plots)


def _reproduction(runs: Sequence[Run]) -> Section:
    """Machine, seed, versions, data and configuration of every run, and the command that repeats it."""
    folders = [run for run in runs if run.split is not None]
    data: dict[str, Any] = {"runs": runs, "settings": None, "commands": {}}
    if folders:
        settings = pd.DataFrame({run.name: _settings(run) for run in folders}, dtype=object).dropna(how="all")
        data["settings"] = settings.fillna("–").map(str).rename_axis(index="").reset_index()
        packages = ("torch", "lightning", "transformers", "ir-measures", "numpy")
        python = f"crossjem_pl {crossjem_pl.__version__} on Python {platform.python_version()}"
        data["versions"] = [python, *(f"{package} {metadata.version(package)}" for package in packages)]
    for run in folders:
        command = f"lightning {run.program} -c {shlex.quote(str(run.path / 'config.yaml'))}"
        again = shlex.quote(f"{run.path}-again")
        data["commands"][run.name] = f"{command} --trainer.default_root_dir {again}"
    return Section("Reproduction", "reproduction", data, {})


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
