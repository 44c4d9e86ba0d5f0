"""Ranking Probability Loss: every item against everything that the teacher puts below it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from crossjem_pl.losses.base import (
    PerList,
    RankingLoss,
    TargetKind,
    better_count,
    check_choice,
    check_cutoff,
    check_positive,
    logsumexp_below,
    masked_log_softmax,
    ratio,
    sum_below,
    teacher_logits,
)

__all__ = ["RankingProbabilityLoss"]

Tail = Literal["smooth_max", "printed", "corollary", "reversed"]
RankingProbabilityForm = Literal["bce", "weighted_ce"]
ItemWeights = Literal["none", "target"]


class RankingProbabilityLoss(RankingLoss, name="rpl"):
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

    @staticmethod
    def compute(
        scores: Tensor,
        targets: Tensor,
        mask: Tensor,
        *,
        tail: Tail = "smooth_max",
        form: RankingProbabilityForm = "bce",
        targets_are: TargetKind = "probabilities",
        epsilon: float = 1e-4,
        temperature: float = 1.0,
        top_k: int | None = None,
        weights: ItemWeights = "none",
    ) -> PerList:
        check_choice(Tail, tail=tail)
        check_choice(RankingProbabilityForm, form=form)
        check_choice(ItemWeights, weights=weights)
        check_cutoff(top_k=top_k)
        check_positive(temperature=temperature)
        if tail != "smooth_max" and (form, top_k, weights) != ("bce", None, "none"):
            raise ValueError(
                f"form, top_k and weights are options of tail='smooth_max'; the tail is {tail!r}"
            )
        teacher = teacher_logits(targets, mask, targets_are, epsilon, "RPL")
        if tail != "smooth_max":
            y = targets if targets_are == "probabilities" else torch.sigmoid(targets)
            per_list, has_tail = _summed_tail(scores / temperature, y, targets, mask, tail)
            return per_list, has_tail.any(dim=-1)

        log_below, has_term = logsumexp_below(scores / temperature, targets, mask)
        teacher_below, _ = logsumexp_below(teacher / temperature, targets, mask)
        if top_k is not None:
            has_term = has_term & (better_count(targets, mask) < top_k)
        d = (scores / temperature - log_below).masked_fill(~has_term, 0.0)
        p_star = torch.sigmoid(teacher / temperature - teacher_below)
        item_weights = torch.sigmoid(teacher) if weights == "target" else torch.ones_like(teacher)
        if form == "bce":
            terms = functional.binary_cross_entropy_with_logits(d, p_star, reduction="none")
        else:
            terms = -functional.logsigmoid(d)
            item_weights = item_weights * p_star
        item_weights = item_weights.masked_fill(~has_term, 0.0)
        per_list = ratio((item_weights * terms).sum(dim=-1), item_weights.sum(dim=-1))
        return per_list, has_term.any(dim=-1)


def _summed_tail(f: Tensor, y: Tensor, targets: Tensor, mask: Tensor, tail: Tail) -> tuple[Tensor, Tensor]:
    """- sum_j v_j log softmax(u)_j [lists], and bool [lists, items]: the tail is not empty."""
    keys = -targets if tail == "reversed" else targets
    if tail == "corollary":
        sizes, has_tail = sum_below(torch.ones_like(f), keys, mask)
        u, v = sizes * f, sizes * y
    else:
        u, has_tail = sum_below(f, keys, mask)
        v, _ = sum_below(y, keys, mask)
    return -(v * masked_log_softmax(u, mask)).sum(dim=-1), has_tail
