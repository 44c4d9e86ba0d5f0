"""What every loss of the registry keeps, whatever its formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from crossjem_pl.losses import (
    CoRAL,
    LambdaLoss,
    RankingLoss,
    RankingProbabilityLoss,
    SoftmaxCrossEntropy,
    Sum,
)
from crossjem_pl.losses.base import Reduction
from crossjem_pl.losses.combined import Term
from tests.losses.test_losses_values import CASES


class Twice(RankingLoss):
    """Softmax cross entropy and RPL, both on one kind of targets."""

    def forward(self, scores: Tensor, targets: Tensor, mask: Tensor, reduction: Reduction = "mean") -> Tensor:
        terms = [Term(SoftmaxCrossEntropy(), "labels", 0.7), Term(RankingProbabilityLoss(), "scores", 2.0)]
        return Sum(terms)(scores, torch.stack((targets, targets), dim=-1), mask, reduction)


VARIANTS: dict[str, RankingLoss] = {
    **{name: loss for name, (loss, _) in CASES.items()},
    "coral of all ranks": CoRAL(k=None),
    "sum": Twice(),
    "lambdaloss, linear gain": LambdaLoss(scheme="lambda_rank", gain="linear", sigma=0.5),
}
POINTWISE = {"bce", "mse"}
TIES_HAVE_A_LOSS = {*POINTWISE, "listnet", "kl", "softmax_ce", "poly1", "sum"}
every_loss = pytest.mark.parametrize("name", sorted(VARIANTS))


def make_lists(
    sizes: tuple[int, ...] = (5, 3, 7), seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, targets and mask: distinct probabilities on both sides of 0.5 in each list, padding 0."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(sizes))[None, :] < torch.tensor(sizes)[:, None]
    scores = torch.randn(mask.shape, generator=generator, dtype=dtype).masked_fill(~mask, 0.0)
    targets = torch.zeros_like(scores)
    for row, size in enumerate(sizes):
        spread = torch.linspace(0.07, 0.93, size, dtype=dtype)
        targets[row, :size] = spread[torch.randperm(size, generator=generator)]
    return scores, targets, mask


def value_and_gradient(
    loss: RankingLoss, scores: Tensor, targets: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    scores = scores.clone().requires_grad_()
    value = loss(scores, targets, mask)
    (gradient,) = torch.autograd.grad(value, scores)
    return value.detach(), gradient


@every_loss
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -7.0])
def test_padding_takes_no_part(name: str, garbage: float) -> None:
    scores, targets, mask = make_lists()
    value, gradient = value_and_gradient(VARIANTS[name], scores, targets, mask)
    assert (gradient.abs().sum(dim=-1) > 0).all()
    wide = pad(mask, (0, 9))
    dirty = [pad(x, (0, 9)).masked_fill(~wide, garbage) for x in (scores, targets)]
    dirty_value, dirty_gradient = value_and_gradient(VARIANTS[name], *dirty, wide)
    torch.testing.assert_close(dirty_value, value)
    torch.testing.assert_close(dirty_gradient[:, : mask.shape[1]], gradient)
    assert (dirty_gradient[~wide] == 0).all()


@every_loss
def test_item_order_is_nothing_with_tied_targets_and_scores(name: str) -> None:
    scores, targets, mask = make_lists((8, 6, 8), dtype=torch.float64)
    targets = (targets * 3).round() / 3
    scores = (scores * 2).round() / 2
    value = VARIANTS[name](scores, targets, mask)
    for seed in range(5):
        order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
        moved = VARIANTS[name](scores[:, order], targets[:, order], mask[:, order])
        torch.testing.assert_close(moved, value)


@every_loss
def test_a_list_is_independent_of_its_batch(name: str) -> None:
    scores, targets, mask = make_lists((5, 3, 7, 4))
    loss = VARIANTS[name]
    alone = [
        value_and_gradient(loss, scores[i : i + 1], targets[i : i + 1], mask[i : i + 1]) for i in range(4)
    ]
    value, gradient = value_and_gradient(loss, scores, targets, mask)
    torch.testing.assert_close(value, torch.stack([v for v, _ in alone]).mean())
    torch.testing.assert_close(gradient, torch.cat([g for _, g in alone]) / 4)


@every_loss
def test_lists_without_a_loss_are_not_counted(name: str) -> None:
    scores, targets, mask = make_lists((5, 1, 5, 5))
    mask[2] = False
    targets[3] = 0.6
    loss = VARIANTS[name]
    rows = [0]
    if name in POINTWISE:
        rows.append(1)
    if name in TIES_HAVE_A_LOSS:
        rows.append(3)
    value, gradient = value_and_gradient(loss, scores, targets, mask)
    torch.testing.assert_close(value, loss(scores[rows], targets[rows], mask[rows]))
    others = [row for row in range(4) if row not in rows]
    assert (gradient[others] == 0).all()


@every_loss
def test_a_batch_without_any_loss_is_a_differentiable_zero(name: str) -> None:
    scores, targets, mask = make_lists()
    value, gradient = value_and_gradient(VARIANTS[name], scores, targets, torch.zeros_like(mask))
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("name", sorted(n for n in VARIANTS if n not in {"rpl printed", "rpl corollary"}))
def test_the_right_order_costs_less_than_the_reverse(name: str) -> None:
    _, targets, mask = make_lists()
    right = torch.logit(targets, eps=1e-3).masked_fill(~mask, 0.0)
    assert VARIANTS[name](right, targets, mask) < VARIANTS[name](-right, targets, mask)


@every_loss
@pytest.mark.parametrize("tied", [False, True])
def test_gradient_is_right_also_with_ties_and_an_empty_list(name: str, tied: bool) -> None:
    scores, targets, mask = make_lists((6, 2, 5), dtype=torch.float64)
    if tied:
        targets = (targets * 3).round() / 3
        mask[1] = False
    assert VARIANTS[name](scores, targets, mask).dtype == torch.float64
    assert torch.autograd.gradcheck(lambda x: VARIANTS[name](x, targets, mask), scores.requires_grad_())


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised_to_float32(name: str, dtype: torch.dtype) -> None:
    scores, targets, mask = make_lists()
    value, gradient = value_and_gradient(VARIANTS[name], (scores * 30).to(dtype), targets.to(dtype), mask)
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()


@every_loss
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_long_lists_and_large_scores_stay_finite(name: str, scale: float) -> None:
    scores, targets, mask = make_lists((200, 150))
    value, gradient = value_and_gradient(VARIANTS[name], scores * scale, targets, mask)
    assert value.isfinite()
    assert gradient.isfinite().all()
    if scale == 1.0:
        exact = VARIANTS[name](scores.double(), targets.double(), mask)
        torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=1e-6)


@every_loss
def test_wrong_shapes_and_masks_are_errors(name: str) -> None:
    scores, targets, mask = make_lists()
    with pytest.raises(ValueError, match=r"\[lists, items\].*\(3, 7\), \(3, 6\)"):
        VARIANTS[name](scores, targets[:, :6], mask)
    with pytest.raises(ValueError, match="must be bool"):
        VARIANTS[name](scores, targets, mask.float())
