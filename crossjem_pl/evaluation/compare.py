"""Compares runs on the same lists: one table with significance, and the lists on which systems differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from crossjem_pl.data.formats import read_qrels
from crossjem_pl.evaluation import html, plots
from crossjem_pl.evaluation.markdown import to_markdown
from crossjem_pl.evaluation.measures import Evaluation, evaluate_run, rank_items
from crossjem_pl.evaluation.metrics import parse_measures
from crossjem_pl.evaluation.results import (
    Comparison,
    Difference,
    Example,
    MetricResult,
    RankedItem,
    SystemResult,
)
from crossjem_pl.evaluation.run_folder import StoredRun, read_stored_run, read_texts_of, unique_names
from crossjem_pl.evaluation.significance import (
    bootstrap_interval,
    holm,
    randomisation_test,
    t_test,
    win_tie_loss,
)

__all__ = ["compare", "compare_runs", "write_comparison"]

Qrels = Mapping[str, Mapping[str, int]]

_TOP = 5
"""Items of each ranking that an example shows, as many as the tables of the CROSS-JEM paper."""


def compare(
    runs: Sequence[str | Path],
    baseline: str | None = None,
    names: Sequence[str] = ("RR@10", "AP@10"),
    out: str | Path = "comparison",
    qrels: str | Path | None = None,
    *,
    split: str = "val",
    allow_different: bool = False,
    examples: int = 3,
    seed: int = 0,
) -> Comparison:
    """Compares runs and writes `compare.md`, `compare.csv` and `compare.html` into `out`.

    `out` is made if absent; the other arguments and the errors are those of `compare_runs`.
    """
    comparison = compare_runs(
        runs,
        baseline,
        names,
        qrels,
        split=split,
        allow_different=allow_different,
        examples=examples,
        seed=seed,
    )
    write_comparison(comparison, out)
    return comparison


def compare_runs(
    runs: Sequence[str | Path],
    baseline: str | None = None,
    names: Sequence[str] = ("RR@10", "AP@10"),
    qrels: str | Path | None = None,
    *,
    split: str = "val",
    allow_different: bool = False,
    examples: int = 3,
    seed: int = 0,
) -> Comparison:
    """Evaluates runs on the same judgements and tests their differences to a baseline.

    Args:
        runs: run folders (`<split>.trec`, `<split>.qrels`, and, where they exist, `<split>_lists.parquet` and
            `summary.json`) or TREC run files.
        baseline: a system's name, its folder's name or its path; None takes the first run.
        names: ir-measures metrics; the first one picks the examples.
        qrels: judgements to use in place of the folders' own; needed when no run is a folder.
        split: which run of a folder.
        allow_different: accept runs over different queries or candidates. Means are over all judged queries
            then, and a query counts 0 for a run without it.
        examples: lists shown per system where it gains most on the baseline, and as many where it loses most.
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
    stored = [read_stored_run(path, split) for path in runs]
    systems = dict(zip(unique_names(stored), stored, strict=True))
    chosen = _baseline(baseline, systems)
    judged = _judgements(qrels, stored)
    if not allow_different:
        _check_same_lists(systems)
    evaluations = {name: evaluate_run(run.scores, judged, names) for name, run in systems.items()}
    results = _results(systems, evaluations, chosen, seed)
    per_query = pd.concat({name: found.per_query for name, found in evaluations.items()}, axis=1)
    return Comparison(
        split if any(run.split for run in stored) else None,
        tuple(names),
        chosen,
        len(per_query),
        results,
        per_query,
        _examples(systems, evaluations, chosen, judged, names[0], examples),
        (*_notes(systems, results, judged, len(per_query)), *_undefined(per_query, names)),
    )


def write_comparison(comparison: Comparison, out: str | Path) -> None:
    """Writes `compare.md`, `compare.csv` (unrounded) and the self-contained `compare.html` into `out`.

    The plots of the page need matplotlib; without it the page and the Markdown say which extra brings it.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = plots.draw(comparison) if plots.available() else []
    if not plots.available():
        comparison = replace(comparison, notes=(*comparison.notes, plots.MISSING))
    comparison.to_frame().to_csv(folder / "compare.csv", index=False)
    (folder / "compare.md").write_text(to_markdown(comparison), encoding="utf-8")
    (folder / "compare.html").write_text(html.page(comparison, drawn), encoding="utf-8")


def _baseline(wanted: str | None, systems: Mapping[str, StoredRun]) -> str:
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


def _judgements(path: str | Path | None, stored: Sequence[StoredRun]) -> Qrels:
    if path is not None:
        return read_qrels(path)
    having = [(run.path, run.qrels) for run in stored if run.qrels is not None]
    if not having:
        raise ValueError(f"no qrels: none are given, and neither {stored[0].path} nor another run holds any")
    first_path, first = having[0]
    for other_path, other in having[1:]:
        if other != first:
            query = next(q for q in sorted({*first, *other}) if other.get(q) != first.get(q))
            raise ValueError(
                f"{other_path} and {first_path} hold different judgements, first of query {query!r}; "
                "say with qrels which to use"
            )
    return first


def _check_same_lists(systems: Mapping[str, StoredRun]) -> None:
    (first_name, first), *others = systems.items()
    for name, run in others:
        odd = sorted(first.scores.keys() ^ run.scores.keys())
        if odd:
            holds, lacks = (first_name, name) if odd[0] in first.scores else (name, first_name)
            raise ValueError(
                f"{name!r} and {first_name!r} do not cover the same queries: {len(odd)} are in one only, "
                f"{odd[0]!r} is in {holds!r} and not in {lacks!r}. With allow_different it counts 0 there"
            )
        for query, scores in first.scores.items():
            items = sorted(scores.keys() ^ run.scores[query].keys())
            if items:
                holds = first_name if items[0] in scores else name
                raise ValueError(
                    f"{name!r} and {first_name!r} do not rank the same candidates for query {query!r}: "
                    f"{len(items)} are in one only, {items[0]!r} is in {holds!r}. allow_different accepts it"
                )


def _results(
    systems: Mapping[str, StoredRun], evaluations: Mapping[str, Evaluation], baseline: str, seed: int
) -> tuple[SystemResult, ...]:
    others = [name for name in systems if name != baseline]
    metrics: dict[str, dict[str, MetricResult]] = {name: {} for name in systems}
    for metric in evaluations[baseline].per_query.columns:
        values = _defined_values(evaluations, str(metric))
        differences = _differences({name: values[name] - values[baseline] for name in others}, seed)
        lows, highs = bootstrap_interval(np.stack(list(values.values()), axis=1), seed=seed)
        for name, low, high in zip(systems, lows, highs, strict=True):
            metrics[name][metric] = MetricResult(
                float(values[name].mean()), float(low), float(high), differences.get(name)
            )
    return tuple(
        SystemResult(
            name,
            run.path,
            metrics[name],
            len(evaluations[name].missing),
            len(evaluations[name].unjudged),
            run.parameters,
            run.trained_lists,
            run.train_seconds,
            run.machine,
            run.seed,
        )
        for name, run in systems.items()
    )


def _defined_values(evaluations: Mapping[str, Evaluation], metric: str) -> dict[str, np.ndarray]:
    """The values per query of each system, without the queries where one of them is not defined.

    Raises:
        ValueError: naming the metric, if no query is left.
    """
    table = np.stack([found.per_query[metric].to_numpy(dtype=np.float64) for found in evaluations.values()])
    kept = table[:, ~np.isnan(table).any(axis=0)]
    if not kept.shape[1]:
        raise ValueError(f"{metric} is not defined for any query")
    return dict(zip(evaluations, kept, strict=True))


def _differences(values: Mapping[str, np.ndarray], seed: int) -> dict[str, Difference]:
    """What is known of each system's differences per query on one metric."""
    if not values:
        return {}
    columns = np.stack(list(values.values()), axis=1)
    lows, highs = bootstrap_interval(columns, seed=seed)
    randomisation, t = randomisation_test(columns, seed=seed), t_test(columns)
    randomisation_holm, t_holm = holm(randomisation), holm(t)
    return {
        name: Difference(
            float(columns[:, i].mean()),
            float(lows[i]),
            float(highs[i]),
            float(randomisation[i]),
            float(t[i]),
            float(randomisation_holm[i]),
            float(t_holm[i]),
            win_tie_loss(columns[:, i]),
        )
        for i, name in enumerate(values)
    }


def _examples(
    systems: Mapping[str, StoredRun],
    evaluations: Mapping[str, Evaluation],
    baseline: str,
    qrels: Qrels,
    metric: str,
    count: int,
) -> tuple[Example, ...]:
    """The queries with the largest gains, then those with the largest losses, of each system."""
    values = {name: found.per_query[metric] for name, found in evaluations.items()}
    picked: list[tuple[str, str]] = []
    for name in systems:
        both = [q for q in values[name].index if q in systems[name].scores and q in systems[baseline].scores]
        differences = (values[name] - values[baseline])[both].sort_values(ascending=False, kind="stable")
        gains = differences[differences > 1e-9].index[:count]
        losses = differences[differences < -1e-9].index[::-1][:count]
        picked += [(name, str(query)) for query in (*gains, *losses)]
    query_texts, item_texts = read_texts_of(list(systems.values()), {query for _, query in picked})

    def top(name: str, query: str) -> tuple[RankedItem, ...]:
        texts, grades = item_texts.get(query, {}), qrels[query]
        first = rank_items(systems[name].scores[query])[:_TOP]
        return tuple(RankedItem(item, texts.get(item), int(grades.get(item, 0))) for item in first)

    return tuple(
        Example(
            query,
            query_texts.get(query),
            name,
            float(values[name][query]),
            float(values[baseline][query]),
            top(name, query),
            top(baseline, query),
            sum(qrels[query].get(item, 0) >= 1 for item in systems[name].scores[query]),
            len(systems[name].scores[query]),
        )
        for name, query in picked
    )


def _notes(
    systems: Mapping[str, StoredRun], results: Sequence[SystemResult], qrels: Qrels, queries: int
) -> tuple[str, ...]:
    notes = []
    for result in results:
        if result.missing:
            notes.append(
                f"{result.name} lacks {result.missing:,} of the {queries:,} judged queries; they count as 0."
            )
        if result.unjudged:
            notes.append(f"{result.name} ranks {result.unjudged:,} queries without judgements; left out.")
    relevant = {(q, item) for q, grades in qrels.items() for item, grade in grades.items() if grade >= 1}
    ranked = {(q, item) for run in systems.values() for q, scores in run.scores.items() for item in scores}
    outside = len(relevant - ranked)
    if outside:
        notes.append(
            f"{outside:,} of the {len(relevant):,} relevant items are in no run's lists. nDCG, AP and recall "
            "count them as not found, so their best possible mean is below 1."
        )
    barren = sum(1 for grades in qrels.values() if not any(grade >= 1 for grade in grades.values()))
    if barren:
        notes.append(f"{barren:,} judged queries have no relevant item and count as 0 for every system.")
    machines = sorted({result.machine for result in results if result.machine is not None})
    if len(machines) > 1:
        notes.append(f"Training times are from different machines: {'; '.join(machines)}.")
    return tuple(notes)


def _undefined(per_query: pd.DataFrame, names: Sequence[str]) -> Iterator[str]:
    """A note for each metric that leaves queries out because it is not defined for some system there."""
    for name in names:
        values = per_query.xs(name, axis=1, level=1).to_numpy(dtype=np.float64)
        missing = int(np.isnan(values).any(axis=1).sum())
        if missing:
            yield f"{name} is not defined for {missing:,} of the queries, which its figures leave out."
