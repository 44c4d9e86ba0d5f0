"""CROSS-JEM's batch: the passes of several lists as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from crossjem_pl.rankers.base import Batch
from crossjem_pl.rankers.crossjem.attention import first_places, item_neighbours
from crossjem_pl.rankers.neural import Encoded
from crossjem_pl.text import token_union

__all__ = ["JointBatch", "UnionAttention", "UnionPositions", "joint_batch"]

UnionPositions = Literal["sequential", "shared", "item"]
UnionAttention = Literal["full", "item"]


@dataclass
class JointBatch(Batch):
    """P passes of S positions `[CLS] query [SEP] union`, and flat indices into the P*S positions.

    Args:
        input_ids, attention_mask, segment_ids: int64 [P, S].
        position_ids: int64 [P, S], or None for the encoder's own.
        neighbours: int64, the pairs of union tokens that share an item, see `item_neighbours`; None where all see all.
        query_token, query_pass: int64 [K]; see `JointTokens`.
        sep_token: int64 [P].
        context_token: int64 [P, Q], positions of [CLS], query and [SEP]; padding repeats the last. None without split
            layers.
        context_mask: bool [P, Q], likewise.
        item_slot: int64 [I], place of each item in the flattened [lists, max_items].
        item_pass: int64 [I].
        pair_token, pair_item, pair_position: int64 [pairs], the distinct tokens of each item.
        own_token, own_item, own_position: int64 [item tokens], every token of each item in its order.
    """

    input_ids: Tensor
    attention_mask: Tensor
    segment_ids: Tensor
    position_ids: Tensor | None
    neighbours: Tensor | None
    query_token: Tensor
    query_pass: Tensor
    sep_token: Tensor
    context_token: Tensor | None
    context_mask: Tensor | None
    item_slot: Tensor
    item_pass: Tensor
    pair_token: Tensor
    pair_item: Tensor
    pair_position: Tensor
    own_token: Tensor
    own_item: Tensor
    own_position: Tensor

    def context_rows(self) -> tuple[Tensor, Tensor, int]:
        """Where the states of the query's tokens and of [SEP] are, and how many states each pass has.

        The joint encoding has S of a pass; split layers leave the Q of its [CLS], query and [SEP].
        """
        width = self.input_ids.shape[1]
        if self.context_token is None:
            return self.query_token, self.sep_token, width
        row = self.context_token.shape[1]
        passes = torch.arange(len(self.sep_token), device=self.sep_token.device)
        query = self.query_token - self.query_pass * (width - row)
        return query, self.sep_token - passes * (width - row), row


def joint_batch(
    mask: Tensor,
    queries: Encoded,
    items: Encoded,
    item_pass: np.ndarray,
    list_of_pass: Sequence[int],
    tokenizer: PreTrainedTokenizerBase,
    union_positions: UnionPositions,
    union_attention: UnionAttention,
    context: bool,
) -> JointBatch:
    """The batch of P passes.

    Args:
        mask: bool [lists, max_items], where the lists have items.
        queries: one row of tokens per list.
        items: one row of tokens per item, the lists end to end.
        item_pass: int64 [I], the pass of each item.
        list_of_pass: the list of each pass, P of them.
        tokenizer: whose [CLS], [SEP] and padding are used.
        union_positions, union_attention: see `CrossJEM`.
        context: whether the batch says where [CLS], query and [SEP] of each pass are, which split layers read.
    """
    passes = len(list_of_pass)
    union = token_union(items.tokens, item_pass, passes)
    pass_queries = queries.tokens.take(np.asarray(list_of_pass))
    start = pass_queries.lengths + 2  # where the union begins: after [CLS], the query and [SEP]
    lengths = start + union.tokens.lengths
    width = int(lengths.max())
    columns, rows = np.arange(width), np.arange(passes)
    input_ids = np.full((passes, width), tokenizer.pad_token_id or 0, dtype=np.int64)
    query_pass, query_column = pass_queries.row_of, pass_queries.position_of + 1
    union_pass = union.tokens.row_of
    input_ids[:, 0] = tokenizer.cls_token_id
    input_ids[query_pass, query_column] = pass_queries.values
    input_ids[rows, start - 1] = tokenizer.sep_token_id
    input_ids[union_pass, start[union_pass] + union.tokens.position_of] = union.tokens.values

    # flat position of the first union token of each item's pass
    offset = item_pass * width + start[item_pass]
    pair_token = offset[union.pair_item] + union.pair_position
    in_union = (columns[None, :] >= start[:, None]).astype(np.int64)
    position_ids = neighbours = None
    if union_positions == "shared":
        position_ids = torch.from_numpy(np.minimum(columns[None, :], start[:, None]))
    elif union_positions == "item":
        places = first_places(pair_token, union.pair_first, passes * width).reshape(passes, width)
        position_ids = torch.from_numpy(np.where(in_union, places + 1, columns[None, :]))
        in_union = np.zeros_like(in_union)  # read as the query is: one segment
    if union_attention == "item":
        neighbours = torch.from_numpy(item_neighbours(pair_token, union.pair_item, width))
    context_token = context_mask = None
    if context:
        place = np.arange(int(start.max()))[None, :]
        context_token = torch.from_numpy(rows[:, None] * width + np.minimum(place, start[:, None] - 1))
        context_mask = torch.from_numpy(place < start[:, None])
    own_item = items.tokens.row_of
    return JointBatch(
        item_mask=mask,
        truncated_items=items.truncated,
        truncated_queries=queries.truncated,
        input_ids=torch.from_numpy(input_ids),
        attention_mask=torch.from_numpy((columns[None, :] < lengths[:, None]).astype(np.int64)),
        segment_ids=torch.from_numpy(in_union),
        position_ids=position_ids,
        neighbours=neighbours,
        query_token=torch.from_numpy(query_pass * width + query_column),
        query_pass=torch.from_numpy(query_pass),
        sep_token=torch.from_numpy(rows * width + start - 1),
        context_token=context_token,
        context_mask=context_mask,
        item_slot=torch.from_numpy(np.flatnonzero(mask.numpy().ravel())),
        item_pass=torch.from_numpy(item_pass),
        pair_token=torch.from_numpy(pair_token),
        pair_item=torch.from_numpy(union.pair_item),
        pair_position=torch.from_numpy(union.pair_first),
        own_token=torch.from_numpy(offset[own_item] + union.occurrence),
        own_item=torch.from_numpy(own_item),
        own_position=torch.from_numpy(items.tokens.position_of),
    )
