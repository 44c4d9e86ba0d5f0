"""Attention inside padded rows, with what each place may see given as a mask."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["HIDDEN", "attend"]

HIDDEN = -3e4
"""What is added to the logit of a token that may not be seen; float16 has it too."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *, scaling: float | None, dropout: float
) -> Tensor:
    """Attention inside padded rows, [rows, length, heads, head width].

    Args:
        query: [rows, length, heads, head width].
        key, value: [rows, keys, heads, head width].
        mask: what each row, or each place in it, may see, [rows, keys] or [rows, length, keys]: bool, or float32
            that is added to the logits.
        scaling: factor of the dot products; None for one over the root of the head width.
        dropout: probability of dropping an attention weight.
    """
    q, k, v = (states.transpose(1, 2) for states in (query, key, value))
    seen = mask[:, None, None, :] if mask.ndim == 2 else mask[:, None]
    if q.device.type == "cpu" and torch.is_grad_enabled():
        # on short sequences the fused CPU kernel's backward pass takes several times as long
        logits = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
        seen = torch.where(seen, 0.0, HIDDEN) if seen.dtype == torch.bool else seen
        out = F.dropout(torch.softmax(logits + seen, dim=-1).to(v.dtype), dropout) @ v
    else:
        seen = seen if seen.dtype == torch.bool else seen.to(q.dtype)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout, scale=scaling)
    return out.transpose(1, 2)
