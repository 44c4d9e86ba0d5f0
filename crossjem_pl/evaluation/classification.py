"""Relevant or not: AUC, thresholds and the accuracies at them, on padded tensors.

The CROSS-JEM paper uses its ranker as a filter that drops irrelevant items, and measures that with AUC-ROC and the
positive, negative and overall accuracy "when retaining top 80% of positive items per query" (appendix D and G, Tables
7, 9 and 10). Importing this module registers `AUC`, `PosAcc@p`, `NegAcc@p` and `Acc@p` (p percent of the positives are
kept) as names of ir-measures.

- Scores are compared as float32, as in `metrics`. Equal scores are equal: no order of ids separates them.
- What is not defined is NaN, never 0: the AUC of a list whose items are all positive, for one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from ir_measures.measures import Measure, ParamInfo, register
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Pairs", "Share", "values_of"]

_ROUNDING = 1e-9
"""0.7 * 10 is a little above 7 in float64; without this slack its ceiling would be 8."""

_KINDS = {"PosAcc": "positive", "NegAcc": "negative", "Acc": "overall"}
_REL = {"rel": ParamInfo(dtype=int, default=1, desc="lowest relevance of a positive")}
_THRESHOLD = {
    "keep": ParamInfo(dtype=int, required=True, choices=range(1, 101), desc="percentage kept"),
    "threshold": ParamInfo(dtype=str, choices=("query", "run"), default="query", desc="one for each"),
}


class _PairMeasure(Measure):
    """A metric of (query, item) pairs: it has a value per query, and one over the pairs of all queries."""

    def validate_params(self) -> None:
        if "keep" in self.SUPPORTED_PARAMS and "keep" not in self.params:
            raise ValueError(f"say which percentage of the positives is kept, as in {self.NAME}@80")
        super().validate_params()


def _register(name: str, params: dict[str, ParamInfo], **fields: str) -> None:
    fields |= {"__name__": name, "NAME": name}
    register(type(name, (_PairMeasure,), {**fields, "SUPPORTED_PARAMS": params})())


_register("AUC", _REL)
for _name in _KINDS:
    _register(_name, _THRESHOLD | _REL, AT_PARAM="keep")


class Share(NamedTuple):
    """Counts of each list, int64 [lists]: `right` ones of `total`."""

    right: Tensor
    total: Tensor

    @property
    def per_list(self) -> Tensor:
        """The share in each list: float64 [lists], NaN where there is nothing to count."""
        return torch.where(self.total > 0, self.right.double() / self.total, torch.nan)

    @property
    def pooled(self) -> float:
        """The share of all (query, item) pairs together, as in the paper's tables; NaN without pairs."""
        return float(self.right.sum().double() / self.total.sum())


class Pairs:
    """Scored (query, item) pairs, positive where the label is at least `rel`.

    Args:
        scores, labels: [lists, items].
        mask: bool [lists, items], True on items.
        rel: lowest label of a positive.
    """

    def __init__(self, scores: Tensor, labels: Tensor, mask: Tensor, rel: float = 1) -> None:
        self.scores, self.mask, self.rel = scores.float(), mask, rel
        self.positive = mask & (labels >= rel)
        self.negative = mask & ~self.positive

    def auc(self) -> float:
        """Area under the ROC curve of all pairs together, NaN without positives or without negatives.

        AUC = P(s+ > s-) + P(s+ = s-) / 2 for a random positive and a random negative pair, of any queries: the
        Mann-Whitney U of the positives over P * N (Hanley and McNeil, Radiology 143, 1982). It asks for scores that
        mean the same for every query, which `auc_per_list` does not. (torchmetrics' takes the sigmoid of scores
        outside of [0, 1] first, in which large ones tie.)
        """
        return _auc(self.scores[self.mask].numpy(), self.positive[self.mask].numpy())

    def auc_per_list(self) -> Tensor:
        """AUC-ROC inside each list: float64 [lists], NaN where a list lacks positives or negatives."""
        rows = zip(self.scores.numpy(), self.positive.numpy(), self.mask.numpy(), strict=True)
        values = [_auc(scores[mask], positive[mask]) for scores, positive, mask in rows]
        return torch.tensor(values, dtype=torch.float64)

    def accuracies(self, threshold: float | Tensor) -> dict[str, Share]:
        """Accuracies when an item is predicted positive at a score >= `threshold`.

        Args:
            threshold: one number for all lists, or float [lists]; a list with NaN is left out of all counts.

        Returns:
            Of `positive` pairs those that are kept, of `negative` ones those that are dropped, of `overall` (all)
            those that are either.
        """
        limits = torch.as_tensor(threshold, dtype=torch.float64).expand(len(self.scores))[:, None]
        counted, kept = ~limits.isnan(), self.scores.double() >= limits
        positive, negative = self.positive & counted, self.negative & counted
        asked = {"positive": positive, "negative": negative, "overall": positive | negative}
        right = (positive & kept) | (negative & ~kept)
        return {kind: Share((of & right).sum(dim=1), of.sum(dim=1)) for kind, of in asked.items()}

    def recall_thresholds(self, keep: float = 0.8) -> Tensor:
        """The score of the ceil(keep * P)-th best of each list's P positives: float64 [lists], NaN where P = 0.

        "Retaining top 80% of positive items per query" (CROSS-JEM, appendix G, Table 7): found with the labels, so
        the accuracies there measure how well positives and negatives are separated, not a filter that could be
        deployed; one number for all lists measures that. At least `keep` of the positives reach it: the ceiling keeps
        3 of 3 at 0.8, and ties keep more. (The accuracies of Table 7, solved for the positive one with the 22 or 23
        positives per 100 items that its P@50 and R@50 imply, give 81 to 84% and not 80.)

        Raises:
            ValueError: if `keep` is not above 0 and at most 1.
        """
        _check_share("keep", keep)
        count = self.positive.sum(dim=1, keepdim=True)
        best = self.scores.masked_fill(~self.positive, -torch.inf).sort(dim=1, descending=True).values
        last = (count * keep - _ROUNDING).ceil().long().clamp(min=1) - 1
        return torch.where(count > 0, best.gather(1, last).double(), torch.nan).squeeze(1)

    def threshold_at_recall(self, keep: float = 0.8) -> float:
        """The highest threshold for all lists that keeps the share `keep` of a list's positives, on average.

        The mean is over the lists that have positives: every query weighs the same. The threshold lies half-way to
        the next lower score of any item, so that the last bits of a score, which change with the batch and the
        machine, decide nothing.

        Raises:
            ValueError: if `keep` is not above 0 and at most 1, or if there is no positive.
        """
        _check_share("keep", keep)
        count = self.positive.sum(dim=1, keepdim=True)
        if not count.any():
            raise ValueError(f"no item has a label of at least {self.rel:g}, so there is nothing to keep")
        weight = (1 / (count * (count > 0).sum()).double()).expand(self.scores.shape)[self.positive]
        values, order = self.scores[self.positive].sort(descending=True)
        reached = weight[order].cumsum(dim=0) >= keep - _ROUNDING
        return self._below(float(values[int(reached.int().argmax())]))

    def threshold_at_precision(self, precision: float = 0.9) -> float:
        """The lowest threshold for all lists at which `precision` of the kept pairs are positive.

        Precision is no monotone function of the threshold: above the one returned it may fall short again. The
        threshold lies half-way to the next lower score, as in `threshold_at_recall`.

        Raises:
            ValueError: if `precision` is not above 0 and at most 1, or if no threshold reaches it (names the best).
        """
        _check_share("precision", precision)
        values, order = self.scores[self.mask].sort(descending=True)
        right = self.positive[self.mask][order].cumsum(dim=0).double()
        found = right / torch.arange(1, len(values) + 1)
        last_of_ties = torch.ones_like(order, dtype=torch.bool)
        last_of_ties[:-1] = values[:-1] > values[1:]
        reached = (last_of_ties & (found >= precision - _ROUNDING)).nonzero()
        if not len(reached):
            best = float(found[last_of_ties].max())
            raise ValueError(f"no threshold has a precision of {precision:g}; the best of any is {best:.4f}")
        return self._below(float(values[int(reached[-1])]))

    def _below(self, kept: float) -> float:
        """Half-way from the lowest kept score to the next lower finite one; `kept` if there is none."""
        lower = self.scores[self.mask & (self.scores < kept) & self.scores.isfinite()]
        return (kept + float(lower.max())) / 2 if len(lower) else kept


def values_of(measure: Measure, pairs: Pairs) -> tuple[Tensor, float]:
    """Values per list of a measure of this module, float64 [lists], and the pooled value; NaN where not defined."""
    if measure.NAME == "AUC":
        return pairs.auc_per_list(), pairs.auc()
    keep = measure["keep"] / 100
    if measure["threshold"] == "query":
        threshold: Tensor | float = pairs.recall_thresholds(keep)
    else:
        threshold = pairs.threshold_at_recall(keep) if pairs.positive.any() else math.nan
    share = pairs.accuracies(threshold)[_KINDS[str(measure.NAME)]]
    return share.per_list, share.pooled


def _auc(scores: NDArray[Any], positive: NDArray[np.bool_]) -> float:
    """U / (P N), from midranks; NaN where P or N is 0."""
    from scipy.stats import rankdata

    p = int(positive.sum())
    pairs = p * (len(positive) - p)
    return float(rankdata(scores)[positive].sum() - p * (p + 1) / 2) / pairs if pairs else math.nan


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {value}")
