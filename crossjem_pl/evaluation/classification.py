"""Relevant or not: AUC, thresholds and the accuracies at them, on padded tensors.

The CROSS-JEM paper uses its ranker as a filter that drops irrelevant items, and measures that with AUC-ROC and the
positive, negative and overall accuracy "when retaining top 80% of positive items per query" (appendix D and G, Tables
7, 9 and 10).

- Scores are compared as float32, as in `metrics`. Equal scores are equal: no order of ids separates them.
- What is not defined is NaN, never 0: the AUC of a list whose items are all positive, for one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from crossjem_pl.evaluation.metrics import check_scored

__all__ = ["Accuracies", "Pairs", "Share"]

_ROUNDING = 1e-9
"""0.7 * 10 is a little above 7 in float64; without this slack its ceiling would be 8."""


@dataclass(frozen=True, slots=True)
class Share:
    """Counts of each list, int64 [lists]: `right` ones of `total`."""

    right: Tensor
    total: Tensor

    @property
    def per_list(self) -> Tensor:
        """The share in each list: float64 [lists], NaN where there is nothing to count."""
        return torch.where(self.total > 0, self.right.double() / self.total, torch.nan)

    @property
    def mean(self) -> float:
        """Mean of `per_list` over the lists that have the value; NaN if none has."""
        return float(self.per_list.nanmean())

    @property
    def pooled(self) -> float:
        """The share of all (query, item) pairs together, as in the paper's tables; NaN without pairs."""
        return float(self.right.sum().double() / self.total.sum())


@dataclass(frozen=True, slots=True)
class Accuracies:
    """What a threshold does; a list without a threshold has 0 everywhere and is excluded from all shares.

    Args:
        positive: positives that are kept, of all positives.
        negative: negatives that are dropped, of all negatives.
        excluded: lists without a threshold.
    """

    positive: Share
    negative: Share
    excluded: int

    @property
    def overall(self) -> Share:
        """Kept positives and dropped negatives, of all items."""
        return Share(self.positive.right + self.negative.right, self.positive.total + self.negative.total)

    @property
    def kept(self) -> Tensor:
        """Items at or above the threshold: int64 [lists]."""
        return self.positive.right + self.negative.total - self.negative.right


class Pairs:
    """Scored (query, item) pairs, positive where the label is at least `rel`.

    Args:
        scores, labels: [lists, items].
        mask: bool [lists, items], True on items.
        rel: lowest label of a positive.

    Raises:
        ValueError: for unequal shapes, a mask that is not bool, or a NaN score.
    """

    def __init__(self, scores: Tensor, labels: Tensor, mask: Tensor, rel: float = 1) -> None:
        check_scored(scores, labels, mask)
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
        chosen = self.mask.flatten()
        flat = [tensor.flatten()[chosen][None] for tensor in (self.scores, self.positive, self.mask)]
        return float(_mann_whitney(flat[0], flat[1], flat[2]))

    def auc_per_list(self) -> Tensor:
        """AUC-ROC inside each list: float64 [lists], NaN where a list lacks positives or negatives."""
        return _mann_whitney(self.scores, self.positive, self.mask)

    def accuracies(self, threshold: float | Tensor) -> Accuracies:
        """Accuracies when an item is predicted positive at a score >= `threshold`.

        Args:
            threshold: one number for all lists, or float [lists]; a list with NaN is excluded.
        """
        limits = torch.as_tensor(threshold, dtype=torch.float64, device=self.scores.device)
        if limits.ndim > 1 or (limits.ndim == 1 and len(limits) != len(self.scores)):
            raise ValueError(f"threshold must be a number or [{len(self.scores)}], got {tuple(limits.shape)}")
        limits = limits.expand(len(self.scores))[:, None]
        counted, kept = ~limits.isnan(), self.scores.double() >= limits
        positive, negative = self.positive & counted, self.negative & counted
        return Accuracies(
            Share((positive & kept).sum(dim=1), positive.sum(dim=1)),
            Share((negative & ~kept).sum(dim=1), negative.sum(dim=1)),
            int((~counted).sum()),
        )

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
        if not len(values):
            raise ValueError("there are no items")
        right = self.positive[self.mask][order].cumsum(dim=0).double()
        found = right / torch.arange(1, len(values) + 1, device=values.device)
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


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {value}")


def _mann_whitney(scores: Tensor, positive: Tensor, mask: Tensor) -> Tensor:
    """U / (P N) of each row, float64 [rows], from midranks; NaN where P or N is 0."""
    items = mask.sum(dim=1, keepdim=True)
    values = scores.masked_fill(~mask, torch.inf)
    ordered = values.sort(dim=1).values
    below = torch.searchsorted(ordered, values)
    # padding sorts last, level with scores that are infinite themselves
    through = torch.searchsorted(ordered, values, right=True).minimum(items)
    midrank = (below + through + 1).double() / 2
    count = positive.sum(dim=1).double()
    pairs = count * (items.squeeze(1) - count)
    u = (midrank * positive).sum(dim=1) - count * (count + 1) / 2
    return torch.where(pairs > 0, u / pairs, torch.nan)
