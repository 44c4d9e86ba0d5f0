"""Attention over sequences that lie end to end in one row, registered with transformers as an implementation."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

__all__ = ["Packing", "pack", "with_attention", "with_packed_attention"]

_NAME = "crossjem_packed"


class Packing(NamedTuple):
    """Where sequences lie in a flat row of tokens.

    Args:
        rows: int64 [sequences, longest], flat positions; padding repeats position 0.
        mask: bool [sequences, longest], True on tokens.
        flat: int64 [tokens], the place of each token in `rows` seen as one flat array.
    """

    rows: Tensor
    mask: Tensor
    flat: Tensor


def pack(sequence: Tensor, position: Tensor, sequences: int) -> Packing:
    """Packing of tokens that are sorted by `sequence` int64 [tokens], with `position` inside it int64 [tokens]."""
    longest = int(position.max()) + 1
    flat = sequence * longest + position
    rows = torch.zeros(sequences * longest, dtype=torch.long, device=flat.device)
    rows[flat] = torch.arange(len(flat), device=flat.device)
    mask = torch.zeros(sequences * longest, dtype=torch.bool, device=flat.device)
    mask[flat] = True
    return Packing(rows.view(sequences, longest), mask.view(sequences, longest), flat)


def with_packed_attention(layers: nn.ModuleList) -> nn.ModuleList:
    """A deep copy of encoder layers whose attention stays inside the sequences of `packing=`.

    The layers then take hidden states [1, tokens, width] and the keyword `packing`; everything but the attention
    itself runs on the packed tokens, without padding.
    """
    return with_attention(layers, _NAME)


def with_attention(layers: nn.ModuleList, name: str) -> nn.ModuleList:
    """A deep copy of encoder layers with the attention that is registered with transformers as `name`."""
    layers = copy.deepcopy(layers)
    for module in layers.modules():
        config = getattr(module, "config", None)
        if config is not None:
            config._attn_implementation = name
    return layers


def _packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention inside each packed sequence; query, key, value [1, heads, tokens, head width]."""
    q, k, v = (t[0].transpose(0, 1)[packing.rows].transpose(1, 2) for t in (query, key, value))
    mask = packing.mask[:, None, None, :]
    if (
        q.device.type == "cpu"
    ):  # on short sequences the fused CPU kernel's backward pass takes ten times as long
        logits = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
        weights = torch.softmax(logits.masked_fill(~mask, torch.finfo(logits.dtype).min), dim=-1)
        out = F.dropout(weights, dropout) @ v
    else:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return out.transpose(1, 2).flatten(0, 1)[packing.flat][None], None


AttentionInterface.register(_NAME, _packed_attention)
