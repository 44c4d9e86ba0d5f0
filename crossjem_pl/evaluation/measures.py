"""Metrics of a run against relevance judgements, AUC and accuracies included.

RR, AP, nDCG, P and R are computed by `metrics`, AUC and accuracies by `classification`, everything else that has an
ir-measures name by ir-measures, all on the same ranking. `AUC`, `PosAcc@p`, `NegAcc@p` and `Acc@p` (p percent of the
positives are kept) are registered as names of ir-measures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pandas as pd
import torch
from ir_measures.measures import Measure, ParamInfo, register
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from crossjem_pl.data.trec import ranked
from crossjem_pl.evaluation.classification import Pairs, Share
from crossjem_pl.evaluation.metrics import compute, is_vectorised, parse_measures, tie_order

__all__ = ["Evaluation", "PairMeasure", "evaluate_run", "rank_items"]

_BLOCK = 1024
"""Lists that are padded to one width at a time."""


_AUC_PARAMS = {"rel": ParamInfo(dtype=int, default=1, desc="lowest relevance of a positive")}
_ACCURACY_PARAMS = {
    "keep": ParamInfo(dtype=int, required=True, choices=range(1, 101), desc="percentage kept"),
    "threshold": ParamInfo(dtype=str, choices=("query", "run"), default="query", desc="one for each"),
    **_AUC_PARAMS,
}


class PairMeasure(Measure):
    """A metric of (query, item) pairs: it has a value per query, and one over the pairs of all queries.

    `AUC` see `Pairs.auc`; the accuracies (share of the positives that are kept, of the negatives that are dropped, of
    all items that are either) are those at the threshold that keeps a percentage of the positives: each query has its
    own, or `threshold='run'`, all have one.
    """

    def validate_params(self) -> None:
        if "keep" in self.SUPPORTED_PARAMS and "keep" not in self.params:
            raise ValueError(f"say which percentage of the positives is kept, as in {self.NAME}@80")
        super().validate_params()

    def values(self, pairs: Pairs) -> tuple[Tensor, float]:
        """Values per list, float64 [lists], NaN where not defined, and the pooled value, NaN likewise."""
        if self.NAME == "AUC":
            return pairs.auc_per_list(), pairs.auc()
        keep = self["keep"] / 100
        if self["threshold"] == "query":
            threshold: Tensor | float = pairs.recall_thresholds(keep)
        else:
            threshold = pairs.threshold_at_recall(keep) if pairs.positive.any() else math.nan
        share: Share = getattr(pairs.accuracies(threshold), _SHARES[str(self.NAME)])
        return share.per_list, share.pooled


_SHARES = {"PosAcc": "positive", "NegAcc": "negative", "Acc": "overall"}


def _register(name: str, params: dict[str, ParamInfo], at: str | None) -> None:
    fields = {"__name__": name, "NAME": name, "SUPPORTED_PARAMS": params}
    register(type(name, (PairMeasure,), fields | ({} if at is None else {"AT_PARAM": at}))())


_register("AUC", _AUC_PARAMS, None)
for _name in _SHARES:
    _register(_name, _ACCURACY_PARAMS, "keep")


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate_run` found.

    Args:
        per_query: one row per judged query (index `query_id`, sorted), one float64 column per metric. NaN where
            the metric is not defined: AUC without both positives and negatives, accuracies without positives.
        missing: judged queries that the run does not hold. Each counts as 0 in every mean.
        unjudged: queries of the run without judgements. They count nowhere.
        pooled: of AUC and accuracies: the value over all (query, item) pairs of the run's judged queries
            together, as the CROSS-JEM paper's tables have it. No mean of anything per query.
        relevant_from: lowest relevance that is relevant, for the metrics that do not say `rel` themselves.
    """

    per_query: pd.DataFrame
    missing: tuple[str, ...]
    unjudged: tuple[str, ...]
    pooled: dict[str, float] = field(default_factory=dict)
    relevant_from: float = 1

    @property
    def means(self) -> dict[str, float]:
        """Mean of each metric over all judged queries for which it is defined; NaN if there are none."""
        return {str(name): float(value) for name, value in self.per_query.mean().items()}

    @property
    def undefined(self) -> dict[str, int]:
        """Judged queries that a metric's mean leaves out, for the metrics that have such."""
        counts = self.per_query.isna().sum()
        return {str(name): int(count) for name, count in counts.items() if count}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: means, pooled values, number of judged queries, the two lists of ids, values per query.

        What is not defined is None.
        """
        return {
            "means": _defined(self.means),
            "pooled": _defined(self.pooled),
            "undefined": self.undefined,
            "queries": len(self.per_query),
            "relevant_from": self.relevant_from,
            "missing": list(self.missing),
            "unjudged": list(self.unjudged),
            "per_query": {
                str(query): _defined({str(name): float(value) for name, value in row.items()})
                for query, row in self.per_query.to_dict(orient="index").items()
            },
        }

    def to_markdown(self) -> str:
        """A table of the means and pooled values, and a line for what they leave out or count as 0."""
        lines = ["| metric | mean over queries | all pairs |", "| --- | ---: | ---: |"]
        for name, mean in self.means.items():
            pooled = _number(self.pooled[name]) if name in self.pooled else ""
            lines.append(f"| {name} | {_number(mean)} | {pooled} |")
        lines += ["", f"{len(self.per_query)} judged queries."]
        lines += [
            f"{count} of them have no {name} and are left out of its mean."
            for name, count in self.undefined.items()
        ]
        if self.relevant_from != 1:
            lines.append(f"Relevant are grades of at least {self.relevant_from:g}.")
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
    run: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, float]],
    names: Sequence[str],
    *,
    relevant_from: float = 1,
) -> Evaluation:
    """Evaluates a run; the figures are those of ir-measures on a run without ties.

    The providers of ir-measures break ties differently: trec_eval by id descending on float32 scores, the MS MARCO
    script behind RR@k by id ascending on float64. Here all metrics see one ranking, that of `rank_items`.

    Args:
        run: query id -> item id -> score.
        qrels: query id -> item id -> graded relevance; whole numbers for what ir-measures computes.
        names: ir-measures strings, aliases included ("RR@10", "MRR@10", "nDCG@10"), and those of this module:
            "AUC", "PosAcc@80", "NegAcc@80", "Acc@80" and, with one threshold for all queries,
            "NegAcc(threshold='run')@80". These look at the items of the run only; an item that is not judged
            is a negative.
        relevant_from: lowest relevance that is relevant, for the names that do not say `rel` themselves.

    Raises:
        ValueError: for a bad metric name, no judgements, a relevance that is no finite number or, for
            ir-measures, not whole, a score that is not finite in float32, or a run and qrels that share no query.
    """
    measures = parse_measures(names)
    if not qrels:
        raise ValueError("the qrels hold no query")
    missing = tuple(sorted(query for query in qrels if not run.get(query)))
    if len(missing) == len(qrels):
        raise ValueError(
            f"the run and the qrels share no query: {next(iter(qrels))!r} is judged, "
            f"the run holds {next(iter(run), 'nothing')!r}"
        )
    evaluated = [query for query in qrels if run.get(query)]
    for query in evaluated:
        _check_finite(query, run[query], qrels[query])
    values = {name: dict.fromkeys(sorted(qrels), 0.0) for name in measures}
    vectorised = [name for name, measure in measures.items() if is_vectorised(measure)]
    for first in range(0, len(evaluated) if vectorised else 0, _BLOCK):
        block = evaluated[first : first + _BLOCK]
        order = tie_order([list(run[query]) for query in block])
        judged = _padded([list(qrels[query].values()) for query in block])
        tensors = (*_tensors(run, qrels, block), order)
        found = compute(vectorised, *tensors, judged=judged, relevant_from=relevant_from)
        for name, row in found.items():
            values[name].update(zip(block, row.tolist(), strict=True))
    pooled = {}
    for name, measure in measures.items():
        if isinstance(measure, PairMeasure):
            pairs = Pairs(*_tensors(run, qrels, evaluated), rel=measure.params.get("rel", relevant_from))
            per_list, pooled[name] = measure.values(pairs)
            values[name].update(zip(evaluated, per_list.tolist(), strict=True))
        elif name not in vectorised:
            values[name].update(_with_ir_measures(measure, run, qrels, evaluated, relevant_from))
    per_query = pd.DataFrame(values, dtype=np.float64)
    per_query.index.name = "query_id"
    unjudged = tuple(sorted(query for query in run if query not in qrels))
    return Evaluation(per_query, missing, unjudged, pooled, relevant_from)


def rank_items(scores: Mapping[str, float]) -> list[str]:
    """Item ids best first: score descending as float32, equal scores by item id descending (trec_eval)."""
    return ranked({item: float(np.float32(score)) for item, score in scores.items()})


def _with_ir_measures(
    measure: Measure,
    run: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, float]],
    queries: Sequence[str],
    relevant_from: float,
) -> dict[str, float]:
    """Values per query; ir-measures gets the items' ranks for scores, in which nothing ties."""
    if "rel" in measure.SUPPORTED_PARAMS and "rel" not in measure.params:
        measure = measure(rel=math.ceil(relevant_from))
    for query in queries:
        for item, label in qrels[query].items():
            if not float(label).is_integer():
                raise ValueError(
                    f"qrels of query {query!r}, item {item!r}: {label!r} is not a whole number, which {measure} needs"
                )
    judged = {query: {item: int(label) for item, label in qrels[query].items()} for query in queries}
    untied = {
        query: {item: float(-rank) for rank, item in enumerate(rank_items(run[query]))} for query in queries
    }
    return {found.query_id: float(found.value) for found in ir_measures.iter_calc([measure], judged, untied)}


def _check_finite(query: str, scores: Mapping[str, float], labels: Mapping[str, float]) -> None:
    for values, kind in ((scores, "score"), (labels, "relevance")):
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.array(list(values.values()), dtype=np.float64).astype(np.float32))
        if not finite.all():
            item = list(values)[int(np.argmin(finite))]
            raise ValueError(
                f"query {query!r}, item {item!r}: {kind} {values[item]!r} is not finite in float32"
            )


def _tensors(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, float]], queries: Sequence[str]
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores and labels float64 [queries, items], and the mask; what is not judged has label 0."""
    scores = _padded([list(run[query].values()) for query in queries])
    labels = _padded([[qrels[query].get(item, 0) for item in run[query]] for query in queries])
    return scores, labels, _padded([[1] * len(run[query]) for query in queries]) > 0


def _padded(rows: Sequence[Sequence[float]]) -> Tensor:
    return pad_sequence([torch.tensor(row, dtype=torch.float64) for row in rows], batch_first=True)


def _defined(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.4f}"
