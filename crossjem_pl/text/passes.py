"""Splitting the items of one list into passes that respect N items and L_u union tokens."""

from __future__ import annotations

from typing import Literal

import numpy as np

from crossjem_pl.text.ragged import Ints, Ragged

__all__ = ["PassOrder", "leading_items", "plan_passes"]

PassOrder = Literal["sorted", "given"]


def leading_items(items: Ragged, max_items: int, max_union: int) -> int:
    """How many of the leading items fit one pass: at most `max_items`, at most `max_union` distinct tokens.

    Raises:
        ValueError: if the first item alone has more than `max_union` distinct tokens.
    """
    fits = _prefix(items, max_union)
    if not fits:
        raise ValueError(
            f"one item has {len(np.unique(items.row(0)))} distinct tokens, more than "
            f"max_union_tokens={max_union}; lower max_item_tokens or raise max_union_tokens"
        )
    return min(fits, max_items)


def plan_passes(items: Ragged, max_items: int, max_union: int, order: PassOrder = "sorted") -> Ints:
    """The pass of each item, int64 [items], as few passes as taking items greedily in `order` gives.

    A list that fits one pass is one pass. Otherwise `order="sorted"` takes the items by their token ids,
    which puts items with a common beginning together (smaller unions) and makes the plan independent of the
    order in which the items came; `"given"` keeps their order. Items with equal tokens always share a pass,
    so that they get equal scores, and count once towards `max_items`.
    """
    n = len(items.lengths)
    if n <= max_items and len(np.unique(items.values)) <= max_union:
        return np.zeros(n, dtype=np.int64)

    rows = [
        items.values[s : s + k].astype(">u4").tobytes()
        for s, k in zip(items.starts, items.lengths, strict=True)
    ]
    distinct: dict[bytes, list[int]] = {}
    for i, row in enumerate(rows):
        distinct.setdefault(row, []).append(i)
    keys = sorted(distinct) if order == "sorted" else list(distinct)
    rest = Ragged.from_rows([np.frombuffer(k, dtype=">u4").astype(np.int64) for k in keys])

    passes = np.empty(n, dtype=np.int64)
    done, number = 0, 0
    while done < len(keys):
        take = leading_items(rest.slice(done, done + max_items), max_items, max_union)
        for key in keys[done : done + take]:
            passes[distinct[key]] = number
        done, number = done + take, number + 1
    return passes


def _prefix(items: Ragged, max_union: int) -> int:
    """How many leading items have at most `max_union` distinct tokens together."""
    first_seen = np.unique(items.values, return_index=True)[1]
    new_tokens = np.zeros(len(items.lengths), dtype=np.int64)
    np.add.at(new_tokens, items.row_of[first_seen], 1)
    return int(np.searchsorted(np.cumsum(new_tokens), max_union, side="right"))
