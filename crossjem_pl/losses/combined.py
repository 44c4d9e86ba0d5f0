"""Several losses at once, each on its own targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from crossjem_pl.losses.base import RankingLoss, Reduction

__all__ = ["Sum", "Term"]

_PLACES = ("labels", "scores")


@dataclass
class Term:
    """One loss of a `Sum`.

    Args:
        loss: over scores.
        targets: which of the two kinds of targets it reads, labels or a teacher's scores.
        weight: its factor, above 0.
    """

    loss: RankingLoss
    targets: Literal["labels", "scores"]
    weight: float = 1.0


class Sum(RankingLoss):
    """The weighted sum of several losses, such as softmax cross entropy on labels and RPL on a teacher's scores.

        loss = sum over terms i of weight_i * loss_i(scores, labels or teacher scores)

    Labels say what is relevant, a teacher's scores how the rest is ordered; Hinton et al., "Distilling the Knowledge in
    a Neural Network" (arXiv 1503.02531), section 2, add the two likewise. A term's value is its mean over the lists
    that have that loss. Set `model.targets: both`: the targets are [lists, items, 2], labels first, scores second.

    >>> from crossjem_pl.losses import MeanSquaredError
    >>> both = Sum([Term(MeanSquaredError(), "labels"), Term(MeanSquaredError(), "scores", 0.5)])
    >>> scores, targets = torch.tensor([[1.0, 0.0]]), torch.tensor([[[1.0, 0.6], [0.0, 0.2]]])
    >>> both(scores, targets, torch.ones(1, 2) > 0)  # 0 + 0.5 * (0.16 + 0.04) / 2
    tensor(0.0500)

    Args:
        terms: at least one.
    """

    terms: Sequence[Term]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.terms:
            raise ValueError("terms: a sum of losses needs at least one")
        for number, term in enumerate(self.terms, 1):
            name = type(term.loss).__name__
            if not isinstance(term.loss, RankingLoss) or isinstance(term.loss, Sum):
                raise ValueError(f"term {number}: expected a loss over scores other than Sum, got {name}")
            if term.targets not in _PLACES:
                raise ValueError(
                    f"term {number}, {name}: targets must be labels or scores, got {term.targets!r}"
                )
            if not 0 < term.weight < float("inf"):
                raise ValueError(
                    f"term {number}, {name}: weight must be positive and finite, got {term.weight!r}"
                )

    def forward(self, scores: Tensor, targets: Tensor, mask: Tensor, reduction: Reduction = "mean") -> Tensor:
        """As of `RankingLoss`, with `targets` [lists, items, 2].

        Raises:
            ValueError: on targets of another shape, or what a term raises.
        """
        if targets.ndim != 3 or targets.shape[2] != len(_PLACES):
            got = tuple(targets.shape)
            raise ValueError(
                f"Sum needs targets [lists, items, 2], labels and scores (model.targets: both); got {got}"
            )
        values = [
            term.weight * term.loss(scores, targets[..., _PLACES.index(term.targets)], mask, reduction)
            for term in self.terms
        ]
        return torch.stack(values).sum(dim=0)
