"""CROSS-JEM with other numbers of items a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM
from crossjem_pl.text import plan_passes, token_union

__all__ = ["Limits", "limits_of", "with_items_per_pass"]

_NO_LIMIT = 2**31
"""More union tokens than a pass has."""


@dataclass(frozen=True)
class Limits:
    """How a model splits some lists.

    Args:
        items: at most in a pass.
        union_tokens: at most in a pass.
        needed: union tokens of the largest pass, were there no limit but that of the items.
        passes: a list, mean.
    """

    items: int
    union_tokens: int
    needed: int
    passes: float


def limits_of(ranker: CrossJEM, lists: Sequence[RankingList]) -> Limits:
    """The model's own limits, and how they split the lists."""
    passes = [len(ranker.collate([one]).input_ids) for one in lists]
    needed = _largest_union(ranker, lists, ranker.max_items_per_pass)
    return Limits(ranker.max_items_per_pass, ranker.max_union_tokens, needed, float(np.mean(passes)))


def with_items_per_pass(ranker: CrossJEM, items: int, lists: Sequence[RankingList]) -> CrossJEM:
    """The model with `items` a pass.

    Its union limit is raised to what the largest pass of the lists needs, if the encoder's positions allow that; else
    it stays, and passes of fewer items are the result.
    """
    needed = _largest_union(ranker, lists, items)
    union = max(needed, ranker.max_union_tokens)
    if ranker.union_limit is not None and union > ranker.union_limit:
        union = ranker.max_union_tokens
    return ranker.with_limits(items, union, ranker.pass_order)


def _largest_union(ranker: CrossJEM, lists: Sequence[RankingList], items: int) -> int:
    largest = 0
    for one in lists:
        tokens = ranker.encode_items([one]).tokens
        passes = plan_passes(tokens, items, _NO_LIMIT, ranker.pass_order)
        union = token_union(tokens, passes, int(passes.max()) + 1)
        largest = max(largest, int(union.tokens.lengths.max()))
    return largest
