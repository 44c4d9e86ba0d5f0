"""Pointwise losses: every item is judged by itself."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from crossjem_pl.losses.base import (
    RankingLoss,
    Reduction,
    check_probabilities,
    check_shapes,
    masked_mean,
    reduce_lists,
)

__all__ = ["BinaryCrossEntropy", "MeanSquaredError", "binary_cross_entropy", "mean_squared_error"]


def binary_cross_entropy(
    scores: Tensor, targets: Tensor, mask: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Binary cross entropy of sigmoid(score) against a probability, the loss of monoBERT.

        loss = mean over items j of -( y_j log sigmoid(s_j) + (1 - y_j) log sigmoid(-s_j) )

    Nogueira and Cho, "Passage Re-ranking with BERT" (arXiv 1901.04085). The mean runs over the items of a
    list and then over the lists, so each query weighs the same whatever its number of items.

    Args:
        targets: binary labels or teacher probabilities [lists, items], in [0, 1].
        reduction: over the lists. A list has a loss if it has an item.

    Raises:
        ValueError: on a target outside [0, 1].
    """
    scores, targets, mask = check_shapes(scores, targets, mask)
    check_probabilities(targets, mask, "binary cross entropy")
    terms = functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    return reduce_lists(masked_mean(terms, mask), mask.any(dim=-1), reduction)


class BinaryCrossEntropy(RankingLoss, name="bce", function=binary_cross_entropy):
    """Module of `binary_cross_entropy`. Targets: binary labels or teacher probabilities."""


def mean_squared_error(
    scores: Tensor, targets: Tensor, mask: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Squared distance of the score to the target.

        loss = mean over items j of (s_j - y_j)^2

    The pointwise distillation loss: the scores take the teacher's scale. `margin_mse` leaves the level of a
    list free and fits the differences only.

    Args:
        targets: numbers on the scale that the scores shall have, usually teacher logits [lists, items].
        reduction: over the lists. A list has a loss if it has an item.
    """
    scores, targets, mask = check_shapes(scores, targets, mask)
    return reduce_lists(masked_mean((scores - targets).square(), mask), mask.any(dim=-1), reduction)


class MeanSquaredError(RankingLoss, name="mse", function=mean_squared_error):
    """Module of `mean_squared_error`. Targets: teacher scores on the scale that the scores shall have."""
