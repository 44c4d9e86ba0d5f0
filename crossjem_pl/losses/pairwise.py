"""Pairwise losses: every pair of items with different targets is judged by the difference of its scores."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from crossjem_pl.losses.base import (
    Distillation,
    PerList,
    RankingLoss,
    TargetKind,
    differences,
    mean_over_pairs,
    strict_pairs,
)

__all__ = ["MarginMSE", "RankNet"]


class RankNet(RankingLoss):
    """Logistic loss over the pairs whose targets differ.

        loss = mean over pairs y_i > y_j of log(1 + exp(-(s_i - s_j)))

    Burges et al., "Learning to Rank using Gradient Descent" (ICML 2005), with hard preferences. Natural logarithm; mean
    over the pairs of a list, then over the lists. A list has a loss if two of its targets differ.

    Targets: anything that orders the items [lists, items].
    """

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        pairs = strict_pairs(targets, mask)
        terms = -functional.logsigmoid(differences(scores))
        return mean_over_pairs(terms, pairs), pairs.any(dim=(-2, -1))


class MarginMSE(Distillation):
    """Squared distance of the margins of the scores to the margins of the teacher.

        loss = mean over pairs t_i > t_j of ( (s_i - s_j) - (t_i - t_j) )^2

    Hofstaetter et al., "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge Distillation"
    (arXiv 2010.02666), over all pairs of a list with different targets instead of one positive and one negative. A
    list has a loss if two of its targets differ.

    Args:
        targets: teacher scores [lists, items].
        targets_are: "logits" are scores of any scale.
        epsilon: see `Distillation`.
    """

    targets_are: TargetKind = "logits"

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        pairs = strict_pairs(targets, mask)
        squares = (differences(scores) - differences(self.teacher_logits(targets, mask))).square()
        return mean_over_pairs(squares, pairs), pairs.any(dim=(-2, -1))
