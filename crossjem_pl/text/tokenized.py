"""A ranking list whose items are token ids already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossjem_pl.lists import RankingList
from crossjem_pl.text.ragged import Ragged

__all__ = ["TokenizedList"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenizedList(RankingList):
    """A list that is scored from `tokens`; its `items` are never tokenised and may be the item ids.

    Args:
        tokens: token ids of the items without special tokens, one row each, not yet cut to a ranker's limit.

    Raises:
        ValueError: as for `RankingList`, and if there are not as many rows as items.
    """

    tokens: Ragged

    def __post_init__(self) -> None:
        RankingList.__post_init__(self)
        if len(self.tokens.lengths) != len(self.items):
            raise self._error("tokens", f"{len(self.tokens.lengths)} rows for {len(self.items)} items")

    def select(self, positions: Sequence[int]) -> TokenizedList:
        """The same query with the items at `positions`, in that order."""
        bare = RankingList(
            self.query_id, self.query, self.item_ids, self.items, self.labels, self.scores
        ).select(positions)
        return replace(
            self,
            item_ids=bare.item_ids,
            items=bare.items,
            labels=bare.labels,
            scores=bare.scores,
            tokens=self.tokens.take(np.asarray(positions, dtype=np.int64)),
        )
