"""Pointwise losses: every item is judged by itself."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from crossjem_pl.losses.base import PerList, RankingLoss, check_probabilities, masked_mean

__all__ = ["BinaryCrossEntropy", "MeanSquaredError"]


class BinaryCrossEntropy(RankingLoss):
    """Binary cross entropy of sigmoid(score) against a probability, the loss of monoBERT.

        loss = mean over items j of -( y_j log sigmoid(s_j) + (1 - y_j) log sigmoid(-s_j) )

    Nogueira and Cho, "Passage Re-ranking with BERT" (arXiv 1901.04085). The mean runs over the items of a list and
    then over the lists, so each query weighs the same whatever its number of items. A list has a loss if it has an
    item.

    Targets: binary labels or teacher probabilities [lists, items], in [0, 1].

    Raises:
        ValueError: on a target outside [0, 1].
    """

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        check_probabilities(targets, mask, "binary cross entropy")
        terms = functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")
        return masked_mean(terms, mask), mask.any(dim=-1)


class MeanSquaredError(RankingLoss):
    """Squared distance of the score to the target.

        loss = mean over items j of (s_j - y_j)^2

    The pointwise distillation loss: the scores take the teacher's scale. `margin_mse` leaves the level of a list free
    and fits the differences only. A list has a loss if it has an item.

    Targets: numbers on the scale that the scores shall have, usually teacher logits [lists, items].
    """

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        return masked_mean((scores - targets).square(), mask), mask.any(dim=-1)
