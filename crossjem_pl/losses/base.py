"""What every ranking loss shares: the contract, the step from function to module, masked helpers, checks."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar, Literal, get_args, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["LOSSES", "VECTOR_LOSSES", "RankingLoss", "Reduction", "TargetKind", "VectorLoss"]

Reduction = Literal["mean", "sum", "none"]
TargetKind = Literal["probabilities", "logits"]
PerList = tuple[Tensor, Tensor]
"""The loss of each list [lists], and bool [lists]: the list has one."""


class _Loss(nn.Module):
    """A loss with options: the constructor takes the keyword arguments of the static method `compute`, except
    `reduction`, with the same defaults, and raises the errors that it has for them."""

    name: ClassVar[str]
    """Key in the registry, the name of the overlay `experiments/losses/<name>.yaml`."""
    registry: ClassVar[dict[str, Any]]
    compute: ClassVar[Callable[..., Any]]
    _signature: ClassVar[Signature] = Signature()

    def __init_subclass__(cls, *, name: str = "") -> None:
        super().__init_subclass__()
        if "compute" not in vars(cls):  # a base class, or a loss with its own `forward`
            return
        types = get_type_hints(cls.compute)
        options = [
            parameter.replace(kind=Parameter.POSITIONAL_OR_KEYWORD, annotation=types[parameter.name])
            for parameter in signature(cls.compute).parameters.values()
            if parameter.kind is Parameter.KEYWORD_ONLY and parameter.name != "reduction"
        ]

        def __init__(self: _Loss, *arguments: Any, **options: Any) -> None:
            super(cls, self).__init__(*arguments, **options)

        this = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        __init__.__signature__ = Signature([this, *options])  # type: ignore[attr-defined]
        __init__.__doc__ = cls.__doc__
        cls.__init__ = __init__  # type: ignore[method-assign]
        cls.name, cls._signature = name, Signature(options)
        cls.registry[name] = cls

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        bound = self._signature.bind(*arguments, **options)
        bound.apply_defaults()
        self.options: dict[str, Any] = dict(bound.arguments)
        if hasattr(self, "compute"):
            self._check_options()

    def _check_options(self) -> None:
        """Raises what `compute` raises for the options."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


LOSSES: dict[str, type[RankingLoss]] = {}
"""All losses by name. Importing `crossjem_pl.losses` fills it."""
VECTOR_LOSSES: dict[str, type[VectorLoss]] = {}
"""All losses over vectors by name. Importing `crossjem_pl.losses` fills it."""


class RankingLoss(_Loss):
    """A masked loss over scores: `forward(scores, targets, mask) -> scalar`, always in float32.

    Shapes: `scores` and `targets` [lists, items], `mask` bool [lists, items], True on items. Entries where the mask is
    False may hold anything, infinities and NaN included: they take no part in the value or the gradient.

    Each list's loss depends on that list alone: on neither the padding nor the other lists of the batch. The value is
    the mean over the lists that have a loss; a list that has none (each class says which) is not counted.

    A subclass `class ListNet(RankingLoss, name="listnet")` has a static method `compute(scores, targets, mask, *,
    options) -> PerList`; its tensors are as `check_shapes` gives them.
    """

    registry = LOSSES

    def forward(self, scores: Tensor, targets: Tensor, mask: Tensor, reduction: Reduction = "mean") -> Tensor:
        """The mean loss over the lists that have one, their sum, or with "none" the loss of each list [lists]."""
        per_list, has_loss = self.compute(*check_shapes(scores, targets, mask), **self.options)
        return reduce_lists(per_list, has_loss, reduction)

    def _check_options(self) -> None:
        nothing = torch.zeros(1, 2, device="cpu")
        self(nothing, nothing, nothing == 0)


class VectorLoss(_Loss):
    """A loss over vectors instead of scores: the score of any query of the batch with any item is their inner
    product. Only rankers with `vectors` (dual encoders) can be trained with it. The option `gather` extends the batch
    to all processes.

    Shapes: `query_vectors` floating point [lists, width] and `item_vectors` [lists, items, width], finite on items;
    `targets` and bool `mask` [lists, items]; `item_keys` int64 [lists, items] and `query_keys` int64 [lists], equal
    where the texts are (hashes of them). Where the mask is False, anything goes.
    """

    registry = VECTOR_LOSSES

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
        tensors = query_vectors, item_vectors, targets, mask, item_keys, query_keys
        return self.compute(*tensors, **self.options, reduction=reduction)

    def _check_options(self) -> None:
        nothing = torch.zeros(1, 2, device="cpu")
        keys = nothing.long()
        tensors = nothing, nothing[..., None].expand(1, 2, 2), nothing, nothing == 0, keys, keys[:, 0]
        self.compute(*tensors, **{**self.options, "gather": False})


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
    scores, targets = scores.to(dtype), targets.detach().to(dtype)
    return scores.masked_fill(~mask, 0.0), targets.masked_fill(~mask, 0.0), mask


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


def check_positive(**options: float) -> None:
    """Raises a ValueError that names the first option that is not a positive finite number."""
    for name, value in options.items():
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} must be positive and finite, got {value!r}")


def check_cutoff(**options: int | None) -> None:
    """Raises a ValueError that names the first option that is neither None nor at least 1."""
    for name, value in options.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1 or None, got {value!r}")


def check_choice(choices: Any, **options: str) -> None:
    """Raises a ValueError that names the first option that is not a string of the `Literal` type `choices`."""
    for name, value in options.items():
        if value not in get_args(choices):
            allowed = ", ".join(map(repr, get_args(choices)))
            raise ValueError(f"{name} must be one of {allowed}; got {value!r}")


def teacher_logits(
    targets: Tensor, mask: Tensor, targets_are: TargetKind, epsilon: float, loss: str
) -> Tensor:
    """Teacher logits [lists, items]: log(p / (1 - p)) with p clamped to [epsilon, 1 - epsilon], or as they are.

    An epsilon much below 1e-6 would make 1 - epsilon 1 in float32. `loss` is a name for the message.

    Raises:
        ValueError: on a probability outside [0, 1], an epsilon out of bounds or an unknown kind.
    """
    check_choice(TargetKind, targets_are=targets_are)
    if not 1e-6 <= epsilon < 0.5:
        raise ValueError(f"epsilon must be at least 1e-6 and below 0.5, got {epsilon!r}")
    if targets_are == "logits":
        return targets
    check_probabilities(targets, mask, f"{loss} with targets_are='probabilities'")
    return torch.logit(targets, eps=epsilon)


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
    return _read_running(running, count, mask)


def plackett_luce_terms(scores: Tensor, targets: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """-log of the probability that each item comes first of itself and those strictly below it, and `has_below`.

    Both [lists, items]; the terms are 0 where nothing is below.
    """
    below, has_below = logsumexp_below(scores, targets, mask)
    return -functional.logsigmoid(scores - below).masked_fill(~has_below, 0.0), has_below


def sum_below(values: Tensor, keys: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Like `logsumexp_below`, for the plain sum of values_k over the items k with keys_k < keys_j."""
    count, order = _count_below(keys, mask)
    running = values.masked_fill(~mask, 0.0).gather(-1, order).cumsum(dim=-1)
    return _read_running(running, count, mask)


def _count_below(keys: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """How many keys of the list are smaller than each, and the ascending order with padding at the end."""
    ascending, order = keys.masked_fill(~mask, torch.inf).sort(dim=-1)
    count = torch.searchsorted(ascending, keys.contiguous())
    return count.masked_fill(~mask, 0), order


def _read_running(running: Tensor, count: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    has_below = (count > 0) & mask
    return running.gather(-1, (count - 1).clamp(min=0)).masked_fill(~has_below, 0.0), has_below


def reduce_lists(per_list: Tensor, has_loss: Tensor, reduction: Reduction) -> Tensor:
    """Reduces [lists] to the mean over `has_loss` (0, with a gradient, if there is none), the sum, or not."""
    check_choice(Reduction, reduction=reduction)
    per_list = per_list.masked_fill(~has_loss, 0.0)
    if reduction == "none":
        return per_list
    return per_list.sum() if reduction == "sum" else per_list.sum() / has_loss.sum().clamp(min=1)
