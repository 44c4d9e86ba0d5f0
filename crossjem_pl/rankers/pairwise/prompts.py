"""Batches of prompts: one sequence per (query, item), grouped by length, scores put back in their places."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from crossjem_pl.rankers.base import Batch

__all__ = ["PromptBatch", "in_place"]


@dataclass
class PromptBatch(Batch):
    """Prompts padded on the right, in groups of similar length.

    Args:
        groups: dicts of `input_ids` and `attention_mask`, int64 [prompts of the group, length].
    """

    groups: list[dict[str, Tensor]]


def in_place(scores: Tensor, batch: PromptBatch) -> Tensor:
    """float32 [lists, max_items] from scores [all prompts] in the groups' order; 0 on padding."""
    flat = torch.zeros(batch.item_mask.numel(), dtype=torch.float32, device=scores.device)
    return flat.index_copy(0, batch.slots, scores.float()).view(batch.item_mask.shape)
