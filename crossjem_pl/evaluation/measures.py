"""Metrics of a run against relevance judgements, computed by ir-measures under one tie rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd

from crossjem_pl.data.formats import ranked
from crossjem_pl.evaluation.per_list import parse_measures

__all__ = ["Evaluation", "evaluate_run", "rank_items"]


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate_run` found.

    Args:
        per_query: one row per judged query (index `query_id`, sorted), one float64 column per metric.
        missing: judged queries that the run does not hold. Each counts as 0 in every mean.
        unjudged: queries of the run without judgements. They count nowhere.
    """

    per_query: pd.DataFrame
    missing: tuple[str, ...]
    unjudged: tuple[str, ...]

    @property
    def means(self) -> dict[str, float]:
        """Mean of each metric over all judged queries."""
        return {str(name): float(value) for name, value in self.per_query.mean().items()}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: means, number of judged queries, the two lists of ids, values per query."""
        return {
            "means": self.means,
            "queries": len(self.per_query),
            "missing": list(self.missing),
            "unjudged": list(self.unjudged),
            "per_query": {
                str(query): {str(name): float(value) for name, value in row.items()}
                for query, row in self.per_query.to_dict(orient="index").items()
            },
        }

    def to_markdown(self) -> str:
        """A table of the means, and a line for queries that are missing or not judged."""
        lines = ["| metric | mean |", "| --- | ---: |"]
        lines += [f"| {name} | {value:.4f} |" for name, value in self.means.items()]
        lines += ["", f"{len(self.per_query)} judged queries."]
        if self.missing:
            lines.append(f"{len(self.missing)} of them are missing from the run and count as 0.")
        if self.unjudged:
            lines.append(f"{len(self.unjudged)} queries of the run are not judged and are left out.")
        return "\n".join(lines) + "\n"

    def write(self, folder: str | Path, prefix: str = "") -> None:
        """Writes `<prefix>metrics.json` (`to_dict`) and `<prefix>metrics.md` (`to_markdown`) into `folder`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False)
        (folder / f"{prefix}metrics.json").write_text(text + "\n", encoding="utf-8")
        (folder / f"{prefix}metrics.md").write_text(self.to_markdown(), encoding="utf-8")


def evaluate_run(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]], names: Sequence[str]
) -> Evaluation:
    """Evaluates a run with ir-measures.

    ir-measures hands each metric to the first provider that knows it, and the providers break ties
    differently: trec_eval by id descending on float32 scores, the MS MARCO script behind RR@k by id ascending
    on float64. So each query's items are ranked here (`rank_items`) and go to ir-measures with their ranks
    for scores, in which nothing ties: all metrics see the same ranking.

    Args:
        run: query id -> item id -> score.
        qrels: query id -> item id -> graded relevance, whole numbers.
        names: ir-measures strings, aliases included ("RR@10", "MRR@10", "nDCG@10").

    Raises:
        ValueError: for a bad metric name, no judgements, a relevance that is not a whole number, a score that
            is not finite in float32, or a run and qrels that share no query.
    """
    measures = parse_measures(names)
    if not qrels:
        raise ValueError("the qrels hold no query")
    judged = {query: _whole_numbers(query, labels) for query, labels in qrels.items()}
    missing = tuple(sorted(query for query in judged if not run.get(query)))
    if len(missing) == len(judged):
        raise ValueError(
            f"the run and the qrels share no query: {next(iter(judged))!r} is judged, "
            f"the run holds {next(iter(run), 'nothing')!r}"
        )
    untied = {query: _untied(query, run[query]) for query in judged if run.get(query)}
    names_of = {measure: name for name, measure in measures.items()}
    values = {name: dict.fromkeys(sorted(judged), 0.0) for name in measures}
    for metric in ir_measures.iter_calc(list(measures.values()), judged, untied):
        values[names_of[metric.measure]][metric.query_id] = float(metric.value)
    per_query = pd.DataFrame(values, dtype=np.float64)
    per_query.index.name = "query_id"
    return Evaluation(per_query, missing, tuple(sorted(query for query in run if query not in qrels)))


def rank_items(scores: Mapping[str, float]) -> list[str]:
    """Item ids best first: score descending as float32, equal scores by item id descending (trec_eval)."""
    return ranked({item: float(np.float32(score)) for item, score in scores.items()})


def _untied(query: str, scores: Mapping[str, float]) -> dict[str, float]:
    with np.errstate(over="ignore"):
        values = np.array(list(scores.values()), dtype=np.float64).astype(np.float32)
    finite = np.isfinite(values)
    if not finite.all():
        item = list(scores)[int(np.argmin(finite))]
        raise ValueError(f"query {query!r}, item {item!r}: score {scores[item]!r} is not finite in float32")
    return {item: float(len(scores) - rank) for rank, item in enumerate(rank_items(scores))}


def _whole_numbers(query: str, labels: Mapping[str, int]) -> dict[str, int]:
    for item, label in labels.items():
        if not float(label).is_integer():
            raise ValueError(f"qrels of query {query!r}, item {item!r}: {label!r} is not a whole number")
    return {item: int(label) for item, label in labels.items()}
