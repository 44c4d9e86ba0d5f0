"""Scores of ranking lists by one ranker in one configuration that never changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker

__all__ = ["Precision", "Scorer"]

Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Scorer:
    """A ranker on a device in a precision. Several threads may use it at once.

    Args:
        ranker: with its weights in float32, in eval mode on `device`: what is saved and explained.
        device: where it computes.
        precision: of the matrix products; scores are float32 always.
        compiled: whether `torch.compile` made the network.
        network: the copy of the ranker that computes, see `configured`; None for the ranker itself.
    """

    ranker: Ranker
    device: torch.device
    precision: Precision = "float32"
    compiled: bool = False
    network: Ranker | None = None

    def score(self, lists: Sequence[RankingList], batch_size: int = 32) -> tuple[list[Tensor], int]:
        """Scores of each list's items, and how many texts lost tokens to their length limit.

        Args:
            lists: what to score.
            batch_size: lists per forward pass.

        Returns:
            float32 [items] on the CPU for each list, in the items' order; the number of truncated texts.

        Raises:
            ValueError: if a score is not finite; names the list.
        """
        scores: list[Tensor] = []
        truncated = 0
        for first in range(0, len(lists), batch_size):
            found, more = self._score_batch(lists[first : first + batch_size])
            scores += found
            truncated += more
        return scores, truncated

    def _score_batch(self, lists: Sequence[RankingList]) -> tuple[list[Tensor], int]:
        ranker = self.network or self.ranker
        batch = ranker.collate(lists)
        lower = self.precision != "float32"
        dtype = getattr(torch, self.precision) if lower else None
        with torch.inference_mode(), torch.autocast(self.device.type, dtype=dtype, enabled=lower):
            scores = ranker(batch.to(self.device)).float().cpu()
        finite = torch.isfinite(scores).all(1)
        if not finite.all():
            first = lists[int(finite.int().argmin())]
            raise ValueError(
                f"list {first.query_id!r}: a score is not finite; the weights are broken, or "
                f"{self.precision} is too narrow for them (bfloat16 and float32 have the wider range)"
            )
        rows = [row[: len(one)] for row, one in zip(scores, lists, strict=True)]
        return rows, batch.truncated_items + batch.truncated_queries
