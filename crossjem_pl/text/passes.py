"""Splitting the items of one list into passes that respect N items and L_u union tokens."""

from __future__ import annotations

from typing import Literal

import numpy as np

from crossjem_pl.text.ragged import Ints, Ragged

__all__ = ["PassOrder", "distinct_rows", "leading_items", "length_runs", "plan_passes"]

PassOrder = Literal["sorted", "overlap"]

_TAKEN = np.iinfo(np.int64).max // 2
"""Key of an item that has its pass; what is subtracted from it afterwards does not make it small."""


def leading_items(items: Ragged, max_items: int, max_union: int) -> int:
    """How many of the leading items fit one pass: at most `max_items`, at most `max_union` distinct tokens.

    Raises:
        ValueError: if the first item alone has more than `max_union` distinct tokens.
    """
    fits = _prefix(items, max_union)
    if not fits:
        raise _too_large(len(np.unique(items.row(0))), max_union)
    return min(fits, max_items)


def plan_passes(rows: Ragged, max_items: int, max_union: int, order: PassOrder = "sorted") -> Ints:
    """The pass of each item, int64 [rows]. A list that fits one pass is one pass.

    - "sorted": in the order of `rows`, which puts items with a common beginning together; as few passes as taking
      them greedily in that order gives.
    - "overlap": a pass begins with the item whose tokens are the rarest of the list, and always takes next the
      item that adds the fewest tokens to its union (of those the longest), until it is full. Smaller unions,
      at O(items) for every new token of a union. The last passes are left with the items that share little: the
      unions are less even than with "sorted".

    Args:
        rows: token ids of the distinct items, in the order of `distinct_rows`, so that the passes depend on the
            items only and not on the order in which they came.
        max_items: of a pass.
        max_union: distinct tokens of a pass.
        order: see above.

    Raises:
        ValueError: if one item alone has more than `max_union` distinct tokens.
    """
    n = len(rows.lengths)
    if n <= max_items and len(np.unique(rows.values)) <= max_union:
        return np.zeros(n, dtype=np.int64)
    return (_by_overlap if order == "overlap" else _in_turn)(rows, max_items, max_union)


def distinct_rows(items: Ragged) -> tuple[Ints, Ints]:
    """One row number for each distinct row, in the lexicographic order of the rows' values, int64 [distinct], and for
    every row which of these is equal to it, int64 [rows]."""
    # of equal width and the most significant byte first, bytes compare as the rows do
    blob = items.values.astype(">u4").tobytes()
    ends = (4 * np.cumsum(items.lengths)).tolist()
    keys = [blob[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    first: dict[bytes, int] = {}
    for i, key in enumerate(keys):
        first.setdefault(key, i)
    found = sorted(first)
    number = {key: i for i, key in enumerate(found)}
    chosen = np.fromiter(map(first.__getitem__, found), dtype=np.int64, count=len(found))
    return chosen, np.fromiter(map(number.__getitem__, keys), dtype=np.int64, count=len(keys))


def length_runs(lengths: Ints, cost: int) -> list[Ints]:
    """Row numbers of each run; every row is in one of them. A run pads its rows to its longest.

    Beginning with all rows in one, runs are cut in two where that spares the most padding, as long as a cut
    spares at least `cost` tokens.

    Args:
        lengths: int64 [rows], at least one.
        cost: tokens that could be encoded in the time that one more run takes, at least 1.
    """
    order = np.argsort(lengths, kind="stable")
    ascending = lengths[order]
    runs: list[Ints] = []
    rest = [(0, len(order))]
    while rest:
        begin, end = rest.pop()
        # cutting after the first k rows spares each of them the difference between the longest and the k-th
        spared = np.arange(1, end - begin) * (ascending[end - 1] - ascending[begin : end - 1])
        if spared.max(initial=0) < cost:
            runs.append(order[begin:end])
        else:
            middle = begin + 1 + int(spared.argmax())
            rest += [(begin, middle), (middle, end)]
    return runs


def _in_turn(rows: Ragged, max_items: int, max_union: int) -> Ints:
    """The pass of each row, every pass taking as many of the next rows as fit it."""
    passes = np.empty(len(rows.lengths), dtype=np.int64)
    done, number = 0, 0
    while done < len(passes):
        take = leading_items(rows.slice(done, done + max_items), max_items, max_union)
        passes[done : done + take] = number
        done, number = done + take, number + 1
    return passes


def _by_overlap(rows: Ragged, max_items: int, max_union: int) -> Ints:
    """The pass of each of the distinct rows, each pass taking next the row with the fewest new tokens."""
    n = len(rows.lengths)
    vocabulary, token = np.unique(rows.values, return_inverse=True)
    pairs = np.unique(rows.row_of * len(vocabulary) + token)
    row, token = np.divmod(pairs, len(vocabulary))
    sizes = np.bincount(row, minlength=n)
    if sizes.max() > max_union:
        raise _too_large(int(sizes[np.argmax(sizes > max_union)]), max_union)
    own = np.split(token, np.cumsum(sizes)[:-1])
    holding = np.bincount(token, minlength=len(vocabulary))
    holders = np.split(row[np.argsort(token, kind="stable")], np.cumsum(holding)[:-1])
    rarity = np.bincount(row, weights=holding[token], minlength=n) / sizes
    # a row's key: n times its new tokens, plus its place among rows of as many (the longest first)
    tie = np.empty(n, dtype=np.int64)
    tie[np.argsort(-sizes, kind="stable")] = np.arange(n)
    fresh = sizes * n + tie

    passes = np.full(n, -1, dtype=np.int64)
    left, number = n, 0
    while left:
        key = np.where(passes < 0, fresh, _TAKEN)
        inside = np.zeros(len(vocabulary), dtype=bool)
        union = 0
        chosen = int(np.argmin(np.where(passes < 0, rarity, np.inf)))
        for _ in range(min(max_items, left)):
            added = own[chosen][~inside[own[chosen]]]
            if union + len(added) > max_union:
                break
            passes[chosen], key[chosen] = number, _TAKEN
            left -= 1
            inside[added] = True
            union += len(added)
            for new in added:
                key[holders[new]] -= n
            chosen = int(np.argmin(key))
        number += 1
    return passes


def _prefix(items: Ragged, max_union: int) -> int:
    """How many leading items have at most `max_union` distinct tokens together."""
    first_seen = np.unique(items.values, return_index=True)[1]
    new_tokens = np.bincount(items.row_of[first_seen], minlength=len(items.lengths))
    return int(np.searchsorted(np.cumsum(new_tokens), max_union, side="right"))


def _too_large(tokens: int, max_union: int) -> ValueError:
    return ValueError(
        f"one item has {tokens} distinct tokens, more than max_union_tokens={max_union}; lower max_item_tokens "
        "or raise max_union_tokens"
    )
