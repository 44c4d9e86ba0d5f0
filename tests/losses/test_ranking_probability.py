"""Ranking Probability Loss: where its minimum is, and what each reading of the paper does to free logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.stats import kendalltau
from torch import Tensor

from crossjem_pl.losses import ListMLE, RankingProbabilityLoss
from crossjem_pl.losses.base import Reduction
from crossjem_pl.losses.ranking_probability import Tail


def rpl(f: Tensor, t: Tensor, mask: Tensor, reduction: Reduction = "mean", **options: Any) -> Tensor:
    return RankingProbabilityLoss(**options)(f, t, mask, reduction)


EVERYTHING = torch.ones(64, 10, dtype=torch.bool)


def teacher(seed: int = 0) -> Tensor:
    return torch.randn(64, 10, generator=torch.Generator().manual_seed(seed)) * 2


def fit_free_logits(tail: Tail, seed: int) -> tuple[Tensor, Tensor]:
    """64 lists of 10 free logits, started near 0 and fitted by Adam to logits drawn from N(0, 2)."""
    t = teacher(seed)
    start = torch.randn(64, 10, generator=torch.Generator().manual_seed(seed + 100)) * 0.1
    f = start.requires_grad_()
    optimiser = torch.optim.Adam([f], lr=0.1)
    for _ in range(300):
        optimiser.zero_grad()
        rpl(f, torch.sigmoid(t), EVERYTHING, tail=tail, reduction="sum").backward()
        optimiser.step()
    return f.detach(), t


def mean_tau(f: Tensor, t: Tensor) -> float:
    return sum(kendalltau(a, b).statistic for a, b in zip(f, t, strict=True)) / len(f)


@pytest.mark.parametrize(
    ("tail", "low", "high"),
    [("smooth_max", 0.99, 1.0), ("printed", -1.0, -0.9), ("corollary", -0.7, -0.4), ("reversed", 0.85, 0.99)],
)
def test_kendall_tau_of_free_logits(tail: Tail, low: float, high: float) -> None:
    assert low <= mean_tau(*fit_free_logits(tail, seed=0)) <= high + 1e-9


def gradient(f: Tensor, t: Tensor, tail: Tail) -> Tensor:
    f = f.clone().requires_grad_()
    loss = rpl(f, torch.sigmoid(t), torch.ones_like(t) > 0, tail=tail, reduction="sum")
    return torch.autograd.grad(loss, f)[0]


def test_the_printed_tail_leaves_the_best_item_alone_and_lifts_the_worst() -> None:
    t = teacher().double().sort(dim=-1).values
    for f in (torch.zeros_like(t), t / 10, -t / 10, teacher(1).double() / 10):
        g = gradient(f, t, "printed")
        assert (g[:, -1] == 0).all()
        assert (g[:, 0] < 0).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("weights", ["none", "target"])
@pytest.mark.parametrize("top_k", [None, 3])
def test_the_minimum_is_at_the_teacher_up_to_a_shift(
    temperature: float, weights: str, top_k: int | None
) -> None:
    t = teacher().double()
    t[5, :4] = t[5, 4]
    shift = torch.linspace(-3, 3, 64, dtype=torch.float64)[:, None]
    loss = RankingProbabilityLoss(
        targets_are="logits",
        temperature=temperature,
        weights=weights,  # type: ignore[arg-type]
        top_k=top_k,
    )
    f = (t + shift).requires_grad_()
    at_minimum = loss(f, t, EVERYTHING)
    (g,) = torch.autograd.grad(at_minimum, f)
    assert g.abs().max() < 1e-12
    for seed in range(5):
        noise = torch.randn(64, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert loss(t + 0.1 * noise, t, EVERYTHING) > at_minimum.detach()


def test_binary_labels_with_a_small_epsilon_are_almost_listmle() -> None:
    """p* of a positive is nearly 1 whatever the list: the teacher says nothing beyond the label."""
    labels = torch.zeros(64, 10)
    labels[:, 0] = 1.0
    f = teacher(3)
    hard = ListMLE()(f, labels, EVERYTHING)
    torch.testing.assert_close(rpl(f, labels, EVERYTHING, epsilon=1e-6), hard, rtol=1e-3, atol=1e-3)
    (g,) = torch.autograd.grad(rpl(f.requires_grad_(), labels, EVERYTHING), f)
    assert g.isfinite().all()
    wide = torch.full((1, 10), -20.0)
    wide[:, 0] = 20.0
    smooth = rpl(wide, labels[:1], EVERYTHING[:1], epsilon=0.05)
    assert smooth > rpl(wide / 10, labels[:1], EVERYTHING[:1], epsilon=0.05)


def test_options_of_one_tail_are_errors_for_another() -> None:
    for options in ({"form": "weighted_ce"}, {"top_k": 3}, {"weights": "target"}):
        with pytest.raises(ValueError, match="options of tail='smooth_max'; the tail is 'printed'"):
            RankingProbabilityLoss(tail="printed", **options)
    with pytest.raises(ValueError, match="tail must be one of 'smooth_max'"):
        RankingProbabilityLoss(tail="max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top_k must be at least 1"):
        RankingProbabilityLoss(top_k=0)
    with pytest.raises(ValueError, match="epsilon must be"):
        RankingProbabilityLoss(epsilon=0.7)
