"""The sections of a report: the numbers of each, for `templates/report.jinja`, which holds what is said about them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crossjem_pl import losses
from crossjem_pl.evaluation import charts
from crossjem_pl.evaluation.charts import Plot
from crossjem_pl.evaluation.comparison import TIE, Comparison
from crossjem_pl.evaluation.metrics import rank_items
from crossjem_pl.evaluation.page import p_value, parameters, training_time
from crossjem_pl.evaluation.runs import Run, Texts
from crossjem_pl.evaluation.significance import bootstrap_interval
from crossjem_pl.text import ShortTextTokenizer

__all__ = [
    "Section",
    "break_down",
    "calibrate",
    "calibration",
    "differing",
    "hardest",
    "kinds_of_lists",
    "learning",
    "reproduction",
    "results",
    "results_table",
]

_TOP = 5
"""Items of each ranking that an example shows, as many as the tables of the CROSS-JEM paper."""


class Section(NamedTuple):
    """A part of a report: its title, which part of the template prints it, and what is printed."""

    title: str
    kind: str
    data: dict[str, Any]
    plots: dict[str, Plot]


def results_table(comparison: Comparison) -> pd.DataFrame:
    """One row of texts per system: metrics with intervals, differences and p-values, parameters, training time."""
    rows, tested = [], len(comparison.runs) > 1
    for name, run in comparison.runs.items():
        row = {"System": f"{name} (baseline)" if tested and name == comparison.baseline else name}
        for metric in comparison.metrics:
            result: Any = comparison.results.loc[(metric, name)]
            spread = "" if np.isnan(result["sd"]) else f" ± {result['sd']:.4f}"
            row[f"{metric} [95% CI]"] = _estimate(result) + spread
            cells = ["–"] * 3
            if name in comparison.others:
                mark = "*" if result["p randomisation holm"] < 0.05 else ""
                mark += "≈" if result["p level holm"] < 0.05 else ""
                figures = result[["difference", "difference low", "difference high"]]
                p = [p_value(result[f"p {test} holm"]) for test in ("randomisation", "t")]
                cells = ["{:+.4f}{mark} [{:+.4f}, {:+.4f}]".format(*figures, mark=mark), "{} ({})".format(*p)]
                cells.append("/".join(f"{result[column]:.0f}" for column in ("wins", "ties", "losses")))
            columns = (f"Δ {metric} [95% CI]", f"p {metric} (t-test)", f"win/tie/loss {metric}")
            row |= dict(zip(columns, cells, strict=True)) if tested else {}
        row["Parameters"] = parameters(run.summary.get("parameters"))
        row["Training"] = training_time(run.summary.get("train_seconds"))
        rows.append(row)
    return pd.DataFrame(rows)


def results(comparison: Comparison, missing: Sequence[str] = ()) -> Section:
    """The table, and the means with their intervals."""
    data: dict[str, Any] = {"table": results_table(comparison), "missing": missing}
    data["margin"] = comparison.margin if comparison.others else None
    plots = {}
    if comparison.others:
        plots = _plot("results", charts.draw_groups, "Mean and 95% interval", "metric", comparison.results)
    return Section("Results", "results", data, plots)


def differing(comparison: Comparison, texts: Callable[[set[str]], Texts], count: int) -> Section:
    """For each system the lists on which it gains most on the baseline, and those on which it loses most.

    Args:
        comparison: of two systems at least.
        texts: gives the texts of some queries.
        count: lists of each kind.
    """
    chosen: dict[str, list[str]] = {}
    metric, baseline, runs = comparison.metrics[0], comparison.baseline, comparison.runs
    values = comparison.values(metric)
    for name in comparison.others:
        both = [q for q in values.index if q in runs[name].scores and q in runs[baseline].scores]
        ordered = (values[name] - values[baseline])[both].sort_values(ascending=False, kind="stable")
        gains, lost = ordered[ordered > TIE].index[:count], ordered[ordered < -TIE].index[::-1][:count]
        if len(gains) or len(lost):
            chosen[name] = [str(query) for query in (*gains, *lost)]
    found = texts({query for queries in chosen.values() for query in queries})
    examples = {
        name: [_example(comparison, found, query, (name, baseline)) for query in queries]
        for name, queries in chosen.items()
    }
    data = {"metric": metric, "baseline": baseline, "examples": examples}
    return Section("Where the rankings differ most", "differing", data, {})


def hardest(comparison: Comparison, texts: Texts, count: int) -> Section:
    """The lists with the lowest metric, among equals those whose first relevant item is furthest down."""
    (system, run), metric = next(iter(comparison.runs.items())), comparison.metrics[0]
    values, first = comparison.per_query[system, metric].dropna(), {}
    for query, scores in run.scores.items():
        relevant = [_is_relevant(comparison, query, item) for item in rank_items(scores)]
        if query in values.index and any(relevant):  # no ranking of the other lists is better than another
            first[query] = relevant.index(True)
    chosen = sorted(first, key=lambda query: (float(values[query]), -first[query], query))[:count]
    examples = [_example(comparison, texts, query, [system], until_relevant=True) for query in chosen]
    return Section(f"Hardest lists of {system}", "hardest", {"metric": metric, "examples": examples}, {})


def _example(
    comparison: Comparison, texts: Texts, query: str, names: Sequence[str], until_relevant: bool = False
) -> dict[str, Any]:
    """A list as some systems rank it: their first items by rank, or also the first relevant one."""
    query_texts, item_texts = texts
    sides: list[dict[str, Any]] = []
    for name in names:
        ranking: dict[int, dict[str, Any]] = {}
        seen = False
        for rank, item in enumerate(rank_items(comparison.runs[name].scores[query]), 1):
            relevant = _is_relevant(comparison, query, item)
            if rank <= _TOP or (until_relevant and relevant and not seen):
                label, grade = item_texts.get(query, {}).get(item, item), comparison.qrels[query].get(item, 0)
                ranking[rank] = {"item": item, "label": label, "grade": grade, "relevant": relevant}
            seen = seen or relevant
        value = comparison.per_query[name, comparison.metrics[0]][query]
        sides.append({"system": name, "value": value, "ranking": ranking})
    candidates = comparison.runs[names[0]].scores[query]
    return {
        "query": query,
        "title": query_texts.get(query, f"query {query}"),
        "relevant": sum(_is_relevant(comparison, query, item) for item in candidates),
        "candidates": len(candidates),
        "sides": sides,
        "ranks": sorted(set().union(*(side["ranking"] for side in sides))),
    }


def _is_relevant(comparison: Comparison, query: str, item: str) -> bool:
    return comparison.qrels.get(query, {}).get(item, 0) >= comparison.relevant_from


def learning(runs: Sequence[Run], metric: str) -> Section:
    """Training losses and monitored metrics against steps, and where the best validation was.

    Losses of one class share a plot; losses of different classes have different scales and get one each. Of several
    runs `metric` is drawn, of one run all metrics.
    """
    trained = [(run, run.curve) for run in runs if run.curve is not None]
    losses_of: dict[str, dict[str, pd.Series]] = {}
    rows: list[dict[str, str]] = []
    plots: dict[str, Plot] = {}
    monitored = {name for _, curve in trained for name in curve.metrics}
    for run, curve in trained:
        if curve.loss is not None:
            losses_of.setdefault(run.loss or f"of {run.name}", {})[run.name] = curve.loss
        lines = [line for line in (curve.loss, *curve.metrics.values()) if line is not None]
        row = {"Run": run.name, "Loss": run.loss or "–"}
        row["Steps"] = f"{max(int(line.index[-1]) + 1 for line in lines):,}"
        row["Validations"] = f"{max(map(len, curve.metrics.values()), default=0):,}"
        for name in sorted(monitored, key=lambda name: (name != metric, name)):  # the chosen one first
            best = curve.metrics.get(name)
            at = "–" if best is None else f"{best.max():.4f} ({int(best.index[int(best.argmax())]) + 1:,})"
            row[f"Best {name} (step)"] = at
        rows.append(row)
    for number, (loss, curves) in enumerate(losses_of.items(), 1):
        title, axis = f"Training loss {loss}", ("training step", "training loss")
        plots |= _plot(f"training-loss-{number}", charts.draw_lines, title, axis, curves, smooth=True)
    title = f"Validation {metric}"
    validations = {run.name: curve.metrics[metric] for run, curve in trained if metric in curve.metrics}
    if len(trained) == 1:
        title, validations = f"Validation, {trained[0][0].name}", trained[0][1].metrics
    if validations:
        axis = ("training step", "validation metric")
        plots |= _plot("validation", charts.draw_lines, title, axis, validations)
    sizes = {run.name: run.setting("data", "batch_size") for run, _ in trained}
    differ = len(set(sizes.values()) - {None}) > 1
    data = {
        "without": [run for run in runs if run.curve is None],
        "table": pd.DataFrame(rows) if rows else None,
        "sizes": [f"{name} {size}" for name, size in sizes.items()] if differ else [],
        "restarted": {run.name: curve.files for run, curve in trained if len(curve.files) > 1},
    }
    return Section("Learning curves", "learning", data, plots)


def kinds_of_lists(comparison: Comparison, texts: Texts, tokenizer: ShortTextTokenizer | None) -> Section:
    """The metric by words of the query, overlap of the items, and, where they vary, items and relevant items."""
    metric, (query_texts, item_texts) = comparison.metrics[0], texts
    per_query = comparison.values(metric).dropna()
    lists = next(iter(comparison.runs.values())).scores
    judged = {query: items for query, items in lists.items() if query in comparison.qrels}

    def overlap(items: Mapping[str, str]) -> float:
        """Words (case ignored) or tokens of all items over distinct ones."""
        if tokenizer is None:
            words = [word for text in items.values() for word in text.casefold().split()]
            return len(words) / max(len(set(words)), 1)
        tokens = tokenizer.encode(list(items.values()), 1 << 30).tokens.values
        return len(tokens) / len(np.unique(tokens))

    unit = "words" if tokenizer is None else "tokens"
    properties: dict[str, dict[str, float]] = {
        "words of the query": {query: len(text.split()) for query, text in query_texts.items()},
        f"overlap of the items in {unit}": {query: overlap(items) for query, items in item_texts.items()},
        "items of the list": {query: len(items) for query, items in judged.items()},
        "relevant items in the list": {
            query: sum(_is_relevant(comparison, query, item) for item in items)
            for query, items in judged.items()
        },
    }
    plots: dict[str, Plot] = {}
    data: dict[str, Any] = {"texts": bool(query_texts), "unit": unit, "tables": {}, "left_out": {}}
    for title, every in properties.items():
        values = {query: value for query, value in every.items() if query in per_query.index}
        if len(set(values.values())) < 2:
            data["tables"] |= {title: None} if values else {}
            continue
        found = break_down(values, per_query)
        queries = found["queries"].groupby(level=0, sort=False).first()
        names = {group: f"{group}\n({count:,})" for group, count in queries.items()}
        drawn, name = found.rename(index=names, level=0), f"by-{title.replace(' ', '-')}"
        plots |= _plot(name, charts.draw_groups, f"{metric} by {title}", f"{title} (lists)", drawn)
        cells = found.apply(_estimate, axis=1).unstack(sort=False)
        cells.insert(0, "Lists", [f"{count:,}" for count in queries])
        data["tables"][title] = cells.rename_axis(index=title[0].upper() + title[1:]).reset_index()
        data["left_out"][title] = len(per_query) - int(queries.sum())
    return Section("On which lists", "groups", data, plots)


def break_down(values: Mapping[str, float], per_query: pd.DataFrame, *, most: int = 5) -> pd.DataFrame:
    """Splits the queries into up to `most` groups of about equal size by a property.

    Queries with one value stay together, so groups may be uneven, and fewer where there are fewer values.

    Args:
        values: query id -> the property, rounded to two decimals; queries of `per_query` that it lacks are left out.
        per_query: index query id, one column of metric values per system.
        most: groups.

    Returns:
        By ascending values, index (`group`, `system`): the system's `mean` with its interval's ends `low` and `high`,
        and the number of `queries`.
    """
    numbers = pd.Series(values, dtype=float).round(2).reindex(per_query.index).dropna()
    distinct = np.unique(numbers)
    cuts = np.quantile(numbers, np.arange(1, most) / most, method="lower")
    ends = np.unique(np.append(cuts, distinct[-1])) if len(distinct) > most else distinct
    form = "{:,.0f}" if (numbers == numbers.round()).all() else "{:.2f}"
    groups = {}
    # a group ends with the value at its cut
    for _, inside in numbers.groupby(np.searchsorted(ends, numbers)):
        label = "–".join(dict.fromkeys(form.format(value) for value in (inside.min(), inside.max())))
        rows = per_query.loc[inside.index]
        low, high = bootstrap_interval(rows)
        figures = {"mean": rows.mean(), "low": low, "high": high, "queries": len(rows)}
        groups[label] = pd.DataFrame(figures, index=per_query.columns)
    return pd.concat(groups, names=["group", "system"])


def calibration(comparison: Comparison) -> Section:
    """sigmoid(score) against the share of relevant items, and whether that was what training aimed at."""
    aims = {name: _aim(run) for name, run in comparison.runs.items()}
    data: dict[str, Any] = {"runs": comparison.runs, "aims": aims, "table": None}
    rows, lines, bins = [], {}, {}
    for name, run in comparison.runs.items():
        if aims[name] == "unfitted":
            continue
        judged = [(query, items) for query, items in run.scores.items() if query in comparison.qrels]
        scores = np.array([score for _, items in judged for score in items.values()])
        relevant = np.array([_is_relevant(comparison, query, i) for query, items in judged for i in items])
        # sigmoid(s) = (1 + tanh(s / 2)) / 2 overflows nowhere
        found = calibrate((1 + np.tanh(scores / 2)) / 2, relevant)
        error = np.average((found["predicted"] - found["observed"]).abs(), weights=found["items"])
        lines[f"{name}, ECE {error:.3f}"] = found.set_index("predicted")["observed"]
        answer = {"probability": "yes", "ranking": "no"}.get(aims[name], "not known")
        means = (error, np.average(found["predicted"], weights=found["items"]), relevant.mean())
        rows.append((name, answer, *(f"{mean:.4f}" for mean in means), f"{len(scores):,}"))
        bins[name] = found.rename(columns=str.capitalize)
    if not lines:
        return Section("Calibration", "calibration", data, {})
    columns = ["Run", "Trained as a probability", "ECE", "Mean predicted", "Share relevant", "Items"]
    data["table"] = pd.DataFrame(rows, columns=columns)
    forms = {"Bin": "{:d}", "Predicted": "{:.4f}", "Observed": "{:.4f}", "Items": "{:,d}"}
    every = pd.concat(bins, names=["Run", "Bin"]).rename(index=lambda i: i + 1, level=1).reset_index()
    data["bins"] = every.assign(**{name: every[name].map(form.format) for name, form in forms.items()})
    axis = ("predicted: sigmoid of the score", "observed: share relevant")
    plots = _plot("calibration", charts.draw_lines, "Calibration", axis, lines, diagonal=True)
    return Section("Calibration", "calibration", data, plots)


def calibrate(probabilities: NDArray[np.float64], relevant: NDArray[Any], bins: int = 10) -> pd.DataFrame:
    """Calibration in bins of equal mass (Nguyen and O'Connor, EMNLP 2015); torchmetrics has bins of equal width only.

    Equal probabilities share a bin, so there may be fewer bins and uneven ones.

    Args:
        probabilities: [items], in [0, 1].
        relevant: [items], 0 or 1.
        bins: at most.

    Returns:
        A row for each bin, ascending: mean `predicted` probability, `observed` share of relevant items, `items`.
    """
    frame = pd.DataFrame({"predicted": probabilities, "observed": relevant}).sort_values("predicted")
    marks = frame["predicted"].to_numpy()[np.arange(bins) * len(frame) // bins]
    found = frame.groupby(np.searchsorted(np.unique(marks), frame["predicted"], side="right"))
    return found.mean().assign(items=found.size()).reset_index(drop=True)


def _aim(run: Run) -> str:
    """What the training made of the scores, as the template explains it."""
    if run.summary.get("parameters") == 0:
        return "unfitted"
    if run.loss is None or not run.trained:
        return "unknown"
    known = {"BinaryCrossEntropy": "probability", "MeanSquaredError": "regression"}
    return known.get(run.loss) or ("ranking" if hasattr(losses, run.loss) else "foreign")


def reproduction(runs: Sequence[Run]) -> Section:
    """What every run's `summary.json` says, its configuration, and the command that repeats it."""
    settings = {run.name: pd.Series(run.summary, dtype=object) for run in runs if run.summary}
    table = pd.DataFrame(settings).drop(index="split_metrics", errors="ignore").fillna("–").map(str)
    commands = {}
    for run in (run for run in runs if run.config_text is not None):
        command = f"lightning {run.program} -c {shlex.quote(str(run.path / 'config.yaml'))}"
        commands[run.name] = f"{command} --trainer.default_root_dir {shlex.quote(f'{run.path}-again')}"
    packages = {
        name: metadata.version(name) for name in ("crossjem_pl", "torch", "lightning", "transformers")
    }
    versions = [f"{name} {version}" for name, version in packages.items()]
    data: dict[str, Any] = {"runs": runs, "commands": commands, "versions": versions}
    data["settings"] = None if table.empty else table.rename_axis(index="").reset_index()
    return Section("Reproduction", "reproduction", data, {})


def _plot(name: str, draw: Callable[..., Plot], *arguments: Any, **options: Any) -> dict[str, Plot]:
    """The plot, or nothing without matplotlib."""
    return {name: draw(*arguments, **options)} if charts.available() else {}


def _estimate(result: pd.Series) -> str:
    return "{:.4f} [{:.4f}, {:.4f}]".format(*result[["mean", "low", "high"]])
