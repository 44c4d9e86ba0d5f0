"""Splitting the items of a list into passes that respect N items and L_u union tokens, and the unions of passes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from crossjem_pl.text.ragged import Ints, Ragged

PassOrder = Literal["sorted", "overlap"]

_TABLE = 1 << 22
"""How many possible keys a table may have."""

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
    present = np.zeros(int(rows.values.max(initial=0)) + 1, dtype=bool)
    present[rows.values] = True
    if n <= max_items and np.count_nonzero(present) <= max_union:
        return np.zeros(n, dtype=np.int64)
    return (_by_overlap if order == "overlap" else _in_turn)(rows, max_items, max_union)


def distinct_rows(items: Ragged) -> tuple[Ints, Ints]:
    """One row number for each distinct row, in the lexicographic order of the rows' values, int64 [distinct], and for
    every row which of these is equal to it, int64 [rows]."""
    # several tokens in one integer, the first in the most significant bytes; 0 is behind the end of a row
    ids, each = (">u2", 4) if items.values.max(initial=0) < 0xFFFF else (">u4", 2)
    width = -(-int(items.lengths.max(initial=1)) // each) * each
    table = np.zeros(len(items.lengths) * width, dtype=ids)
    table[items.row_of * width + items.position_of] = items.values + 1
    keys = table.view(">u8").astype(np.uint64).reshape(len(items.lengths), -1)
    order = np.lexsort(keys.T[::-1])
    first = np.ones(len(order), dtype=bool)
    first[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    member = np.empty_like(order)
    member[order] = np.cumsum(first) - 1
    return order[first], member


def length_runs(lengths: Ints, cost: int) -> list[Ints]:
    """Row numbers of each run, the longest rows first; every row is in one of them. A run pads its rows to its longest.

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


class TokenUnion(NamedTuple):
    """Unions of several groups of items, and which item has which of their tokens; never an items x tokens mask.

    Args:
        tokens: one row per group: its distinct token ids, ascending (Algorithm 2, line 9 of the paper).
        occurrence: int64 [all item tokens], the position inside its group's union of every item token.
        members: one row per item: the positions inside its group's union of its distinct tokens, ascending.
        first: int64 [all members], the member's first position inside the item.
    """

    tokens: Ragged
    occurrence: Ints
    members: Ragged
    first: Ints


def token_union(items: Ragged, group_of_item: Ints, groups: int) -> TokenUnion:
    """Unions of the token ids of `items` by group, vectorised over all groups at once.

    Args:
        items: token ids, one row per item.
        group_of_item: int64 [items], values in [0, groups).
        groups: how many groups there are; a group without items has an empty union.
    """
    vocabulary = int(items.values.max(initial=0)) + 1
    group_of = group_of_item[items.row_of]
    first, inverse = _distinct(group_of * vocabulary + items.values, groups * vocabulary)
    sizes = np.bincount(group_of[first], minlength=groups)
    tokens = Ragged(items.values[first], sizes)
    occurrence = inverse - tokens.starts[group_of]

    width = int(sizes.max(initial=0)) or 1
    member = np.unique(items.row_of * width + occurrence, return_index=True)[1]
    lengths = items.lengths
    if len(member) < len(occurrence):
        lengths = np.bincount(items.row_of[member], minlength=len(lengths))
    return TokenUnion(tokens, occurrence, Ragged(occurrence[member], lengths), items.position_of[member])


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
