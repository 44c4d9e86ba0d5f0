"""Attention of packed sequences to themselves and to tokens that several sequences share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from crossjem_pl.rankers.packed_attention import HIDDEN, Packing

__all__ = ["attend", "attend_with_context"]

_MOST_ELEMENTS = 1 << 26
"""Numbers in the keys of one step (256 MiB in float32): larger batches take several steps."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *, scaling: float | None, dropout: float
) -> Tensor:
    """Attention inside padded rows, [rows, length, heads, head width].

    Args:
        query: [rows, length, heads, head width].
        key, value: [rows, keys, heads, head width].
        mask: what each row may see, [rows, keys]: bool, or float32 that is added to the logits.
        scaling: factor of the dot products; None for one over the root of the head width.
        dropout: probability of dropping an attention weight.
    """
    q, k, v = (states.transpose(1, 2) for states in (query, key, value))
    seen = mask[:, None, None, :]
    if q.device.type == "cpu" and torch.is_grad_enabled():
        # on short sequences the fused CPU kernel's backward pass takes several times as long
        logits = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
        seen = torch.where(seen, 0.0, HIDDEN) if seen.dtype == torch.bool else seen
        out = F.dropout(torch.softmax(logits + seen, dim=-1).to(v.dtype), dropout) @ v
    else:
        seen = seen if seen.dtype == torch.bool else seen.to(q.dtype)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout, scale=scaling)
    return out.transpose(1, 2)


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
        context_mask: [sequences, longest], the context's tokens that the sequence may see: bool, or float32 that
            is added to the logits.
        scaling: factor of the dot products.
        dropout: probability of dropping an attention weight.
    """
    own = packing.mask
    if context_mask.dtype != torch.bool:
        own = torch.where(own, 0.0, HIDDEN)
    mask = torch.cat([context_mask, own], dim=1)

    def part(chosen: slice) -> Tensor:
        rows, context = packing.rows[chosen], context_of[chosen]
        keys = torch.cat([context_key[context], key[rows]], dim=1)
        values = torch.cat([context_value[context], value[rows]], dim=1)
        out = attend(query[rows], keys, values, mask[chosen], scaling=scaling, dropout=dropout)
        return out.flatten(0, 1)

    if torch.compiler.is_exporting():  # a graph has no steps whose number depends on a size
        return part(slice(None))[packing.flat]
    size = context_key.shape[1] + packing.rows.shape[1]
    per_step = max(1, _MOST_ELEMENTS // (size * key[0].numel()))
    done = [part(slice(first, first + per_step)) for first in range(0, len(packing.rows), per_step)]
    return torch.cat(done)[packing.flat]
