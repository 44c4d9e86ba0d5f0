"""Compares runs on the same lists: a frame of systems and metrics with intervals and significance tests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from crossjem_pl.data.trec import read_qrels
from crossjem_pl.evaluation.metrics import Qrels, evaluate_run, parse_measures
from crossjem_pl.evaluation.runs import Run, read_run_folder, with_names
from crossjem_pl.evaluation.significance import (
    bootstrap_interval,
    equivalence_test,
    holm,
    randomisation_test,
    t_test,
)

__all__ = ["TIE", "Comparison", "compare_runs"]

TIE = 1e-9
"""Differences on a query within it count as none."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Comparison:
    """Systems on the same queries.

    Args:
        runs: system -> its scores, and what its folder tells about it; in the order given. Of a method with several
            seeds the first run.
        seeds: system -> its seeds (None: not known), several where runs of one method were grouped.
        split: of the runs, or None where only run files are compared.
        metrics: names as given; the first one picks the examples and is drawn per query.
        baseline: name of the system that the others are compared with.
        margin: differences below it count as none in the equivalence test.
        relevant_from: lowest grade that is relevant.
        qrels: the judgements.
        per_query: index `query_id`, columns (system, metric).
        results: index (metric, system): `mean` with the ends `low` and `high` of its 95% bootstrap interval, and `sd`,
            the standard deviation of the means of the seeds (NaN for one). With several systems also, NaN for the
            baseline: its `difference` to the baseline over the same queries with `difference low` and `difference
            high`; the p-values `p randomisation`, `p t` and `p level` (of the test that the difference is within the
            margin), each also corrected over the systems that are compared with the baseline on this metric
            (`... holm`); queries won, tied and lost (`wins`, `ties`, `losses`).
        missing: system -> judged queries that it (one of its seeds) does not hold; they count as 0.
        unjudged: system -> its queries without judgements; they count nowhere.
    """

    runs: dict[str, Run]
    split: str | None
    metrics: tuple[str, ...]
    baseline: str
    margin: float
    relevant_from: float
    qrels: Qrels
    per_query: pd.DataFrame
    results: pd.DataFrame
    missing: dict[str, int]
    unjudged: dict[str, int]
    seeds: dict[str, list[Any]]

    @property
    def others(self) -> list[str]:
        """All systems but the baseline."""
        return [name for name in self.runs if name != self.baseline]

    @property
    def lists(self) -> str:
        """Which queries the numbers are from, in words."""
        split = "" if self.split is None else f" of the {self.split} split"
        return f"{len(self.per_query):,} {'query' if len(self.per_query) == 1 else 'queries'}{split}"

    @property
    def notes(self) -> list[str]:
        """What a reader must know before trusting the numbers."""
        return list(_notes(self))

    def values(self, metric: str) -> pd.DataFrame:
        """Values of one metric: index `query_id`, a column for each system."""
        return pd.DataFrame({name: self.per_query[name, metric] for name in self.runs})

    def to_frame(self) -> pd.DataFrame:
        """One row per system, all numbers unrounded: what `compare.csv` holds.

        A text that a spreadsheet would take for a formula is set behind an apostrophe.
        """
        rows = []
        for name, run in self.runs.items():
            row: dict[str, object] = {"system": name, "baseline": name == self.baseline}
            for metric in self.metrics:
                figures: Any = self.results.loc[(metric, name)]
                row |= {f"{metric} {key}".removesuffix(" mean"): value for key, value in figures.items()}
            row |= {"seeds": " ".join(map(str, self.seeds[name])), "model": run.model}
            row |= {"queries": len(self.per_query), "missing queries": self.missing[name]}
            row |= {"unjudged queries": self.unjudged[name], "margin": self.margin}
            row["relevant from"] = self.relevant_from
            for key in ("parameters", "trained_lists", "train_seconds", "machine"):
                row[key.replace("_", " ")] = run.summary.get(key)
            row["path"] = os.path.relpath(run.path)  # says nothing of the machine's other folders
            rows.append(row)
        return pd.DataFrame(rows).map(
            lambda cell: f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
        )


def compare_runs(
    runs: Sequence[str | Path | Run],
    baseline: str | None = None,
    names: Sequence[str] = ("RR@10", "AP@10"),
    qrels: str | Path | None = None,
    *,
    split: str = "val",
    allow_different: bool = False,
    margin: float = 0.01,
    relevant_from: float | None = None,
    group_seeds: bool = False,
    seed: int = 0,
) -> Comparison:
    """Evaluates runs on the same judgements and tests their differences to a baseline.

    Args:
        runs: run folders (`<split>.trec`, `<split>.qrels`, and, where they exist, `<split>_lists.parquet` and
            `summary.json`), TREC run files, or what `read_run_folder` made of them.
        baseline: a system's name, its folder's name or its path; by default the first run.
        names: ir-measures metrics.
        qrels: judgements to use in place of the folders' own; needed when no run is a folder.
        split: which run of a folder.
        allow_different: accept runs over different queries or candidates. Means are over all judged queries
            then, and a query counts 0 for a run without it.
        margin: of the equivalence test.
        relevant_from: lowest grade that is relevant; by default what the run folders say, else 1.
        group_seeds: take run folders whose configurations differ in the seed alone for one system: its value of a
            query is the mean over the seeds.
        seed: of the randomisation test and the bootstrap.

    Raises:
        FileNotFoundError: for a missing run or split.
        ValueError: for no run, a run given twice, an unknown baseline or metric, no judgements or judgements
            that differ between folders, a malformed file, and for runs over different queries or candidates.
    """
    parse_measures(names)
    if not runs:
        raise ValueError("there is no run to compare")
    stored = with_names([run if isinstance(run, Run) else read_run_folder(run, split) for run in runs])
    for run in stored:
        if not run.scores:
            there = ", ".join(sorted(file.name for file in run.path.glob("*.trec"))) or "none"
            raise FileNotFoundError(
                f"{run.path / f'{split}.trec'} is missing; runs of this folder: {there}. A training that validates "
                "writes val.trec, `crossjem test` writes test.trec"
            )
    groups: dict[str, list[Run]] = {}
    for run in stored:
        groups.setdefault(run.method if group_seeds else run.name, []).append(run)
    first = [replace(of_seeds[0], name="") if group_seeds else of_seeds[0] for of_seeds in groups.values()]
    systems = {run.name: run for run in with_names(first)}
    members = dict(zip(systems, groups.values(), strict=True))
    chosen = _baseline(baseline, members)
    judged = _judgements(stored) if qrels is None else read_qrels(qrels)
    lowest = _relevant_from(stored) if relevant_from is None else relevant_from
    if not allow_different:
        _check_same_lists(stored)
    evaluations = {
        name: [evaluate_run(run.scores, judged, names, relevant_from=lowest) for run in group]
        for name, group in members.items()
    }
    per_query = pd.concat(
        {
            name: sum((one.per_query for one in found[1:]), found[0].per_query) / len(found)
            for name, found in evaluations.items()
        },
        axis=1,
    )
    results = {}
    for metric in names:
        values = pd.DataFrame({name: per_query[name, metric] for name in systems})
        means = {name: [one.means[metric] for one in found] for name, found in evaluations.items()}
        spread = pd.Series({name: pd.Series(of_seeds).std() for name, of_seeds in means.items()})
        results[metric] = _results(metric, values, chosen, margin, seed).assign(sd=spread)
    return Comparison(
        systems,
        next((run.split for run in stored if run.split), None),
        tuple(names),
        chosen,
        margin,
        lowest,
        judged,
        per_query,
        pd.concat(results, names=["metric", "system"]),
        {name: len(set().union(*(one.missing for one in found))) for name, found in evaluations.items()},
        {name: len(set().union(*(one.unjudged for one in found))) for name, found in evaluations.items()},
        {name: [run.summary.get("seed") for run in group] for name, group in members.items()},
    )


def _baseline(wanted: str | None, members: Mapping[str, Sequence[Run]]) -> str:
    """The system of this name, or with a run of this folder or path; the first one for None."""
    if wanted is None or wanted in members:
        return wanted or next(iter(members))
    found = [
        name
        for name, runs in members.items()
        if any(wanted == run.path.name or Path(wanted).resolve() == run.path.resolve() for run in runs)
    ]
    if len(found) != 1:
        problem = "names several systems" if found else "is none of the systems"
        raise ValueError(f"baseline {wanted!r} {problem}: {', '.join(members)}")
    return found[0]


def _judgements(runs: Sequence[Run]) -> Qrels:
    """The judgements of the folders, which must agree."""
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
    """The lowest relevant grade of the folders, which must agree; 1 where none says."""
    told = {run.name: run.summary["relevant_from"] for run in runs if "relevant_from" in run.summary}
    if len(set(told.values())) > 1:
        lowest = ", ".join(f"{name} {value:g}" for name, value in told.items())
        raise ValueError(
            f"the runs differ in the lowest relevant grade ({lowest}); say with relevant_from which to use"
        )
    return next(iter(told.values()), 1)


def _check_same_lists(runs: Sequence[Run]) -> None:
    """Refuses runs over other queries or candidates than the first run's."""
    first = runs[0]
    for run in runs[1:]:
        odd = _pairs(first) ^ _pairs(run)
        if odd:
            query, item = min(odd)
            holds, lacks = (first, run) if item in first.scores.get(query, {}) else (run, first)
            what = f"item {item!r} of query {query!r}" if query in lacks.scores else f"query {query!r}"
            raise ValueError(
                f"{run.name!r} and {first.name!r} do not rank the same queries and candidates: {what} is in "
                f"{holds.name!r} and not in {lacks.name!r}. allow_different accepts it"
            )


def _pairs(run: Run) -> set[tuple[str, str]]:
    return {(query, item) for query, scores in run.scores.items() for item in scores}


def _results(metric: str, table: pd.DataFrame, baseline: str, margin: float, seed: int) -> pd.DataFrame:
    """The rows of `Comparison.results` of one metric, over the queries where it is defined for all systems."""
    table = table.dropna()
    if table.empty:
        raise ValueError(f"{metric} is not defined for any query")
    low, high = bootstrap_interval(table, seed=seed)
    results = pd.DataFrame({"mean": table.mean(), "low": low, "high": high})
    others = table.columns.drop(baseline)
    if others.empty:
        return results
    columns = table[others].sub(table[baseline], axis=0)
    low, high = bootstrap_interval(columns, seed=seed)
    tests = {
        "p randomisation": randomisation_test(columns, seed=seed),
        "p t": t_test(columns),
        "p level": equivalence_test(columns, margin),
    }
    figures = {"difference": columns.mean(), "difference low": low, "difference high": high, **tests}
    figures |= {f"{name} holm": holm(p) for name, p in tests.items()}
    figures |= {"wins": (columns > TIE).sum(), "ties": (columns.abs() <= TIE).sum()}
    figures["losses"] = (columns < -TIE).sum()
    return results.join(pd.DataFrame(figures, index=others))


def _notes(comparison: Comparison) -> Iterator[str]:
    """Queries that count as 0 or nowhere, and other traps."""
    qrels, runs, lowest = comparison.qrels, comparison.runs, comparison.relevant_from
    for name, seeds in comparison.seeds.items():
        if len(seeds) > 1:
            yield (
                f"{name}: {len(seeds)} runs that differ in the seed alone ({', '.join(map(str, seeds))}), averaged per "
                "query; ± is the standard deviation of their means. Examples are of the first."
            )
    models = [run.model for run in runs.values() if run.model is not None]
    for model in sorted({model for model in models if models.count(model) > 1}):
        same = " and ".join(name for name, run in runs.items() if run.model == model)
        yield f"{same} were written by the same model ({model})."
    for name in runs:
        if missing := comparison.missing[name]:
            yield f"{name} lacks {missing:,} of the {len(qrels):,} judged queries; they count as 0."
        if unjudged := comparison.unjudged[name]:
            yield f"{name} ranks {unjudged:,} queries without judgements; left out."
    relevant = {(q, item) for q, grades in qrels.items() for item, grade in grades.items() if grade >= lowest}
    ranked = set().union(*map(_pairs, runs.values()))
    if outside := len(relevant - ranked):
        yield (
            f"{outside:,} of the {len(relevant):,} relevant items are in no run's lists. nDCG, AP and recall "
            "count them as not found, so their best possible mean is below 1."
        )
    if empty := len(qrels.keys() - {query for query, _ in relevant}):
        yield f"{empty:,} judged queries have no relevant item and count as 0 for every system."
    if lowest != 1:
        yield f"Relevant are grades of at least {lowest:g}."
    machines = sorted({str(machine) for run in runs.values() if (machine := run.summary.get("machine"))})
    if len(machines) > 1:
        yield f"Training times are from different machines: {'; '.join(machines)}."
    for name in comparison.metrics:
        if undefined := int(comparison.values(name).isna().any(axis=1).sum()):
            yield f"{name} is not defined for {undefined:,} of the queries, which its figures leave out."
