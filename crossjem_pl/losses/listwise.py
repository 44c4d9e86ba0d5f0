"""Listwise losses: the items of a list are judged together."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from crossjem_pl.losses.base import (
    Distillation,
    PerList,
    RankingLoss,
    at_least_two_items,
    better_count,
    check_targets,
    differences,
    masked_log_softmax,
    masked_mean,
    mean_over_pairs,
    plackett_luce_terms,
    ratio,
    strict_pairs,
)

__all__ = [
    "ApproxDiscountedRankMSE",
    "GainKind",
    "KLDivergence",
    "LambdaLoss",
    "LambdaScheme",
    "ListMLE",
    "ListNet",
    "Poly1CrossEntropy",
    "PositionAwareListMLE",
    "SoftmaxCrossEntropy",
]

GainKind = Literal["exponential", "linear"]
LambdaScheme = Literal["none", "ndcg_loss1", "ndcg_loss2", "lambda_rank", "ndcg_loss2pp"]

LARGEST_GRADE = 30.0
"""Labels above it are taken for logits: their gain 2^y - 1 would leave one item with all of the weight."""


class SoftmaxCrossEntropy(RankingLoss):
    """Cross entropy of the softmax over the list against the labels as a distribution.

        loss = - sum over items j of (y_j / sum of y) * log softmax(s)_j

    The softmax loss of RankT5 (Zhuang et al., arXiv 2210.10634), with labels normalised to sum 1. A list has a loss if
    it has two items and a label above 0.

    Targets: non-negative labels, binary or graded [lists, items].

    Raises:
        ValueError: on a negative target.
    """

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        return _softmax_terms(scores, targets, mask, epsilon=0.0)


class Poly1CrossEntropy(RankingLoss):
    """Softmax cross entropy plus the first term of its polynomial expansion.

        w_j = y_j / sum of y;  p = softmax(s)
        loss = sum over items j of w_j * ( -log p_j + epsilon * (1 - p_j) )

    Poly-1 softmax of RankT5 (Zhuang et al., arXiv 2210.10634), after Leng et al., "PolyLoss" (arXiv 2204.12511). A
    list has a loss if it has two items and a label above 0.

    Args:
        targets: non-negative labels, binary or graded [lists, items].
        epsilon: weight of the added term, at least -1 (below, the loss rewards a wrong answer near its optimum).

    Raises:
        ValueError: on a negative target or an epsilon below -1.
    """

    epsilon: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -1.0 <= self.epsilon < float("inf"):
            raise ValueError(f"epsilon must be at least -1 and finite, got {self.epsilon!r}")

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        return _softmax_terms(scores, targets, mask, self.epsilon)


def _softmax_terms(scores: Tensor, targets: Tensor, mask: Tensor, epsilon: float) -> PerList:
    check_targets(targets >= 0, targets, mask, "a softmax cross entropy takes labels that are at least 0")
    total = targets.sum(dim=-1)
    weights = ratio(targets, total[:, None])
    log_p = masked_log_softmax(scores, mask)
    per_list = -(weights * log_p).sum(dim=-1)
    if epsilon != 0.0:
        per_list = per_list - epsilon * (weights * torch.expm1(log_p)).sum(dim=-1)
    return per_list, (total > 0) & at_least_two_items(mask)


class ListNet(RankingLoss):
    """Cross entropy between the top-one probabilities of the targets and of the scores.

        loss = - sum over items j of softmax(y / temperature)_j * log softmax(s)_j

    Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach" (ICML 2007), the top-one case. The
    temperature is not in the paper (1 is the paper's form). It divides the targets only: labels in [0, 1] give an
    almost uniform softmax over 30 items, and a temperature of 0.1 makes their differences count. A list has a loss if
    it has two items. Where all targets are equal, it asks for equal scores.

    Args:
        targets: labels, probabilities or logits, any finite numbers [lists, items].
        temperature: divides the targets.
    """

    temperature: float = 1.0

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        weights = masked_log_softmax(targets / self.temperature, mask).exp().masked_fill(~mask, 0.0)
        per_list = -(weights * masked_log_softmax(scores, mask)).sum(dim=-1)
        return per_list, at_least_two_items(mask)


class KLDivergence(Distillation):
    """Kullback-Leibler divergence of the list's softmax from the teacher's.

        P = softmax(t / temperature);  Q = softmax(s / temperature)
        loss = temperature^2 * sum over items j of P_j * (log P_j - log Q_j)

    Hinton et al., "Distilling the Knowledge in a Neural Network" (arXiv 1503.02531) over a list of items; the square
    of the temperature keeps the size of the gradient. 0 exactly where s = t up to a shift per list. A list has a loss
    if it has two items.

    Args:
        targets: teacher probabilities or logits [lists, items].
        targets_are, epsilon: see `Distillation`.
        temperature: divides both logits.
    """

    temperature: float = 1.0

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        log_p = masked_log_softmax(self.teacher_logits(targets, mask) / self.temperature, mask)
        log_q = masked_log_softmax(scores / self.temperature, mask)
        per_list = self.temperature**2 * (log_p.exp() * (log_p - log_q)).sum(dim=-1)
        return per_list, at_least_two_items(mask)


class ListMLE(RankingLoss):
    """Negative log-likelihood of the targets' order under the Plackett-Luce model of the scores.

        loss = - sum over items j of log( exp(s_j) / (exp(s_j) + sum over k with y_k < y_j of exp(s_k)) )

    Xia et al., "Listwise Approach to Learning to Rank: Theory and Algorithm" (ICML 2008). The paper wants a strict
    order. **Ties**: an item competes with the items strictly below it and never with an item of equal target, so the
    tied items claim no order, whatever the order in which they are given (the form of the unique softmax of Zhu and
    Klabjan, 2020). Without ties this is the paper's loss. A list has a loss if two of its targets differ. The sum over
    the items is not divided by their number, as in the paper.

    Targets: anything that orders the items [lists, items].
    """

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        terms, has_below = plackett_luce_terms(scores, targets, mask)
        return terms.sum(dim=-1), has_below.any(dim=-1)


class PositionAwareListMLE(RankingLoss):
    """ListMLE whose first places weigh most.

        loss = - sum over items j of w_j * log( exp(s_j) / (exp(s_j) + sum over k with y_k < y_j of exp(s_k)) )
        w at place i of n is proportional to 2^(n - i) - 1; the weights of a list sum to 1

    Lan et al., "Position-Aware ListMLE: A Sequential Learning Process for Ranking" (UAI 2014). The weights are taken
    relative to 2^n, which leaves them as they are after normalisation and is finite for any n. **Ties**: tied items
    claim no order (see `ListMLE`) and share the mean weight of their places, so the order of the input is nothing. A
    list has a loss if two of its targets differ.

    Targets: anything that orders the items [lists, items].
    """

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        terms, has_below = plackett_luce_terms(scores, targets, mask)
        per_list = (_position_weights(targets, mask) * terms).sum(dim=-1)
        return per_list, has_below.any(dim=-1)


def _position_weights(targets: Tensor, mask: Tensor) -> Tensor:
    """Mean of 2^-i - 2^-n over the places i = a+1..b of each item's tie group, normalised over the list.

    A geometric sum: (2^-a - 2^-b) / (b - a) - 2^-n, where a counts the better items and b those at least as good.
    """
    better = better_count(targets, mask).to(targets.dtype)
    size = mask.sum(dim=-1, keepdim=True).to(targets.dtype)
    at_least = size - better_count(-targets, mask)
    spread = torch.where(mask, at_least - better, torch.ones_like(better))
    weights = (torch.exp2(-better) - torch.exp2(-at_least)) / spread - torch.exp2(-size)
    weights = weights.clamp(min=0.0).masked_fill(~mask, 0.0)
    return ratio(weights, weights.sum(dim=-1, keepdim=True))


class LambdaLoss(RankingLoss):
    """Pairwise logistic loss, every pair weighted by what it means for nDCG.

        loss = - mean over pairs of w_ij * log2 sigmoid(sigma * (s_i - s_j))

    With G_i = (2^y_i - 1) / maxDCG, r_i the rank of item i by the current scores and D(r) = log2(1 + r), the weight is
        none          1
        ndcg_loss1    G_i / D(r_i), over all pairs i != j
        ndcg_loss2    |1/D(d) - 1/D(d + 1)| * |G_i - G_j|, d = |r_i - r_j|
        lambda_rank   |1/D(r_i) - 1/D(r_j)| * |G_i - G_j|
        ndcg_loss2pp  mu * (weight of ndcg_loss2) + (weight of lambda_rank)
    over the pairs y_i > y_j (except ndcg_loss1) of which one item is among the k best by score. Wang et al., "The
    LambdaLoss Framework for Ranking Metric Optimization" (CIKM 2018), which sums where this takes the mean of the
    pairs of a list. The weights carry no gradient. **Ties**: items with equal scores are ranked worst target first, so
    the order of the input does not enter the value. A list has a loss if two of its targets differ (and, with k, if
    one of such a pair is among the k best by score).

    Args:
        targets: graded labels, at least 0 (binary ones and probabilities are such) [lists, items].
        scheme: see above.
        k: cut-off of nDCG@k; None for the whole list.
        sigma: steepness of the logistic.
        mu: weight of ndcg_loss2 in ndcg_loss2pp.
        gain: "exponential" is 2^y - 1, "linear" is y.

    Raises:
        ValueError: on a negative target, or one above 30 with the exponential gain.
    """

    scheme: LambdaScheme = "ndcg_loss2pp"
    k: int | None = None
    sigma: float = 1.0
    mu: float = 10.0
    gain: GainKind = "exponential"

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        check_targets(targets >= 0, targets, mask, "LambdaLoss takes labels that are at least 0")
        if self.gain == "exponential":
            expected = f"the exponential gain takes labels up to {LARGEST_GRADE:g}; gain='linear' takes any"
            check_targets(targets <= LARGEST_GRADE, targets, mask, expected)
        pairs = strict_pairs(targets, mask)
        if self.scheme == "ndcg_loss1":
            distinct = ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
            pairs = mask[:, :, None] & mask[:, None, :] & distinct & pairs.any(dim=(-2, -1), keepdim=True)
        ranks = _score_ranks(scores.detach(), targets, mask)
        if self.k is not None:
            best = ranks <= self.k
            pairs = pairs & (best[:, :, None] | best[:, None, :])
        gains = _normalised_gains(targets, mask, self.gain, self.k)
        weights = _lambda_weights(gains, ranks, self.scheme, self.mu)
        terms = -functional.logsigmoid(self.sigma * differences(scores)) / math.log(2.0)
        return mean_over_pairs(weights * terms, pairs), pairs.any(dim=(-2, -1))


def _score_ranks(scores: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Ranks 1..n by score [lists, items]; equal scores in ascending order of target; padding last."""
    by_target = targets.masked_fill(~mask, torch.inf).argsort(dim=-1)
    negated = (-scores).masked_fill(~mask, torch.inf).gather(-1, by_target)
    order = by_target.gather(-1, negated.argsort(dim=-1, stable=True))
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device).expand_as(order)
    return torch.zeros_like(order).scatter(-1, order, places)


def _discount(places: Tensor, dtype: torch.dtype) -> Tensor:
    return 1.0 / torch.log2(1.0 + places.to(dtype))


def _normalised_gains(targets: Tensor, mask: Tensor, gain: GainKind, k: int | None) -> Tensor:
    gains = torch.exp2(targets) - 1.0 if gain == "exponential" else targets
    gains = gains.masked_fill(~mask, 0.0)
    best_first = gains.sort(dim=-1, descending=True).values[:, :k]
    places = torch.arange(1, best_first.shape[1] + 1, device=gains.device)
    ideal = (best_first * _discount(places, gains.dtype)).sum(dim=-1, keepdim=True)
    return ratio(gains, ideal)


def _lambda_weights(gains: Tensor, ranks: Tensor, scheme: LambdaScheme, mu: float) -> Tensor:
    """Weights [lists, items, items], the better item first."""
    discounts = _discount(ranks, gains.dtype)
    if scheme in ("none", "ndcg_loss1"):
        of_item = torch.ones_like(gains) if scheme == "none" else gains * discounts
        return of_item[:, :, None].expand(-1, -1, gains.shape[1])
    apart = differences(ranks).abs().clamp(min=1)
    loss2 = _discount(apart, gains.dtype) - _discount(apart + 1, gains.dtype)
    rank = differences(discounts).abs()
    weights = {"ndcg_loss2": loss2, "lambda_rank": rank, "ndcg_loss2pp": mu * loss2 + rank}
    return weights[scheme] * differences(gains).abs()


class ApproxDiscountedRankMSE(RankingLoss):
    """Squared error of smooth ranks, the first ranks counting most (ADR-MSE).

        r'_j = 1 + sum over items k != j of sigmoid((s_k - s_j) / temperature)
        loss = mean over items j of (r_j - r'_j)^2 / log2(1 + r_j)

    r_j is the rank of item j by target. Schlatt et al., "Rank-DistiLLM: Closing the Effectiveness Gap Between
    Cross-Encoders and LLMs for Passage Re-Ranking" (arXiv 2405.07920); the smooth rank is that of Qin et al., "A
    general approximation framework for direct optimization of information retrieval measures" (2010). **Ties**: items
    with equal targets share the mean of their ranks, which equal scores reach. A list has a loss if two of its targets
    differ.

    Args:
        targets: anything that orders the items, such as the ranks of a language model, negated [lists, items].
        temperature: the smaller, the nearer r' is to the true rank and the fewer pairs have a gradient.
    """

    temperature: float = 1.0

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        better = better_count(targets, mask).to(scores.dtype)
        worse = better_count(-targets, mask).to(scores.dtype)
        size = mask.sum(dim=-1, keepdim=True).to(scores.dtype)
        ranks = torch.where(mask, (better + 1.0 + size - worse) / 2.0, torch.ones_like(better))
        wins = torch.sigmoid(-differences(scores) / self.temperature)
        smooth = 0.5 + wins.masked_fill(~mask[:, None, :], 0.0).sum(dim=-1)  # an item beats itself by a half
        errors = (ranks - smooth).square() / torch.log2(1.0 + ranks)
        return masked_mean(errors, mask), (better > 0).any(dim=-1)
