"""Relevant or not: AUC and the accuracies of a threshold, as pure functions on padded tensors.

The CROSS-JEM paper uses its ranker as a filter that weeds out irrelevant items, and measures that with AUC-ROC
and the positive, negative and overall accuracy "when retaining top 80% of positive items per query" (appendix D
and G, Tables 7, 9 and 10). All functions take `scores` and `labels` [lists, items] and `mask` bool [lists,
items] (True on items).

- An item is positive when its label >= `rel` (1 unless told), and negative otherwise.
- Scores are compared as float32, as in `metrics`. Equal scores are equal: no order of ids parts them.
- What is not defined is NaN, never 0: the AUC of a list whose items are all positive, for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from crossjem_pl.evaluation.metrics import check_scored

__all__ = [
    "Accuracies",
    "Kind",
    "accuracies_at",
    "accuracies_at_recall",
    "auc_roc",
    "auc_roc_per_list",
    "positives",
    "recall_thresholds",
]

Kind = Literal["positive", "negative", "overall"]

_ROUNDING = 1e-9
"""0.7 * 10 is a little above 7 in float64; without this slack its ceiling would be 8."""


def auc_roc(scores: Tensor, labels: Tensor, mask: Tensor, *, rel: float = 1) -> Tensor:
    """Area under the ROC curve of all (query, item) pairs together: float64, 0-d.

    AUC = P(s+ > s-) + P(s+ = s-) / 2 for a random positive and a random negative pair, of any queries: the
    Mann-Whitney U of the positives over P * N (Hanley and McNeil, Radiology 143, 1982). Computed from
    midranks, O(n log n). It asks for scores that mean the same for every query, which `auc_roc_per_list` does
    not. NaN if there are no positives or no negatives.

    Raises:
        ValueError: for unequal shapes, a mask that is not bool, or a NaN score.
    """
    positive = positives(scores, labels, mask, rel)
    row = mask.flatten().nonzero().squeeze(1)
    return _mann_whitney(
        scores.flatten()[row][None],
        positive.flatten()[row][None],
        torch.ones_like(row, dtype=torch.bool)[None],
    )[0]


def auc_roc_per_list(scores: Tensor, labels: Tensor, mask: Tensor, *, rel: float = 1) -> Tensor:
    """AUC-ROC inside each list: float64 [lists], NaN where a list lacks positives or negatives.

    The chance that a random positive of the list is scored above a random negative of it, ties counting half.

    Raises:
        ValueError: as in `auc_roc`.
    """
    return _mann_whitney(scores, positives(scores, labels, mask, rel), mask)


@dataclass(frozen=True, slots=True)
class Accuracies:
    """What a threshold does to each list, as counts; the accuracies of the CROSS-JEM paper follow from them.

    A list that has no threshold (see `recall_thresholds`) has 0 everywhere: it is excluded from all shares.

    Args:
        kept_positives: int64 [lists], positives at or above the threshold.
        positives: int64 [lists].
        dropped_negatives: int64 [lists], negatives below the threshold.
        negatives: int64 [lists].
        excluded: lists without a threshold.
    """

    kept_positives: Tensor
    positives: Tensor
    dropped_negatives: Tensor
    negatives: Tensor
    excluded: int

    def per_list(self, kind: Kind) -> Tensor:
        """The accuracy inside each list: float64 [lists], NaN where there is nothing to count.

        positive: share of the positives that are kept; negative: share of the negatives that are dropped;
        overall: share of all items that are either.
        """
        right, of = self._counts(kind)
        return torch.where(of > 0, right.double() / of, torch.nan)

    def mean(self, kind: Kind) -> float:
        """Mean of `per_list` over the lists that have the value; NaN if none has."""
        return float(self.per_list(kind).nanmean())

    def pooled(self, kind: Kind) -> float:
        """The accuracy over all (query, item) pairs together, as the paper's tables; NaN without pairs."""
        right, of = self._counts(kind)
        return float(right.sum().double() / of.sum())

    @property
    def kept(self) -> Tensor:
        """Items at or above the threshold: int64 [lists]."""
        return self.kept_positives + self.negatives - self.dropped_negatives

    def _counts(self, kind: Kind) -> tuple[Tensor, Tensor]:
        if kind == "positive":
            return self.kept_positives, self.positives
        if kind == "negative":
            return self.dropped_negatives, self.negatives
        return self.kept_positives + self.dropped_negatives, self.positives + self.negatives


def accuracies_at(
    scores: Tensor, labels: Tensor, mask: Tensor, threshold: float | Tensor, *, rel: float = 1
) -> Accuracies:
    """Accuracies when an item is predicted positive at a score >= `threshold`.

    Args:
        threshold: one number for all lists, or one per list, float [lists]; a list with NaN is excluded.

    Raises:
        ValueError: as in `auc_roc`, or if `threshold` has another shape.
    """
    positive = positives(scores, labels, mask, rel)
    limits = torch.as_tensor(threshold, dtype=torch.float64, device=scores.device)
    if limits.ndim > 1 or (limits.ndim == 1 and len(limits) != len(scores)):
        raise ValueError(f"threshold must be a number or [{len(scores)}], got {tuple(limits.shape)}")
    limits = limits.expand(len(scores))
    counted = ~limits.isnan()[:, None]
    kept = scores.float().double() >= limits[:, None]
    negative = mask & ~positive

    def count(where: Tensor) -> Tensor:
        return (where & counted).sum(dim=1)

    return Accuracies(
        count(positive & kept),
        count(positive),
        count(negative & ~kept),
        count(negative),
        int((~counted).sum()),
    )


def accuracies_at_recall(
    scores: Tensor, labels: Tensor, mask: Tensor, keep: float = 0.8, *, rel: float = 1
) -> Accuracies:
    """Accuracies when each list has the threshold that keeps `keep` of its own positives.

    "Negative and overall accuracy when retaining top 80% of positive items per query" (CROSS-JEM, appendix G,
    Table 7). The thresholds are those of `recall_thresholds`: they are found with the labels, so this measures
    how well positives and negatives are parted, not a filter that could be deployed. `accuracies_at` with one
    number measures that.

    Raises:
        ValueError: as in `auc_roc`, or if `keep` is not above 0 and at most 1.
    """
    return accuracies_at(
        scores, labels, mask, recall_thresholds(scores, labels, mask, keep, rel=rel), rel=rel
    )


def recall_thresholds(
    scores: Tensor, labels: Tensor, mask: Tensor, keep: float = 0.8, *, rel: float = 1
) -> Tensor:
    """The score of the ceil(keep * P)-th best of each list's P positives: float64 [lists], NaN where P = 0.

    At least `keep` of the positives reach it: the ceiling keeps 3 of 3 at 0.8, and ties keep more. (The
    overall and negative accuracies of Table 7, solved for the positive one with the 22 or 23 positives per 100
    items that its P@50 and R@50 imply, give 81 to 84% and not 80.)

    Raises:
        ValueError: as in `accuracies_at_recall`.
    """
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be above 0 and at most 1, got {keep}")
    positive = positives(scores, labels, mask, rel)
    count = positive.sum(dim=1, keepdim=True)
    best = scores.float().masked_fill(~positive, -torch.inf).sort(dim=1, descending=True).values
    last = (count * keep - _ROUNDING).ceil().long().clamp(min=1) - 1
    return torch.where(count > 0, best.gather(1, last).double(), torch.nan).squeeze(1)


def positives(scores: Tensor, labels: Tensor, mask: Tensor, rel: float = 1) -> Tensor:
    """Items whose label is at least `rel`: bool [lists, items].

    Raises:
        ValueError: for unequal shapes, a mask that is not bool, or a NaN score.
    """
    check_scored(scores, labels, mask)
    return mask & (labels >= rel)


def _mann_whitney(scores: Tensor, positive: Tensor, mask: Tensor) -> Tensor:
    """U / (P N) of each row, float64 [rows]; NaN where P or N is 0."""
    items = mask.sum(dim=1, keepdim=True)
    values = scores.float().masked_fill(~mask, torch.inf)
    ordered = values.sort(dim=1).values
    below = torch.searchsorted(ordered, values)
    # padding sorts last, level with scores that are infinite themselves
    through = torch.searchsorted(ordered, values, right=True).minimum(items)
    midrank = (below + through + 1).double() / 2
    count = positive.sum(dim=1).double()
    pairs = count * (items.squeeze(1) - count)
    u = (midrank * positive).sum(dim=1) - count * (count + 1) / 2
    return torch.where(pairs > 0, u / pairs, torch.nan)
