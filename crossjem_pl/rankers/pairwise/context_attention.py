"""Attention of packed sequences to themselves and to tokens that several sequences share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from crossjem_pl.rankers.attention import HIDDEN, attend
from crossjem_pl.rankers.pairwise.packed_attention import Packing

__all__ = ["Groups", "attend_with_context", "group"]

_MOST_ELEMENTS = 1 << 26
"""Numbers in the keys of one step (256 MiB in float32): larger batches take several steps."""


_GROUP = 32
"""Tokens of a group, about: many short sequences in one row cost less than a matrix product for each of them."""


class Groups(NamedTuple):
    """Sequences put into rows, several of one context in each; they do not see one another.

    Args:
        rows: int64 [groups, longest], flat positions of the tokens; padding repeats position 0.
        sequence: int64 [groups, longest], the sequence of each token, -1 on padding.
        flat: int64 [tokens], the place of each token in `rows` seen as one flat array.
        context_of: int64 [groups].
    """

    rows: Tensor
    sequence: Tensor
    flat: Tensor
    context_of: Tensor


def group(packing: Packing, context_of: Tensor) -> Groups:
    """Groups of about 32 tokens.

    Args:
        packing: where the sequences lie among their tokens, end to end.
        context_of: int64 [sequences], the context of each sequence.
    """
    count, longest = packing.rows.shape
    device = context_of.device
    if torch.compiler.is_exporting():  # the number of groups depends on the data: one sequence in each
        of_row = torch.arange(count, device=device)[:, None]
        return Groups(packing.rows, torch.where(packing.mask, of_row, -1), packing.flat, context_of)
    lengths = packing.mask.sum(1)
    order = torch.argsort(context_of, stable=True)
    start = lengths[order].cumsum(0) - lengths[order]
    step = start // _GROUP
    key = context_of[order] * (step[-1] + 1) + step
    found, of_ordered, sizes = torch.unique_consecutive(key, return_inverse=True, return_counts=True)
    begin = start[sizes.cumsum(0) - sizes]
    of_sequence, offset = torch.empty_like(order), torch.empty_like(order)
    of_sequence[order], offset[order] = of_ordered, start - begin[of_ordered]
    token_sequence = packing.flat // longest
    column = offset[token_sequence] + packing.flat % longest
    width = int(column.max()) + 1
    flat = of_sequence[token_sequence] * width + column
    rows = torch.zeros(len(found) * width, dtype=torch.long, device=device)
    sequence = torch.full_like(rows, -1)
    rows[flat] = torch.arange(len(flat), device=device)
    sequence[flat] = token_sequence
    shape = (len(found), width)
    return Groups(rows.view(shape), sequence.view(shape), flat, context_of[order][sizes.cumsum(0) - sizes])


def attend_with_context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    groups: Groups,
    context_key: Tensor,
    context_value: Tensor,
    context_mask: Tensor,
    *,
    scaling: float | None,
    dropout: float,
) -> Tensor:
    """softmax over (a sequence's context, its own tokens) jointly; [tokens, heads, head width].

    Every group is one row of a padded batch whose keys begin with its context's: one fused kernel.

    Args:
        query, key, value: [tokens, heads, head width], the sequences' tokens end to end.
        groups: where the sequences lie in them, and which context is whose.
        context_key, context_value: [contexts, longest, heads, head width].
        context_mask: [sequences, longest], the context's tokens that the sequence may see: bool, or float32 that
            is added to the logits.
        scaling: factor of the dot products.
        dropout: probability of dropping an attention weight.
    """

    def part(chosen: slice) -> Tensor:
        rows, sequence, context = groups.rows[chosen], groups.sequence[chosen], groups.context_of[chosen]
        own = sequence[:, :, None] == sequence[:, None, :]
        if context_mask.dtype != torch.bool:
            own = torch.where(own, 0.0, HIDDEN)
        mask = torch.cat([context_mask[sequence.clamp(min=0)], own], dim=2)
        keys = torch.cat([context_key[context], key[rows]], dim=1)
        values = torch.cat([context_value[context], value[rows]], dim=1)
        return attend(query[rows], keys, values, mask, scaling=scaling, dropout=dropout).flatten(0, 1)

    if torch.compiler.is_exporting():  # a graph has no steps whose number depends on a size
        return part(slice(None))[groups.flat]
    size = context_key.shape[1] + groups.rows.shape[1]
    per_step = max(1, _MOST_ELEMENTS // (size * key[0].numel()))
    done = [part(slice(first, first + per_step)) for first in range(0, len(groups.rows), per_step)]
    return torch.cat(done)[groups.flat]
