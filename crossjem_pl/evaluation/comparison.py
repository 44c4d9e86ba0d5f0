"""Compares runs on the same lists: one table with significance, and the lists on which systems differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd

from crossjem_pl.data.trec import read_qrels
from crossjem_pl.evaluation.charts import Estimate
from crossjem_pl.evaluation.measures import Evaluation, evaluate_run, rank_items
from crossjem_pl.evaluation.metrics import parse_measures
from crossjem_pl.evaluation.page import Example, RankedItem, Ranking
from crossjem_pl.evaluation.runs import Run, Texts, read_run_folder, read_texts_of, relative, with_names
from crossjem_pl.evaluation.significance import (
    WinTieLoss,
    bootstrap_interval,
    equivalence_test,
    holm,
    randomisation_test,
    t_test,
    win_tie_loss,
)

__all__ = [
    "Comparison",
    "Difference",
    "MetricResult",
    "SystemResult",
    "compare_runs",
    "example",
]

Qrels = Mapping[str, Mapping[str, int]]

_TOP = 5
"""Items of each ranking that an example shows, as many as the tables of the CROSS-JEM paper."""


@dataclass(frozen=True)
class Difference(Estimate):
    """A system's mean minus the baseline's on one metric, over the same queries, with its 95% bootstrap interval.

    Args:
        p_randomisation, p_t: of the paired randomisation test and the paired t-test.
        p_level: of the test that the difference is within the margin to either side, `equivalence_test`.
        p_randomisation_holm, p_t_holm, p_level_holm: corrected over the systems that are compared with the baseline
            on this metric.
        counts: queries won, tied and lost.
    """

    p_randomisation: float
    p_t: float
    p_level: float
    p_randomisation_holm: float
    p_t_holm: float
    p_level_holm: float
    counts: WinTieLoss

    @property
    def significant(self) -> bool:
        """Whether the corrected p-value of the randomisation test is below 0.05."""
        return self.p_randomisation_holm < 0.05

    @property
    def level(self) -> bool:
        """Whether the corrected p-value of the equivalence test is below 0.05."""
        return self.p_level_holm < 0.05


@dataclass(frozen=True)
class MetricResult(Estimate):
    """Mean of one metric with its 95% bootstrap interval; `difference` is None for the baseline."""

    difference: Difference | None


@dataclass(frozen=True, slots=True)
class SystemResult:
    """One row of the table.

    Args:
        name: unique in the comparison.
        run: its scores, and what its folder tells about it.
        metrics: by metric name.
        missing: judged queries that the run does not hold; they count as 0.
        unjudged: queries of the run without judgements; they count nowhere.
    """

    name: str
    run: Run
    metrics: dict[str, MetricResult]
    missing: int
    unjudged: int

    @property
    def parameters(self) -> int | None:
        """Of the ranker; None where the run does not say."""
        return self.run.summary.get("parameters")

    @property
    def train_seconds(self) -> float | None:
        """Wall-clock time of the training; None where the run does not say."""
        return self.run.summary.get("train_seconds")


@dataclass(frozen=True)
class Comparison:
    """Systems on the same queries.

    Args:
        split: of the runs, or None where only run files are compared.
        metrics: names as given; the first one picks the examples and is drawn per query.
        baseline: name of the system that the others are compared with.
        margin: differences below it count as none in the equivalence test.
        relevant_from: lowest grade that is relevant.
        qrels: the judgements.
        systems: in the order given.
        per_query: index `query_id`, columns (system, metric).
        texts: of the queries and items, as far as the runs hold them.
        examples: system -> the lists it gains most on and those it loses most on, largest first.
        notes: what a reader must know before trusting the numbers.
    """

    split: str | None
    metrics: tuple[str, ...]
    baseline: str
    margin: float
    relevant_from: float
    qrels: Qrels
    systems: tuple[SystemResult, ...]
    per_query: pd.DataFrame
    texts: Texts
    examples: dict[str, tuple[Example, ...]]
    notes: tuple[str, ...]

    @property
    def others(self) -> tuple[SystemResult, ...]:
        """All systems but the baseline."""
        return tuple(system for system in self.systems if system.name != self.baseline)

    @property
    def lists(self) -> str:
        """Which queries the numbers are from, in words."""
        split = "" if self.split is None else f" of the {self.split} split"
        return f"{len(self.per_query):,} {'query' if len(self.per_query) == 1 else 'queries'}{split}"

    def values(self, metric: str) -> pd.DataFrame:
        """Values of one metric: index `query_id`, a column for each system."""
        return pd.DataFrame({system.name: self.per_query[system.name, metric] for system in self.systems})

    def to_frame(self) -> pd.DataFrame:
        """One row per system, all numbers unrounded: what `compare.csv` holds.

        A text that a spreadsheet would take for a formula is set behind an apostrophe.
        """
        return pd.DataFrame([self._row(system) for system in self.systems])

    def _row(self, system: SystemResult) -> dict[str, object]:
        row: dict[str, object] = {"system": system.name, "baseline": system.name == self.baseline}
        for name, metric in system.metrics.items():
            row |= {name: metric.mean, f"{name} low": metric.low, f"{name} high": metric.high}
            if found := metric.difference:
                row |= {f"{name} difference": found.mean}
                row |= {f"{name} difference {end}": getattr(found, end) for end in ("low", "high")}
                row |= {
                    f"{name} {key.replace('_', ' ')}": p for key, p in vars(found).items() if key[:2] == "p_"
                }
                row |= {f"{name} {key}": count for key, count in found.counts._asdict().items()}
        row |= {"queries": len(self.per_query), "missing queries": system.missing}
        row |= {
            "unjudged queries": system.unjudged,
            "margin": self.margin,
            "relevant from": self.relevant_from,
        }
        for key in ("parameters", "trained_lists", "train_seconds", "machine", "seed"):
            row[key.replace("_", " ")] = system.run.summary.get(key)
        row["path"] = relative(system.run.path)
        formula = ("=", "+", "-", "@", "\t", "\r")
        texts = {
            key: value for key, value in row.items() if isinstance(value, str) and value.startswith(formula)
        }
        return row | {key: f"'{value}" for key, value in texts.items()}


def compare_runs(
    runs: Sequence[str | Path | Run],
    baseline: str | None = None,
    names: Sequence[str] = ("RR@10", "AP@10"),
    qrels: str | Path | None = None,
    *,
    split: str = "val",
    allow_different: bool = False,
    examples: int = 3,
    margin: float = 0.01,
    relevant_from: float | None = None,
    all_texts: bool = False,
    seed: int = 0,
) -> Comparison:
    """Evaluates runs on the same judgements and tests their differences to a baseline.

    Args:
        runs: run folders (`<split>.trec`, `<split>.qrels`, and, where they exist, `<split>_lists.parquet` and
            `summary.json`), TREC run files, or what `read_run_folder` made of them.
        baseline: a system's name, its folder's name or its path; None takes the first run.
        names: ir-measures metrics; the first one picks the examples.
        qrels: judgements to use in place of the folders' own; needed when no run is a folder.
        split: which run of a folder.
        allow_different: accept runs over different queries or candidates. Means are over all judged queries
            then, and a query counts 0 for a run without it.
        examples: lists shown per system where it gains most on the baseline, and as many where it loses most.
        margin: of the equivalence test.
        relevant_from: lowest grade that is relevant; None takes what the run folders say, else 1.
        all_texts: whether the texts of all judged lists are read, and not those of the examples only.
        seed: of the randomisation test and the bootstrap.

    Raises:
        FileNotFoundError: for a missing run or split.
        ValueError: for no run, a run given twice, an unknown baseline or metric, no judgements or judgements
            that differ between folders, a malformed file, and for runs over different queries or candidates.
    """
    parse_measures(names)
    if not runs:
        raise ValueError("there is no run to compare")
    if examples < 0:
        raise ValueError(f"examples must be at least 0, got {examples}")
    stored = with_names(
        [run if isinstance(run, Run) else read_run_folder(run, split, curves=False) for run in runs]
    )
    for run in stored:
        if run.scores is None:
            there = ", ".join(sorted(file.name for file in run.path.glob("*.trec"))) or "none"
            raise FileNotFoundError(f"{run.path / f'{split}.trec'} is missing; runs of this folder: {there}")
    systems = {run.name: run for run in stored}
    chosen = _baseline(baseline, systems)
    judged = _judgements(stored) if qrels is None else read_qrels(qrels)
    lowest = _relevant_from(stored) if relevant_from is None else relevant_from
    if not allow_different:
        _check_same_lists(stored)
    evaluations = {
        name: evaluate_run(run.scores or {}, judged, names, relevant_from=lowest)
        for name, run in systems.items()
    }
    metrics = {name: _results(name, evaluations, chosen, margin, seed) for name in names}
    per_query = pd.concat({name: found.per_query for name, found in evaluations.items()}, axis=1)
    results = tuple(
        SystemResult(
            name,
            run,
            {metric: found[name] for metric, found in metrics.items()},
            len(evaluations[name].missing),
            len(evaluations[name].unjudged),
        )
        for name, run in systems.items()
    )
    comparison = Comparison(
        next((run.split for run in stored if run.split), None),
        tuple(names),
        chosen,
        margin,
        lowest,
        judged,
        results,
        per_query,
        ({}, {}),
        {},
        (),
    )
    picked = _differing(comparison, examples)
    wanted = set(judged) if all_texts else {query for queries in picked.values() for query in queries}
    comparison = replace(comparison, texts=read_texts_of(stored, wanted), notes=tuple(_notes(comparison)))
    shown = {
        name: tuple(example(comparison, query, (name, chosen)) for query in queries)
        for name, queries in picked.items()
    }
    return replace(comparison, examples=shown)


def example(
    comparison: Comparison, query: str, names: Sequence[str], until_relevant: bool = False
) -> Example:
    """A list as some systems rank it: their first items, or also the first relevant one."""
    query_texts, item_texts = comparison.texts
    grades, texts = comparison.qrels[query], item_texts.get(query, {})
    runs = {system.name: system.run.scores or {} for system in comparison.systems}
    values = comparison.values(comparison.metrics[0])

    def ranking(name: str) -> Ranking:
        items = [
            RankedItem(rank, item, texts.get(item), int(grade), grade >= comparison.relevant_from)
            for rank, item in enumerate(rank_items(runs[name][query]), 1)
            for grade in [grades.get(item, 0)]
        ]
        first = next((item for item in items[_TOP:] if item.relevant), None)
        more = until_relevant and first is not None and not any(item.relevant for item in items[:_TOP])
        return Ranking(
            name, float(values[name][query]), (*items[:_TOP], *([first] if first and more else []))
        )

    candidates = runs[names[0]][query]
    relevant = sum(grades.get(item, 0) >= comparison.relevant_from for item in candidates)
    return Example(query, query_texts.get(query), tuple(map(ranking, names)), relevant, len(candidates))


def _baseline(wanted: str | None, systems: Mapping[str, Run]) -> str:
    if wanted is None:
        return next(iter(systems))
    if wanted in systems:
        return wanted
    found = [
        name
        for name, run in systems.items()
        if wanted in (run.path.name, str(run.path)) or Path(wanted).resolve() == run.path.resolve()
    ]
    if len(found) != 1:
        problem = "names several systems" if found else "is none of the systems"
        raise ValueError(f"baseline {wanted!r} {problem}: {', '.join(systems)}")
    return found[0]


def _judgements(runs: Sequence[Run]) -> Qrels:
    judged = [(run.path, run.qrels) for run in runs if run.qrels is not None]
    if not judged:
        raise ValueError(f"no qrels: none are given, and neither {runs[0].path} nor another run holds any")
    first_path, first = judged[0]
    for path, other in judged[1:]:
        if other != first:
            query = next(q for q in sorted({*first, *other}) if other.get(q) != first.get(q))
            raise ValueError(
                f"{path} and {first_path} hold different judgements, first of query {query!r}; "
                "say with qrels which to use"
            )
    return first


def _relevant_from(runs: Sequence[Run]) -> float:
    told = {run.name: run.summary["relevant_from"] for run in runs if "relevant_from" in run.summary}
    if len(set(told.values())) > 1:
        lowest = ", ".join(f"{name} {value:g}" for name, value in told.items())
        raise ValueError(
            f"the runs differ in the lowest relevant grade ({lowest}); say with relevant_from which to use"
        )
    return next(iter(told.values()), 1)


def _check_same_lists(runs: Sequence[Run]) -> None:
    first = runs[0]
    ours = first.scores or {}
    for run in runs[1:]:
        theirs = run.scores or {}
        odd = sorted(ours.keys() ^ theirs.keys())
        if odd:
            holds, lacks = (first.name, run.name) if odd[0] in ours else (run.name, first.name)
            raise ValueError(
                f"{run.name!r} and {first.name!r} do not cover the same queries: {len(odd)} are in one only, "
                f"{odd[0]!r} is in {holds!r} and not in {lacks!r}. With allow_different it counts 0 there"
            )
        for query, scores in ours.items():
            items = sorted(scores.keys() ^ theirs[query].keys())
            if items:
                holds = first.name if items[0] in scores else run.name
                raise ValueError(
                    f"{run.name!r} and {first.name!r} do not rank the same candidates for query {query!r}: "
                    f"{len(items)} are in one only, {items[0]!r} is in {holds!r}. allow_different accepts it"
                )


def _results(
    metric: str, evaluations: Mapping[str, Evaluation], baseline: str, margin: float, seed: int
) -> dict[str, MetricResult]:
    """The result of each system on one metric, over the queries where it is defined for all of them."""
    names = list(evaluations)
    table = np.stack(
        [found.per_query[metric].to_numpy(dtype=np.float64) for found in evaluations.values()], axis=1
    )
    table = table[~np.isnan(table).any(axis=1)]
    if not len(table):
        raise ValueError(f"{metric} is not defined for any query")
    others = [name for name in names if name != baseline]
    columns = np.delete(table, names.index(baseline), axis=1) - table[:, [names.index(baseline)]]
    differences: dict[str, Difference] = {}
    if others:
        tests = (randomisation_test(columns, seed=seed), t_test(columns), equivalence_test(columns, margin))
        corrected = map(holm, tests)
        figures = (columns.mean(axis=0), *bootstrap_interval(columns, seed=seed), *tests, *corrected)
        keys = [one.name for one in fields(Difference)[:-1]]
        for i, name in enumerate(others):
            numbers = dict(zip(keys, (float(row[i]) for row in figures), strict=True))
            differences[name] = Difference(**numbers, counts=win_tie_loss(columns[:, i]))
    low, high = bootstrap_interval(table, seed=seed)
    return {
        name: MetricResult(float(table[:, i].mean()), float(low[i]), float(high[i]), differences.get(name))
        for i, name in enumerate(names)
    }


def _differing(comparison: Comparison, count: int) -> dict[str, list[str]]:
    """The queries with the largest gains, then those with the largest losses, of each system that has some."""
    chosen: dict[str, list[str]] = {}
    values = comparison.values(comparison.metrics[0])
    scores = {system.name: system.run.scores or {} for system in comparison.systems}
    for name in (system.name for system in comparison.others):
        both = [q for q in values.index if q in scores[name] and q in scores[comparison.baseline]]
        ordered = (values[name] - values[comparison.baseline])[both].sort_values(
            ascending=False, kind="stable"
        )
        gains, losses = ordered[ordered > 1e-9].index[:count], ordered[ordered < -1e-9].index[::-1][:count]
        if len(gains) or len(losses):
            chosen[name] = [str(query) for query in (*gains, *losses)]
    return chosen


def _notes(comparison: Comparison) -> Iterator[str]:
    """What a reader must know: queries that count as 0 or nowhere, and other traps."""
    qrels, systems, lowest = comparison.qrels, comparison.systems, comparison.relevant_from
    for system in systems:
        if system.missing:
            yield f"{system.name} lacks {system.missing:,} of the {len(qrels):,} judged queries; they count as 0."
        if system.unjudged:
            yield f"{system.name} ranks {system.unjudged:,} queries without judgements; left out."
    relevant = {(q, item) for q, grades in qrels.items() for item, grade in grades.items() if grade >= lowest}
    ranked = {(q, item) for one in systems for q, scores in (one.run.scores or {}).items() for item in scores}
    if outside := len(relevant - ranked):
        yield (
            f"{outside:,} of the {len(relevant):,} relevant items are in no run's lists. nDCG, AP and recall "
            "count them as not found, so their best possible mean is below 1."
        )
    if empty := len(qrels.keys() - {query for query, _ in relevant}):
        yield f"{empty:,} judged queries have no relevant item and count as 0 for every system."
    if lowest != 1:
        yield f"Relevant are grades of at least {lowest:g}."
    machines = sorted({str(machine) for one in systems if (machine := one.run.summary.get("machine"))})
    if len(machines) > 1:
        yield f"Training times are from different machines: {'; '.join(machines)}."
    for name in comparison.metrics:
        if undefined := int(comparison.values(name).isna().any(axis=1).sum()):
            yield f"{name} is not defined for {undefined:,} of the queries, which its figures leave out."
