"""What every ranking loss shares: options, the masked call, the order of a list's targets, checks."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any, Literal, dataclass_transform, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Distillation", "RankingLoss", "Reduction", "TargetKind", "VectorLoss"]

Reduction = Literal["mean", "sum", "none"]
TargetKind = Literal["probabilities", "logits"]
PerList = tuple[Tensor, Tensor]
"""The loss of each list [lists], and bool [lists]: the list has one."""

_POSITIVE, _CUTOFF = ("temperature", "sigma", "mu"), ("k", "top_k")
"""Options with one meaning in all losses: positive and finite numbers; whole numbers of at least 1, or None."""


@dataclass_transform(eq_default=False)
class _Loss(nn.Module):
    """A loss whose options are the annotated fields of its class: they make its constructor, as in a dataclass."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__annotations__ = inspect.get_annotations(cls, eval_str=True)
        dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
            ValueError: naming the option.
        """
        super().__init__()
        for option in fields(self):  # type: ignore[arg-type]
            name, value, choices = option.name, getattr(self, option.name), get_args(option.type)
            if name in _POSITIVE and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive and finite, got {value!r}")
            if name in _CUTOFF and value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1 or None, got {value!r}")
            if choices and isinstance(choices[0], str) and value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")

    @property
    def options(self) -> dict[str, Any]:
        """The options by name."""
        return {option.name: getattr(self, option.name) for option in fields(self)}  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class RankingLoss(_Loss):
    """A masked loss over scores: `forward(scores, targets, mask) -> scalar`, always in float32.

    Shapes: `scores` and `targets` [lists, items], `mask` bool [lists, items], True on items. Entries where the mask is
    False may hold anything, infinities and NaN included: they take no part in the value or the gradient.

    Each list's loss depends on that list alone: on neither the padding nor the other lists of the batch. The value is
    the mean over the lists that have a loss; a list that has none (each class says which) is not counted.

    A subclass has its options as annotated fields, and `per_list`.
    """

    def forward(self, scores: Tensor, targets: Tensor, mask: Tensor, reduction: Reduction = "mean") -> Tensor:
        """The mean loss over the lists that have one, their sum, or with "none" the loss of each list [lists].

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
        scores, targets = (x.to(dtype).masked_fill(~mask, 0.0) for x in (scores, targets.detach()))
        return reduce_lists(*self.per_list(scores, targets, mask), reduction)

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        """The loss of each list; padding holds 0, scores and targets are at least float32."""
        raise NotImplementedError


class Distillation(RankingLoss):
    """A loss that reads the targets as a teacher's logits.

    Args:
        targets_are: "probabilities" are turned into logits log(p / (1 - p)), "logits" are taken as they are.
        epsilon: probabilities are clamped to [epsilon, 1 - epsilon]; at least 1e-6, below which 1 - epsilon is 1 in
            float32, and below 0.5.
    """

    targets_are: TargetKind = "probabilities"
    epsilon: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1e-6 <= self.epsilon < 0.5:
            raise ValueError(f"epsilon must be at least 1e-6 and below 0.5, got {self.epsilon!r}")

    def teacher_logits(self, targets: Tensor, mask: Tensor) -> Tensor:
        """The teacher's logits [lists, items].

        Raises:
            ValueError: on a probability outside [0, 1].
        """
        if self.targets_are == "logits":
            return targets
        check_probabilities(targets, mask, f"{type(self).__name__} with targets_are='probabilities'")
        return torch.logit(targets, eps=self.epsilon)


class VectorLoss(_Loss):
    """A loss over vectors instead of scores: the score of any query of the batch with any item is their inner
    product. Only rankers with `vectors` (dual encoders) can be trained with it.

    Shapes: `query_vectors` floating point [lists, width] and `item_vectors` [lists, items, width], finite on items;
    `targets` and bool `mask` [lists, items]; `item_keys` int64 [lists, items] and `query_keys` int64 [lists], equal
    where the texts are (hashes of them). Where the mask is False, anything goes.
    """

    def forward(
        self,
        query_vectors: Tensor,
        item_vectors: Tensor,
        targets: Tensor,
        mask: Tensor,
        item_keys: Tensor,
        query_keys: Tensor,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """The mean loss over the lists that have one: float32, or float64 for float64 vectors."""
        raise NotImplementedError


def check_targets(allowed: Tensor, targets: Tensor, mask: Tensor, expected: str) -> None:
    """Raises a ValueError that names the first target of an item where `allowed`, bool [lists, items], is False.

    `expected` is what the loss takes, for the message.
    """
    wrong = mask & ~allowed
    if bool(wrong.any()):
        row, column = (int(i) for i in wrong.nonzero()[0])
        raise ValueError(f"targets[{row}, {column}] is {targets[row, column].item():.6g}: {expected}")


def check_probabilities(targets: Tensor, mask: Tensor, loss: str) -> None:
    """Raises a ValueError that names the first target outside [0, 1]."""
    check_targets((targets >= 0) & (targets <= 1), targets, mask, f"{loss} takes probabilities in [0, 1]")


def masked_log_softmax(values: Tensor, mask: Tensor) -> Tensor:
    """Log-softmax over the items of each list [lists, items]; 0 on padding."""
    filled = values.masked_fill(~mask, torch.finfo(values.dtype).min)
    return torch.log_softmax(filled, dim=-1).masked_fill(~mask, 0.0)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the masked entries of each list [lists]; 0 where there are none."""
    return values.masked_fill(~mask, 0.0).sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)


def ratio(values: Tensor, total: Tensor) -> Tensor:
    """`values` / `total`; `values` where the total is not positive."""
    return values / torch.where(total > 0, total, torch.ones_like(total))


def at_least_two_items(mask: Tensor) -> Tensor:
    """bool [lists]: the list has something to rank."""
    return mask.sum(dim=-1) > 1


def strict_pairs(targets: Tensor, mask: Tensor) -> Tensor:
    """bool [lists, items, items]: True at [l, i, j] where target i is strictly greater than target j."""
    return (differences(targets) > 0) & mask[:, :, None] & mask[:, None, :]


def differences(values: Tensor) -> Tensor:
    """[lists, items, items]: value i less value j at [l, i, j]."""
    return values[:, :, None] - values[:, None, :]


def mean_over_pairs(values: Tensor, pairs: Tensor) -> Tensor:
    """Mean of [lists, items, items] over the marked pairs of each list; 0 where there are none."""
    return masked_mean(values.flatten(1), pairs.flatten(1))


def better_count(targets: Tensor, mask: Tensor) -> Tensor:
    """int64 [lists, items]: how many items of the list have a strictly greater target."""
    return _count_below(-targets, mask)[0]


def logsumexp_below(values: Tensor, keys: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """log sum of exp(values_k) over the items k of the list with keys_k < keys_j, for every item j.

    One sort and one running log-sum-exp: O(N log N) time and O(N) memory a list. The inequality is strict: items with
    equal keys are in no sum of each other, so the result does not depend on the order of the items.

    Returns:
        The sums [lists, items], 0 where there is nothing below, and bool [lists, items]: there is something
        below.

    >>> sums, has_below = logsumexp_below(torch.zeros(1, 3), torch.tensor([[0.9, 0.1, 0.4]]), torch.ones(1, 3) > 0)
    >>> sums.exp().tolist(), has_below.tolist()
    ([[2.0, 1.0, 1.0]], [[True, False, True]])
    """
    count, order = _count_below(keys, mask)
    running = torch.logcumsumexp(values.masked_fill(~mask, 0.0).gather(-1, order), dim=-1)
    has_below = (count > 0) & mask
    return running.gather(-1, (count - 1).clamp(min=0)).masked_fill(~has_below, 0.0), has_below


def plackett_luce_terms(scores: Tensor, targets: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """-log of the probability that each item comes first of itself and those strictly below it, and `has_below`.

    Both [lists, items]; the terms are 0 where nothing is below.
    """
    below, has_below = logsumexp_below(scores, targets, mask)
    return -functional.logsigmoid(scores - below).masked_fill(~has_below, 0.0), has_below


def _count_below(keys: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """How many keys of the list are smaller than each, and the ascending order with padding at the end."""
    ascending, order = keys.masked_fill(~mask, torch.inf).sort(dim=-1)
    count = torch.searchsorted(ascending, keys.contiguous())
    return count.masked_fill(~mask, 0), order


def reduce_lists(per_list: Tensor, has_loss: Tensor, reduction: Reduction) -> Tensor:
    """Reduces [lists] to the mean over `has_loss` (0, with a gradient, if there is none), the sum, or not."""
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction must be one of {', '.join(get_args(Reduction))}; got {reduction!r}")
    per_list = per_list.masked_fill(~has_loss, 0.0)
    if reduction == "none":
        return per_list
    return per_list.sum() if reduction == "sum" else per_list.sum() / has_loss.sum().clamp(min=1)
