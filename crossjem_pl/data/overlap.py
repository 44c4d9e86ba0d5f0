"""How much the items of a list share their tokens: what decides whether a joint pass pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossjem_pl.lists import RankingList
from crossjem_pl.text import Ragged, ShortTextTokenizer, token_union
from crossjem_pl.text.ragged import Ints

__all__ = ["PAPER", "Overlap", "overlap_statistics", "prefix_unions"]

PAPER: dict[int, tuple[float, float]] = {12: (498.38, 93.70), 16: (499.34, 94.02), 32: (501.52, 94.60)}
"""(m, N_u) by item limit L: Table 8b of the CROSS-JEM paper, a log of sponsored search."""


@dataclass(frozen=True)
class Overlap:
    """The statistics of the paper's appendix G and Table 8b.

    Args:
        lists: how many lists were counted.
        items: mean number of items.
        total_tokens: m, the mean over lists of the summed item lengths in tokens.
        union_tokens: N_u, the mean size of the union of the item tokens.
    """

    lists: int
    items: float
    total_tokens: float
    union_tokens: float

    @property
    def ratio(self) -> float:
        """m / N_u: how many times smaller the union is."""
        return self.total_tokens / self.union_tokens

    def __str__(self) -> str:
        return (
            f"token overlap of {self.lists} lists, {self.items:.0f} items each: m = {self.total_tokens:.1f} item "
            f"tokens, N_u = {self.union_tokens:.1f} distinct, ratio {self.ratio:.2f} "
            "(the paper's sponsored search log: 498, 94, about 5)"
        )


def overlap_statistics(
    lists: Sequence[RankingList], tokenizer: ShortTextTokenizer, max_item_tokens: int = 32
) -> Overlap:
    """Token overlap of `lists`, items cut to `max_item_tokens` (the L of Table 8b)."""
    if not lists:
        raise ValueError("no lists to count")
    total = union = 0
    for one in lists:
        tokens = tokenizer.encode(one.items, max_item_tokens).tokens
        total += len(tokens.values)
        union += len(token_union(tokens, np.zeros(len(one), dtype=np.int64), 1).tokens.values)
    count = len(lists)
    return Overlap(count, sum(map(len, lists)) / count, total / count, union / count)


def prefix_unions(items: Ragged) -> Ints:
    """int64 [items]: how many distinct tokens the first 1, 2, ... items have together."""
    first_seen = np.unique(items.values, return_index=True)[1]
    return np.cumsum(np.bincount(items.row_of[first_seen], minlength=len(items.lengths)))
