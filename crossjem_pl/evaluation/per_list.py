"""Ranking metrics of many lists at once: pure, vectorised functions on padded tensors.

Values equal those of ir-measures to 1e-6. All functions take `scores` and `labels` [lists, items], `mask`
bool [lists, items] (True on items) and `tie_order` int64 [lists, items], and return one value per list, float
[lists] (float32, or float64 for float64 labels).

- Rank order: score descending; equal scores by item id descending, the rule of trec_eval. `tie_order` turns
  ids into numbers once. Scores are compared as float32, as trec_eval does.
- An item is relevant when its label >= `rel` (1 unless told). Gains of nDCG are the labels themselves, any
  non-negative float; negative labels gain nothing, as in trec_eval.
- A list without relevant items has the value 0. It counts in a mean over lists, as a query whose judgements
  are all zero counts in ir-measures.
- `ideal_labels` [lists, judged]: the labels of everything that is judged for the query, candidates included,
  padded with 0. Without it the candidates are taken for all there is to find, and nDCG, AP and recall are too
  high for a query with relevant items outside its candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ir_measures
import torch
from torch import Tensor

__all__ = [
    "average_precision",
    "compute",
    "ndcg",
    "parse_measures",
    "precision",
    "recall",
    "reciprocal_rank",
    "tie_order",
]


def tie_order(item_ids: Sequence[Sequence[str]]) -> Tensor:
    """Ranks of the ids of each list in descending string order: int64 [lists, max_items], padding last.

    Code points are compared, which for UTF-8 is the byte order of trec_eval's `strcmp`.

    Raises:
        ValueError: if there are no lists.
    """
    if not item_ids:
        raise ValueError("tie_order needs at least one list")
    order = torch.arange(max(len(ids) for ids in item_ids)).repeat(len(item_ids), 1)
    for row, ids in enumerate(item_ids):
        descending = sorted(range(len(ids)), key=lambda position: ids[position], reverse=True)
        order[row, torch.tensor(descending, dtype=torch.long)] = torch.arange(len(ids))
    return order


def reciprocal_rank(
    scores: Tensor, labels: Tensor, mask: Tensor, tie_order: Tensor, k: int | None = None, *, rel: float = 1
) -> Tensor:
    """RR@k = 1 / rank of the first relevant item, 0 if it is below rank k. Float [lists]."""
    relevant = _top(_relevant(_ranked(scores, labels, mask, tie_order), rel), k)
    ranks = torch.arange(1, relevant.shape[1] + 1, device=relevant.device)
    return (relevant / ranks).amax(dim=1)


def average_precision(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    tie_order: Tensor,
    k: int | None = None,
    *,
    rel: float = 1,
    ideal_labels: Tensor | None = None,
) -> Tensor:
    """AP@k = 1/R * sum over relevant ranks i <= k of P@i, R = all relevant items. Float [lists].

    R is not cut at k (trec_eval's `map_cut`), so AP@k of a query with more than k relevant items stays below
    1.
    """
    relevant = _top(_relevant(_ranked(scores, labels, mask, tie_order), rel), k)
    ranks = torch.arange(1, relevant.shape[1] + 1, device=relevant.device)
    precision_sum = (relevant * relevant.cumsum(dim=1) / ranks).sum(dim=1)
    return precision_sum / _relevant_count(labels, mask, rel, ideal_labels).clamp(min=1)


def ndcg(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    tie_order: Tensor,
    k: int | None = None,
    *,
    ideal_labels: Tensor | None = None,
) -> Tensor:
    """nDCG@k = DCG@k / ideal DCG@k, DCG@k = sum over ranks i <= k of gain_i / log2(i + 1). Float [lists].

    The gain is the label (not 2^label - 1), Järvelin and Kekäläinen 2002 as in trec_eval.
    """
    ranked = _ranked(scores, labels, mask, tie_order)
    judged = _judged(labels, mask, ideal_labels).clamp(min=0)
    best = _dcg(judged.sort(dim=1, descending=True).values, k)
    return torch.where(best > 0, _dcg(ranked.clamp(min=0), k) / best.where(best > 0, 1.0), 0.0)


def precision(
    scores: Tensor, labels: Tensor, mask: Tensor, tie_order: Tensor, k: int, *, rel: float = 1
) -> Tensor:
    """P@k = relevant items among the first k, over k even where a list is shorter. Float [lists]."""
    return _top(_relevant(_ranked(scores, labels, mask, tie_order), rel), k).sum(dim=1) / k


def recall(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    tie_order: Tensor,
    k: int,
    *,
    rel: float = 1,
    ideal_labels: Tensor | None = None,
) -> Tensor:
    """R@k = relevant items among the first k, over all relevant items. Float [lists]."""
    found = _top(_relevant(_ranked(scores, labels, mask, tie_order), rel), k).sum(dim=1)
    return found / _relevant_count(labels, mask, rel, ideal_labels).clamp(min=1)


def compute(
    names: Sequence[str],
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    tie_order: Tensor,
    *,
    ideal_labels: Tensor | None = None,
    rel: float | None = None,
) -> dict[str, Tensor]:
    """Several metrics by name: `{name as given: float [lists]}`.

    Args:
        names: ir-measures strings of RR, AP, nDCG, P and R, with or without a cutoff ("RR@10", "AP",
            "P(rel=2)@5"), and their aliases ("MRR@10", "MAP@10").
        rel: the lowest label that is relevant, over whatever the names say; for labels on a scale that is not
            trec_eval's, such as 0.5 for probabilities.

    Raises:
        ValueError: for an unknown name, a parameter that only ir-measures knows, unequal shapes or a NaN
            score.
    """
    result: dict[str, Tensor] = {}
    for name, measure in parse_measures(names).items():
        k: Any = measure.params.get("cutoff")
        threshold = measure.params.get("rel", 1) if rel is None else rel
        unknown = set(measure.params) - {"cutoff", "rel"}
        if unknown:
            raise ValueError(f"metric {name!r}: {sorted(unknown)} is known to evaluate_run only")
        tensors = (scores, labels, mask, tie_order)
        if measure.NAME == "RR":
            result[name] = reciprocal_rank(*tensors, k, rel=threshold)
        elif measure.NAME == "AP":
            result[name] = average_precision(*tensors, k, rel=threshold, ideal_labels=ideal_labels)
        elif measure.NAME == "nDCG":
            result[name] = ndcg(*tensors, k, ideal_labels=ideal_labels)
        elif measure.NAME == "P":
            result[name] = precision(*tensors, k, rel=threshold)
        elif measure.NAME == "R":
            result[name] = recall(*tensors, k, rel=threshold, ideal_labels=ideal_labels)
        else:
            raise ValueError(f"metric {name!r} is known to evaluate_run only; per list: RR, AP, nDCG, P, R")
    return result


def parse_measures(names: Sequence[str]) -> dict[str, ir_measures.Measure]:
    """`{name as given: ir-measures object}`.

    Raises:
        ValueError: for no names, a name that ir-measures does not know, bad parameters, a cutoff below 1, or
            two names of one measure.
    """
    if isinstance(names, str) or not names:
        raise ValueError(f"expected a sequence of metric names such as ['RR@10'], got {names!r}")
    measures: dict[str, ir_measures.Measure] = {}
    for name in names:
        try:
            measure = ir_measures.parse_measure(name)
            measure.validate_params()
        except (ValueError, NameError, AssertionError, SyntaxError, TypeError) as error:
            raise ValueError(f"metric {name!r}: {error or 'not an ir-measures name'}") from error
        if measure.params.get("cutoff", 1) < 1:
            raise ValueError(f"metric {name!r}: the cutoff must be at least 1")
        if measure in measures.values():
            raise ValueError(f"metric {name!r} is named twice in {list(names)}")
        measures[name] = measure
    return measures


def _ranked(scores: Tensor, labels: Tensor, mask: Tensor, tie_order: Tensor) -> Tensor:
    """Labels in rank order [lists, items], 0 on padding, which comes last."""
    if scores.ndim != 2 or not scores.shape == labels.shape == mask.shape == tie_order.shape:
        raise ValueError(
            "scores, labels, mask and tie_order must all be [lists, items]; got "
            f"{tuple(scores.shape)}, {tuple(labels.shape)}, {tuple(mask.shape)}, {tuple(tie_order.shape)}"
        )
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be bool, got {mask.dtype}")
    bad = (scores.isnan() & mask).any(dim=1)
    if bad.any():
        raise ValueError(f"list {int(bad.nonzero()[0])} of the batch has a NaN score")
    by_id = tie_order.masked_fill(~mask, torch.iinfo(torch.long).max).argsort(dim=1)
    filled = scores.float().masked_fill(~mask, -torch.inf).gather(1, by_id)
    order = by_id.gather(1, filled.argsort(dim=1, descending=True, stable=True))
    return _judged(labels, mask, None).gather(1, order)


def _judged(labels: Tensor, mask: Tensor, ideal_labels: Tensor | None) -> Tensor:
    if ideal_labels is None:
        return _as_float(labels).masked_fill(~mask, 0)
    if ideal_labels.ndim != 2 or len(ideal_labels) != len(labels):
        raise ValueError(
            f"ideal_labels must be [lists, judged] with {len(labels)} lists, got {tuple(ideal_labels.shape)}"
        )
    return _as_float(ideal_labels)


def _as_float(labels: Tensor) -> Tensor:
    return labels.to(torch.promote_types(labels.dtype, torch.float32))


def _relevant(labels: Tensor, rel: float) -> Tensor:
    if rel <= 0:
        raise ValueError(f"rel must be above 0, the label of what is not judged, got {rel}")
    return (labels >= rel).to(labels.dtype)


def _relevant_count(labels: Tensor, mask: Tensor, rel: float, ideal_labels: Tensor | None) -> Tensor:
    return _relevant(_judged(labels, mask, ideal_labels), rel).sum(dim=1)


def _top(ranked: Tensor, k: int | None) -> Tensor:
    if k is not None and k < 1:
        raise ValueError(f"the cutoff must be at least 1, got {k}")
    return ranked if k is None else ranked[:, :k]


def _dcg(gains: Tensor, k: int | None) -> Tensor:
    top = _top(gains, k)
    ranks = torch.arange(1, top.shape[1] + 1, device=top.device, dtype=top.dtype)
    return (top / torch.log2(ranks + 1)).sum(dim=1)
