"""Contrastive losses: a positive against what is not one, in the list or in the batch."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_functional
from torch import Tensor
from torch.nn import functional

from crossjem_pl.losses.base import (
    PerList,
    RankingLoss,
    Reduction,
    VectorLoss,
    better_count,
    masked_mean,
    plackett_luce_terms,
    reduce_lists,
)

__all__ = ["CoRAL", "InBatchInfoNCE", "InfoNCE"]


class InfoNCE(RankingLoss):
    """Each positive of the list against the list's negatives.

        P = {j : y_j > threshold};  N = the other items
        loss = - mean over i in P of log( exp(s_i / T) / (exp(s_i / T) + sum over j in N of exp(s_j / T)) )

    van den Oord et al., "Representation Learning with Contrastive Predictive Coding" (arXiv 1807.03748); the loss of
    DPR (Karpukhin et al., arXiv 2004.04906) with the negatives of one list. **Several positives**: each has its own
    term, and the others are not in its denominator, so positives do not compete. A list has a loss if it has a
    positive and a negative.

    Args:
        targets: binary or graded labels or teacher probabilities [lists, items].
        temperature: divides the scores. Cosines want a small one (0.05); logits of a classifier want 1.
        threshold: items with a target above it are positives.
    """

    temperature: float = 1.0
    threshold: float = 0.0

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        positive = (targets > self.threshold) & mask
        # all negatives are below all positives, and no positive is below another
        terms, has_below = plackett_luce_terms(scores / self.temperature, positive.to(scores.dtype), mask)
        return masked_mean(terms, has_below), has_below.any(dim=-1)


class CoRAL(RankingLoss):
    """Each of the top k items against the items that the teacher ranks after it.

        loss = - 1/k * sum over ranks i = 1..k of log( exp(s_i / T) / sum over ranks j >= i of exp(s_j / T) )

    with ranks by target. Gienapp, Deckers and Potthast, "Contrastive Ranking-Aware Learning" (CoRAL, 2023), after
    Hoffmann et al., "Ranking Info Noise Contrastive Estimation" (AAAI 2022). Scores are inner products of query and
    item there; any scores do. **Ties**: an item is contrasted with the items strictly below it and never with its
    equals; those tied to the k-th item count as among the top k. An item with nothing below has the term 0. The sum is
    divided by k, even if the list is shorter or has fewer terms; for k = None by the length of the list. A list has a
    loss if two of its targets differ.

    >>> scores, targets = torch.zeros(1, 3), torch.tensor([[0.9, 0.1, 0.4]])
    >>> CoRAL(k=2)(scores, targets, torch.ones(1, 3) > 0)  # (log 3 + log 2) / 2
    tensor(0.8959)

    Args:
        targets: anything that orders the items, usually teacher scores [lists, items].
        k: number of ranks that have a term; None for all.
        temperature: divides the scores. Cosines want a small one (0.05).
    """

    k: int | None = 10
    temperature: float = 1.0

    def per_list(self, scores: Tensor, targets: Tensor, mask: Tensor) -> PerList:
        terms, has_term = plackett_luce_terms(scores / self.temperature, targets, mask)
        if self.k is not None:
            has_term = has_term & (better_count(targets, mask) < self.k)
        divisor = mask.sum(dim=-1).clamp(min=1) if self.k is None else self.k
        per_list = terms.masked_fill(~has_term, 0.0).sum(dim=-1) / divisor
        return per_list, has_term.any(dim=-1)


class InBatchInfoNCE(VectorLoss):
    """InfoNCE of a dual encoder whose negatives are the items of all lists of the batch.

        loss of a list = - mean over its positives i of
            log( exp(q.d_i / T) / (exp(q.d_i / T) + sum over negatives j of exp(q.d_j / T)) )

    Karpukhin et al., "Dense Passage Retrieval" (arXiv 2004.04906). The negatives of a query are all items of the
    batch, except those whose key is the key of a known positive of that query: not the positive's own duplicates in
    other lists, not its other positives, not the positives of another list with the same query. An item text that is a
    negative in several lists counts as often as it occurs.

    With `gather`, the items of all processes are negatives, with gradients. The mean over the processes of the value
    with `reduction="mean"` is then the value of one process on the concatenated batch, and DistributedDataParallel's
    averaged gradient is its gradient, whatever the number of lists on each process. Every process has to call it.

    Args:
        targets: labels or teacher probabilities [lists, items].
        temperature: divides the inner products; the rankers' `vectors` have their scale multiplied in already.
        threshold: items with a target above it are positives.
        gather: take the items of all processes of the default process group; without one it changes nothing.
    """

    temperature: float = 1.0
    threshold: float = 0.0
    gather: bool = False

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
        gather = self.gather and dist.is_available() and dist.is_initialized()
        dtype = torch.promote_types(query_vectors.dtype, torch.float32)
        items = torch.where(mask[:, :, None], item_vectors, torch.zeros_like(item_vectors))
        positive = (targets > self.threshold) & mask
        keys, first_list = item_keys.masked_fill(~mask, 0), 0
        all_items, all_positive, all_mask, all_keys, all_queries = items, positive, mask, keys, query_keys
        if gather:
            shape, first_list = _largest_shape(mask)
            all_items = _gather(items, shape)
            numbers = _gather(torch.stack((positive.long(), mask.long(), keys), dim=-1), shape)
            all_positive, all_mask, all_keys = numbers[..., 0] > 0, numbers[..., 1] > 0, numbers[..., 2]
            all_queries = _gather(query_keys[:, None], (shape[0], 1))[:, 0]

        with torch.autocast(query_vectors.device.type, enabled=False):
            flat = all_items.reshape(-1, all_items.shape[-1]).to(dtype)
            logits = query_vectors.to(dtype) @ flat.T / self.temperature
        known = _known_positives(query_keys, all_queries, all_keys, all_positive)
        negative = all_mask.reshape(1, -1) & ~known
        filled = logits.masked_fill(~negative, torch.finfo(dtype).min)
        has_negative = negative.any(dim=-1)
        against = filled.logsumexp(dim=-1).masked_fill(~has_negative, 0.0)

        width = all_items.shape[1]
        rows = torch.arange(mask.shape[0], device=mask.device)[:, None]
        own = torch.arange(mask.shape[1], device=mask.device)[None, :] + (first_list + rows) * width
        terms = -functional.logsigmoid(logits.gather(-1, own) - against[:, None])
        has_loss = positive.any(dim=-1) & has_negative
        per_list = masked_mean(terms, positive)
        if gather and reduction == "mean":
            count = has_loss.sum()
            dist.all_reduce(count)
            scale = dist.get_world_size() / count.clamp(min=1)
            return reduce_lists(per_list, has_loss, "sum") * scale
        return reduce_lists(per_list, has_loss, reduction)


def _known_positives(
    own_queries: Tensor, all_queries: Tensor, all_keys: Tensor, all_positive: Tensor
) -> Tensor:
    """bool [own lists, all items]: the item is a known positive of the list's query, by their keys."""
    queries, query_index = torch.unique(all_queries, return_inverse=True)
    keys, key_index = torch.unique(all_keys, return_inverse=True)
    table = torch.zeros(len(queries), len(keys), dtype=torch.bool, device=all_keys.device)
    where = all_positive.nonzero(as_tuple=True)
    table[query_index[where[0]], key_index[where]] = True
    return table[torch.searchsorted(queries, own_queries)][:, key_index.reshape(-1)]


def _largest_shape(mask: Tensor) -> tuple[tuple[int, int], int]:
    """The largest [lists, items] over the processes, and the first row of this one after gathering."""
    largest = torch.tensor(mask.shape, device=mask.device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    lists, items = (int(n) for n in largest)
    return (lists, items), dist.get_rank() * lists


def _gather(values: Tensor, shape: tuple[int, int]) -> Tensor:
    """All processes' values [lists, items, ...], padded to `shape`, one after the other; differentiable."""
    lists, items = values.shape[:2]
    widths = [0, 0] * (values.ndim - 2) + [0, shape[1] - items, 0, shape[0] - lists]
    return torch.cat(dist_functional.all_gather(functional.pad(values, widths).contiguous()))
