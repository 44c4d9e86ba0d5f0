"""CROSS-JEM's scoring heads over padded pools: the same scores, from operations that every runtime has.

Segment operations become masked reductions of an items x tokens-per-item table, whose sizes come with the
inputs, so that nothing in the graph depends on a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import torch
import torch.nn.functional as F
from torch import Tensor

from crossjem_pl.rankers.crossjem.heads import (
    LinearHead,
    MatchHead,
    MaxSimHead,
    QueryHead,
    ScoringHead,
    sinusoids,
)

__all__ = ["PaddedTokens", "padded_scores"]


@dataclass
class PaddedTokens:
    """`JointTokens` with one padded row per query and per item; padding points at row 0 and is masked.

    Args:
        embeddings: float32 [P, S, width], the joint encoding.
        query_rows: int64 [P, Q], rows of the flattened `embeddings`; the query's tokens of each pass.
        query_mask: bool [P, Q].
        sep_token: int64 [P], row of each pass's [SEP].
        item_pass: int64 [I].
        own: float32 [E, width], what the item layers made of the items' tokens; None without such layers.
        item_rows: int64 [I, T], rows of `own`, or of the flattened `embeddings` if there is none.
        item_mask: bool [I, T].
        item_positions: int64 [I, T], the tokens' (first) positions in the item.
        positions: how many of them an item can have.
    """

    embeddings: Tensor
    query_rows: Tensor
    query_mask: Tensor
    sep_token: Tensor
    item_pass: Tensor
    own: Tensor | None
    item_rows: Tensor
    item_mask: Tensor
    item_positions: Tensor
    positions: int

    @property
    def joint(self) -> Tensor:
        """float32 [P * S, width]."""
        return self.embeddings.flatten(0, 1)

    @property
    def item_source(self) -> Tensor:
        """What `item_rows` points into."""
        return self.joint if self.own is None else self.own


@singledispatch
def padded_scores(head: ScoringHead, tokens: PaddedTokens) -> Tensor:
    """Scores, float32 [I], equal to `head` on the same tokens in their flat form.

    Raises:
        ValueError: for a head that has no padded form.
    """
    raise ValueError(
        f"{type(head).__name__} cannot be exported: it has no form over padded tokens; there is one for "
        "LinearHead, QueryHead, MaxSimHead and MatchHead"
    )


@padded_scores.register
def _linear(head: LinearHead, tokens: PaddedTokens) -> Tensor:
    weight = head.classifier.weight[0]
    z = tokens.joint @ weight
    context = (z[tokens.query_rows] * tokens.query_mask).sum(1) + z[tokens.sep_token]
    size = tokens.query_mask.sum(1) + 1
    if head.pool_cls:
        context, size = context + tokens.embeddings[:, 0] @ weight, size + 1
    z_item = (z if tokens.own is None else tokens.own @ weight)[tokens.item_rows]
    if head.positions:
        table = sinusoids(tokens.positions, weight.shape[0], weight.device) @ weight
        z_item = z_item + table[tokens.item_positions]
    total = context[tokens.item_pass] + (z_item * tokens.item_mask).sum(1)
    pool = (size[tokens.item_pass] + tokens.item_mask.sum(1)).to(torch.float32)
    score = total / pool
    return score if head.classifier.bias is None else score + head.classifier.bias


@padded_scores.register
def _query(head: QueryHead, tokens: PaddedTokens) -> Tensor:
    return head.scale * _mean_cosines(tokens)


@padded_scores.register
def _max_sim(head: MaxSimHead, tokens: PaddedTokens) -> Tensor:
    score = head.scale * _recall(tokens, _similarity(tokens))
    return score if head.linear is None else score + padded_scores(head.linear, tokens)


@padded_scores.register
def _match(head: MatchHead, tokens: PaddedTokens) -> Tensor:
    similarity = _similarity(tokens)
    words = similarity.masked_fill(~tokens.query_mask[tokens.item_pass][:, None, :], -1.0).amax(2)
    precision = (words * tokens.item_mask).sum(1) / tokens.item_mask.sum(1)
    parts = [_mean_cosines(tokens), _recall(tokens, similarity), precision]
    return torch.stack(parts, dim=1) @ head.scale


def _mean_cosines(tokens: PaddedTokens) -> Tensor:
    """float32 [I]."""
    query = _masked_mean(tokens.joint[tokens.query_rows], tokens.query_mask)
    mean = _masked_mean(tokens.item_source[tokens.item_rows], tokens.item_mask)
    return (F.normalize(mean, dim=-1) * F.normalize(query, dim=-1)[tokens.item_pass]).sum(-1)


def _similarity(tokens: PaddedTokens) -> Tensor:
    """Cosines of the items' tokens with their query's, float32 [I, T, Q]."""
    query = F.normalize(tokens.joint[tokens.query_rows], dim=-1)
    if tokens.own is None:  # every token meets its pass's query once, however many items hold it
        every = F.normalize(tokens.embeddings, dim=-1) @ query.transpose(1, 2)
        return every.flatten(0, 1)[tokens.item_rows]
    own = F.normalize(tokens.own, dim=-1)[tokens.item_rows]
    return own @ query[tokens.item_pass].transpose(1, 2)


def _recall(tokens: PaddedTokens, similarity: Tensor) -> Tensor:
    """Mean over the query's tokens of the best match in each item, float32 [I]."""
    best = similarity.masked_fill(~tokens.item_mask[:, :, None], -torch.inf).amax(1)
    weight = tokens.query_mask / tokens.query_mask.sum(1, keepdim=True).clamp(min=1)
    return (best * weight[tokens.item_pass]).sum(-1)


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the second axis of `values` [n, m, width] where `mask` [n, m]."""
    return (values * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
