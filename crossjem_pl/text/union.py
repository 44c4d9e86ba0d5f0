"""The union of the distinct tokens of a group of items, and which item holds which of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crossjem_pl.text.ragged import Ints, Ragged

__all__ = ["TokenUnion", "token_union"]

_TABLE = 1 << 22


class TokenUnion(NamedTuple):
    """Unions of several groups of items, and flat (item, position) pairs; never an items x tokens mask.

    Args:
        tokens: one row per group: its distinct token ids, ascending (Algorithm 2, line 9 of the paper).
        occurrence: int64 [all item tokens], the position inside its group's union of every item token.
        pair_item: int64 [pairs], ascending; the item of each distinct (item, token) pair.
        pair_position: int64 [pairs], the position inside the group's union of the pair's token.
        pair_first: int64 [pairs], the token's first position inside the item.
    """

    tokens: Ragged
    occurrence: Ints
    pair_item: Ints
    pair_position: Ints
    pair_first: Ints


def token_union(items: Ragged, group_of_item: Ints, groups: int) -> TokenUnion:
    """Unions of the token ids of `items` by group, vectorised over all groups at once.

    Args:
        items: token ids, one row per item.
        group_of_item: int64 [items], values in [0, groups).
        groups: how many groups there are; a group without items has an empty union.
    """
    vocabulary = int(items.values.max(initial=0)) + 1
    item_of = items.row_of
    group_of = group_of_item[item_of]
    first, inverse = _distinct(group_of * vocabulary + items.values, groups * vocabulary)
    sizes = np.bincount(group_of[first], minlength=groups)
    starts = np.cumsum(sizes) - sizes
    occurrence = inverse - starts[group_of]

    width = int(sizes.max(initial=0)) or 1
    pair, _ = _distinct(item_of * width + occurrence, len(items.lengths) * width)
    return TokenUnion(
        tokens=Ragged(items.values[first], sizes),
        occurrence=occurrence,
        pair_item=item_of[pair],
        pair_position=occurrence[pair],
        pair_first=items.position_of[pair],
    )


def _distinct(keys: Ints, bound: int) -> tuple[Ints, Ints]:
    """For keys in [0, bound): where each distinct one occurs first, in ascending order of the keys, and the
    place of every key among the distinct ones.

    A table over all possible keys is several times as fast as sorting while it is not large.
    """
    if bound > _TABLE:
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        return first, inverse
    present = np.zeros(bound, dtype=bool)
    present[keys] = True
    distinct = np.flatnonzero(present)
    table = np.empty(bound, dtype=np.int64)
    table[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)  # of equal keys the last assignment stays
    first = table[distinct]
    table[distinct] = np.arange(len(distinct))
    return first, table[keys]
