"""Ranking Probability Loss: every item against everything that the teacher puts below it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from crossjem_pl.losses.base import (
    Distillation,
    PerList,
    better_count,
    logsumexp_below,
    masked_log_softmax,
    ratio,
    strict_pairs,
)

__all__ = ["RankingProbabilityLoss"]

Tail = Literal["smooth_max", "printed", "corollary", "reversed"]
RankingProbabilityForm = Literal["bce", "weighted_ce"]
ItemWeights = Literal["none", "target"]


class RankingProbabilityLoss(Distillation):
    """Ranking Probability Loss (RPL) of CROSS-JEM, with the tail of its proof.

    L_j = {k : y_k < y_j} are the items that the teacher puts strictly below item j, t the teacher's logits, f the
    scores. Both logits are divided by `temperature`. With `tail="smooth_max"`:

        d_j(x) = x_j - log sum over k in L_j of exp(x_k);  p_j = sigmoid(d_j(f));  p*_j = sigmoid(d_j(t))
        bce          loss = sum_j a_j * ( -p*_j log p_j - (1 - p*_j) log(1 - p_j) ) / sum_j a_j
        weighted_ce  loss = - sum_j a_j p*_j log p_j / sum_j a_j p*_j

    over the items with a non-empty L_j, a_j = 1 or, with `weights="target"`, sigmoid(t_j). p_j is the probability that
    item j comes first of itself and L_j when Gumbel noise is added to the logits (Plackett-Luce). "bce" attains its
    minimum at f = t and its shifts, and not only there: items without a term of their own (those tied for the lowest
    target, those beyond `top_k`) enter through their log-sum-exp alone, so any scores of theirs with the same
    log-sum-exp are as good. "weighted_ce" keeps the first half of "bce" and has no finite minimum. One sort and one
    running log-sum-exp a list: O(N log N) time, O(N) memory.

    The other tails read the paper's text as it stands; docs/rpl.md tells what is wrong with them, and they are kept so
    that it can be checked. With y = sigmoid(t) unless the targets are probabilities:

        loss = - sum_j v_j log softmax(u)_j
        printed    u_j = sum over L_j of f_k, v_j = sum over L_j of y_k: eq. (2)
        corollary  u_j = |L_j| f_j, v_j = |L_j| y_j: the wording of Corollary 2
        reversed   eq. (2) with {k : y_k > y_j} in place of L_j

    The paper: "CROSS-JEM: Accurate and Efficient Cross-encoders for Short-text Ranking Tasks", section 4.1 and
    appendix A. A list has a loss if two of its targets differ.

    Args:
        targets: teacher probabilities or logits [lists, items]. Their order makes L_j; equal targets are in no tail of
            each other.
        tail: see above.
        form: see above; only for the smooth maximum.
        targets_are: "probabilities" are turned into t = log(y / (1 - y)), "logits" are t.
        epsilon: probabilities are clamped to [epsilon, 1 - epsilon] before they become logits. Binary labels are
            degenerate: their logits are the clamped ones, so p* is close to 1 for every positive and says nothing of
            the order. 0.05, say, is then a label smoothing that keeps the loss from asking for infinite margins.
        temperature: divides both logits.
        top_k: only the k best items by target have a term (with those tied to the k-th); None for all. Only for the
            smooth maximum.
        weights: "none" or "target". Only for the smooth maximum.

    Raises:
        ValueError: on a probability outside [0, 1], or an option that the tail does not have.
    """

    tail: Tail = "smooth_max"
    form: RankingProbabilityForm = "bce"
    temperature: float = 1.0
    top_k: int | None = None
    weights: ItemWeights = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tail != "smooth_max" and (self.form, self.top_k, self.weights) != ("bce", None, "none"):
            raise ValueError(
                f"form, top_k and weights are options of tail='smooth_max'; the tail is {self.tail!r}"
            )

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        teacher, f = self.teacher_logits(targets, mask), scores / self.temperature
        if self.tail != "smooth_max":
            y = targets if self.targets_are == "probabilities" else torch.sigmoid(targets)
            per_list, has_tail = _summed_tail(f, y, targets, mask, self.tail)
            return per_list, has_tail.any(dim=-1)

        t = teacher / self.temperature
        log_below, has_term = logsumexp_below(f, targets, mask)
        teacher_below, _ = logsumexp_below(t, targets, mask)
        if self.top_k is not None:
            has_term = has_term & (better_count(targets, mask) < self.top_k)
        d = (f - log_below).masked_fill(~has_term, 0.0)
        p_star = torch.sigmoid(t - teacher_below)
        item_weights = torch.sigmoid(teacher) if self.weights == "target" else torch.ones_like(teacher)
        if self.form == "bce":
            terms = functional.binary_cross_entropy_with_logits(d, p_star, reduction="none")
        else:
            terms = -functional.logsigmoid(d)
            item_weights = item_weights * p_star
        item_weights = item_weights.masked_fill(~has_term, 0.0)
        per_list = ratio((item_weights * terms).sum(dim=-1), item_weights.sum(dim=-1))
        return per_list, has_term.any(dim=-1)


def _summed_tail(f: Tensor, y: Tensor, targets: Tensor, mask: Tensor, tail: Tail) -> tuple[Tensor, Tensor]:
    """- sum_j v_j log softmax(u)_j [lists], and bool [lists, items]: the tail is not empty."""
    below = strict_pairs(-targets if tail == "reversed" else targets, mask)
    sums = below.to(f.dtype)
    if tail == "corollary":
        u, v = sums.sum(dim=-1) * f, sums.sum(dim=-1) * y
    else:
        u, v = (sums @ f[..., None]).squeeze(-1), (sums @ y[..., None]).squeeze(-1)
    return -(v * masked_log_softmax(u, mask)).sum(dim=-1), below.any(dim=-1)
