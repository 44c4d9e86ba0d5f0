"""Attention of packed sequences to themselves and to tokens that several sequences share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from crossjem_pl.rankers.packed_attention import Packing

__all__ = ["attend_with_context"]

_MOST_ELEMENTS = 1 << 26
"""Numbers in the keys of one step (256 MiB in float32): larger batches take several steps."""


def attend_with_context(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packing: Packing,
    context_key: Tensor,
    context_value: Tensor,
    context_of: Tensor,
    context_mask: Tensor,
    *,
    scaling: float | None,
    dropout: float,
) -> Tensor:
    """softmax over (a sequence's context, its own tokens) jointly; [tokens, heads, head width].

    Every sequence is one row of a padded batch whose keys begin with its context's: one fused kernel. (Two
    products with one softmax over both save the copy of the context; measured on a CPU they take longer.)

    Args:
        query, key, value: [tokens, heads, head width], the sequences' tokens end to end.
        packing: where the sequences lie in them.
        context_key, context_value: [contexts, longest, heads, head width].
        context_of: int64 [sequences], the context of each sequence.
        context_mask: bool [sequences, longest], the context's tokens that the sequence may see.
        scaling: factor of the dot products.
        dropout: probability of dropping an attention weight.
    """
    size = context_key.shape[1] + packing.rows.shape[1]
    per_step = max(1, _MOST_ELEMENTS // (size * key[0].numel()))
    done = []
    for first in range(0, len(packing.rows), per_step):
        chosen = slice(first, first + per_step)
        rows, context = packing.rows[chosen], context_of[chosen]
        keys = torch.cat([context_key[context], key[rows]], dim=1).transpose(1, 2)
        values = torch.cat([context_value[context], value[rows]], dim=1).transpose(1, 2)
        mask = torch.cat([context_mask[chosen], packing.mask[chosen]], dim=1)[:, None, None, :]
        queries = query[rows].transpose(1, 2)
        out = F.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, dropout_p=dropout, scale=scaling
        )
        done.append(out.transpose(1, 2).flatten(0, 1))
    return torch.cat(done)[packing.flat]
