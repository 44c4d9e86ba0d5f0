"""What every ranking loss shares: the contract, the masked helpers, the registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["LOSSES", "Reduction", "RankingLoss", "check_shapes", "masked_log_softmax", "reduce_lists", "register"]

Reduction = Literal["mean", "sum", "none"]


class RankingLoss(nn.Module, ABC):
    """Thin module around a pure masked function: `forward(scores, targets, mask) -> scalar`, always in float32.

    Shapes: `scores` and `targets` [lists, items], `mask` bool [lists, items], True on items. Entries where the
    mask is False may hold anything, infinities and NaN included: they take no part in the value or the gradient.
    """

    name: ClassVar[str]
    """Key in the registry, the name of the overlay `experiments/losses/<name>.yaml`."""

    @abstractmethod
    def forward(self, scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
        """The mean loss over the lists that have one."""


LOSSES: dict[str, type[RankingLoss]] = {}
"""All losses by name. Importing `crossjem_pl.losses` fills it."""

L = TypeVar("L", bound=type[RankingLoss])


def register(cls: L) -> L:
    """Class decorator that enters a loss in the registry under `cls.name`."""
    if cls.name in LOSSES:
        raise ValueError(f"two losses are named {cls.name!r}")
    LOSSES[cls.name] = cls
    return cls


def check_shapes(scores: Tensor, targets: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores and targets with padding set to 0, at least float32 (half precision is raised, float64 stays).

    Raises:
        ValueError: on unequal shapes, tensors that are not [lists, items], or a mask that is not bool.
    """
    if scores.ndim != 2 or scores.shape != targets.shape or scores.shape != mask.shape:
        raise ValueError(
            "scores, targets and mask must all be [lists, items]; got "
            f"{tuple(scores.shape)}, {tuple(targets.shape)}, {tuple(mask.shape)}"
        )
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be bool, got {mask.dtype}")
    dtype = torch.promote_types(scores.dtype, torch.float32)
    zero = torch.zeros((), dtype=dtype, device=scores.device)
    return torch.where(mask, scores.to(dtype), zero), torch.where(mask, targets.to(dtype), zero), mask


def masked_log_softmax(values: Tensor, mask: Tensor) -> Tensor:
    """Log-softmax over the items of each list [lists, items]; 0 on padding."""
    filled = values.masked_fill(~mask, torch.finfo(values.dtype).min)
    return torch.log_softmax(filled, dim=-1).masked_fill(~mask, 0.0)


def reduce_lists(per_list: Tensor, has_loss: Tensor, reduction: Reduction) -> Tensor:
    """Reduces [lists] to the mean over `has_loss` (0 with a gradient if there is none), the sum, or nothing."""
    per_list = torch.where(has_loss, per_list, torch.zeros_like(per_list))
    if reduction == "none":
        return per_list
    if reduction == "sum":
        return per_list.sum()
    return per_list.sum() / has_loss.sum().clamp(min=1)
