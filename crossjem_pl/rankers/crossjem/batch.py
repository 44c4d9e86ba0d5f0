"""CROSS-JEM's batch: every index that the network reads, padded, made in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crossjem_pl.rankers.bert import HIDDEN
from crossjem_pl.text import Ragged, TokenUnion, distinct_rows, length_runs, plan_passes, token_union
from crossjem_pl.text.passes import PassOrder
from crossjem_pl.text.ragged import Ints

__all__ = [
    "Layout",
    "Passes",
    "Steps",
    "UnionAttention",
    "UnionPositions",
    "deal",
    "first_places",
    "group_items",
    "padded",
    "runs",
    "token_tables",
    "up",
]

UnionPositions = Literal["sequential", "item"]
UnionAttention = Literal["full", "item"]

_GROUP = 32
"""Tokens of a group, if no item is longer: many short items in one row cost less than a product for each of them."""


class Steps(NamedTuple):
    """The multiples to which the sizes of a run are padded: few shapes for compiled programs, little padding else."""

    passes: int = 1
    tokens: int = 8
    items: int = 8
    groups: int = 1


class Layout(NamedTuple):
    """Which tensors a model's runs have, and how they are padded.

    Args:
        names: of the tensors, see `CrossJEM.run_axes`; the others are not made.
        cls, sep, pad: token ids.
        steps: see there.
        most_tokens: of a pass, as the encoder's positions allow; None if they set no limit.
        union_attention, query_bias: see `CrossJEM`.
    """

    names: tuple[str, ...]
    cls: int
    sep: int
    pad: int
    steps: Steps
    most_tokens: int | None
    union_attention: UnionAttention
    query_bias: float


class Passes(NamedTuple):
    """Passes of several lists.

    Args:
        queries: one row of token ids per pass.
        rows: token ids of the items, each distinct row of a list once.
        pass_of_row: int64 [rows].
        row_of_item: int64 [items]; items of equal tokens share a row, so that their scores are equal.
        items: int64 [items], the item's number among all items of the lists.
    """

    queries: Ragged
    rows: Ragged
    pass_of_row: Ints
    row_of_item: Ints
    items: Ints

    def select(self, passes: Ints) -> Passes:
        """The passes of these numbers, in this order."""
        number = np.full(len(self.queries.lengths), -1)
        number[passes] = np.arange(len(passes))
        rows = np.flatnonzero(number[self.pass_of_row] >= 0)
        row_number = np.full(len(self.pass_of_row), -1)
        row_number[rows] = np.arange(len(rows))
        items = np.flatnonzero(row_number[self.row_of_item] >= 0)
        return Passes(
            self.queries.take(passes),
            self.rows.take(rows),
            number[self.pass_of_row[rows]],
            row_number[self.row_of_item[items]],
            self.items[items],
        )


def deal(
    queries: Ragged, items: Ragged, counts: Sequence[int], max_items: int, max_union: int, order: PassOrder
) -> Passes:
    """Puts the items of several lists into passes, see `plan_passes`: from one row of token ids per list, one per item,
    list after list, and the number of items of each list."""
    rows, pass_of_row, row_of_item = [], [], []
    list_of_pass: list[int] = []
    begin = found = 0
    for number, count in enumerate(counts):
        own = items.slice(begin, begin + count)
        index, member = distinct_rows(own)
        distinct = own.take(index)
        plan = plan_passes(distinct, max_items, max_union, order)
        rows.append(distinct)
        pass_of_row.append(plan + len(list_of_pass))
        row_of_item.append(member + found)
        list_of_pass += [number] * (int(plan.max()) + 1)
        begin, found = begin + count, found + len(index)
    return Passes(
        queries.take(np.array(list_of_pass)),
        Ragged.joined(rows),
        np.concatenate(pass_of_row),
        np.concatenate(row_of_item),
        np.arange(begin),
    )


def runs(layout: Layout, passes: Passes, cost: int | None) -> Iterator[tuple[dict[str, Tensor], Ints, Ints]]:
    """The tensors of each run (see `CrossJEM.run_axes`), and of each item of the run its number among all items and
    its row, int64 [items] each.

    Args:
        layout: what the tensors are, and how they are padded.
        passes: what to run.
        cost: see `length_runs`; None for all passes in one run.
    """
    union = token_union(passes.rows, passes.pass_of_row, len(passes.queries.lengths))
    cuts = [] if cost is None else length_runs(passes.queries.lengths + union.tokens.lengths, cost)
    parts = [passes.select(np.sort(cut)) for cut in cuts] if len(cuts) > 1 else [passes]
    for part in parts:
        if len(parts) > 1:
            union = token_union(part.rows, part.pass_of_row, len(part.queries.lengths))
        made = _tensors(layout, part, union)
        yield {name: torch.from_numpy(made[name]) for name in layout.names}, part.items, part.row_of_item


def _tensors(layout: Layout, passes: Passes, union: TokenUnion) -> dict[str, np.ndarray]:
    """The arrays of a run by name."""
    steps, queries, pass_of_row = layout.steps, passes.queries, passes.pass_of_row
    count = len(queries.lengths)
    start = queries.lengths + 2  # where the union begins: after [CLS], the query and [SEP]
    lengths = start + union.tokens.lengths
    longest = int(lengths.max())
    width = max(longest, min(up(longest, steps.tokens), layout.most_tokens or longest + steps.tokens))
    shape = (up(count, steps.passes), width)
    columns = np.arange(width)[None, :]
    ids = np.full(shape, layout.pad, dtype=np.int64)
    ids[:, 0] = layout.cls
    ids[queries.row_of, queries.position_of + 1] = queries.values
    ids[np.arange(count), start - 1] = layout.sep
    ids[union.tokens.row_of, start[union.tokens.row_of] + union.tokens.position_of] = union.tokens.values

    ends, starts = (padded(x, steps.passes, 1)[:, None] for x in (lengths, start))  # padding: [CLS] alone
    in_context = columns[:, : min(up(int(start.max()), 4), width)]
    offset = pass_of_row * width + start[pass_of_row]
    members = union.members
    own = Ragged(offset[members.row_of] + members.values, members.lengths)
    made = {
        "input_ids": ids,
        "context_mask": in_context < starts,
        "word_mask": (in_context > 0) & (in_context < starts - 1),
        "item_pass": padded(pass_of_row, steps.items, 0),
    }
    if layout.union_attention == "item":
        made["attention_mask"] = _neighbours(shape, starts, own, layout.query_bias)
    else:
        made["attention_mask"] = (columns < ends).astype(np.int64)
    places = None
    if "position_ids" in layout.names:
        places = first_places(own.values, union.first, ids.size)
        inside = np.where(columns < ends, places.reshape(shape) + 1, 0)
        made["position_ids"] = np.where(columns < starts, columns, inside)
    elif "segment_ids" in layout.names:
        made["segment_ids"] = ((columns >= starts) & (columns < ends)).astype(np.int64)
    positions = union.first
    if "group_token" in layout.names:
        token, positions = offset[passes.rows.row_of] + union.occurrence, passes.rows.position_of
        entries = _entries(token, positions, places if "entry_place" in layout.names else None)
        groups, own = group_items(passes.rows, pass_of_row, count, entries["group_token"], steps.groups)
        made |= entries | groups
        own = Ragged(own.values + shape[0] * in_context.shape[1], own.lengths)
    return made | token_tables(own, positions, len(made["item_pass"]))


def _neighbours(shape: tuple[int, int], starts: Ints, own: Ragged, query_bias: float) -> np.ndarray:
    """What is added to the attention logits of joint passes, float32 [P, S, S]: row sees column.

    [CLS], the query and [SEP] see each other and nothing else, so that they do not depend on the items. A union
    token sees them, the query's words with `query_bias` added, and the tokens that it shares an item with. `starts`
    [P, 1] is where the unions begin, `own` has the flat places (of P * S) of each item's distinct tokens.
    """
    columns = np.arange(shape[1])[None, :]
    of_query = columns < starts
    words = of_query & (columns > 0) & (columns < starts - 1)
    by_query = np.where(of_query, 0.0, HIDDEN).astype(np.float32)
    by_union = np.where(words, np.float32(query_bias), by_query)
    table = np.where(of_query[:, :, None], by_query[:, None, :], by_union[:, None, :])
    partners = own.take(own.row_of)  # of each token of an item: all tokens of the item
    seen = np.repeat(own.values, partners.lengths) * shape[1] + partners.values % shape[1]
    table.reshape(-1)[seen] = 0.0
    return table


def token_tables(own: Ragged, positions: Ints, rows: int) -> dict[str, np.ndarray]:
    """Items as `rows` rows of their tokens: where each token's state is, its position in the item, and a mask."""
    made: dict[str, np.ndarray] = {}
    size = rows, up(int(own.lengths.max()), 4)
    at = own.row_of * size[1] + own.position_of
    for name, values in (("item_rows", own.values), ("item_positions", positions)):
        made[name] = np.zeros(size, dtype=np.int64)
        made[name].reshape(-1)[at] = values
    lengths = np.append(own.lengths, np.zeros(rows - len(own.lengths), dtype=np.int64))
    return made | {"item_mask": np.arange(size[1]) < lengths[:, None]}


def _entries(token: Ints, positions: Ints, places: Ints | None) -> dict[str, np.ndarray]:
    """The states that enter the item-side layers: one for each token of a union, or, with the `places` that these have
    there, for each place that the token has in an item; `group_token` says for each item token which one it is."""
    span = 1 if places is None else int(positions.max()) + 1
    found, index = np.unique(token * span + (0 if places is None else positions), return_inverse=True)
    made = {"entry_token": found // span, "group_token": index}
    if places is not None:
        made |= {"entry_place": found % span + 1, "entry_shared": places[made["entry_token"]] + 1}
    return made


def first_places(pair_token: Ints, pair_position: Ints, size: int) -> Ints:
    """The smallest place that each union token has in any of its items, int64 [size]; 0 where no token is.

    Args:
        pair_token: int64 [pairs], values in [0, size).
        pair_position: int64 [pairs], the token's first place in the item.
    """
    places = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(places, pair_token, pair_position)
    places[places == np.iinfo(np.int64).max] = 0
    return places


def group_items(
    rows: Ragged, pass_of_row: Ints, passes: int, entry_of_token: Ints, step: int
) -> tuple[dict[str, np.ndarray], Ragged]:
    """Items of one pass put into rows of W tokens, and where in the flattened [G, W] the tokens of each item are.

    Longest first, each into the fullest group that has room.
    """
    width = up(max(_GROUP, int(rows.lengths.max())), 8)
    lengths, of_pass = rows.lengths.tolist(), pass_of_row.tolist()
    begin = np.empty(len(lengths), dtype=np.int64)
    group_pass: list[int] = []
    with_room: list[list[list[int]]] = [[[] for _ in range(width + 1)] for _ in range(passes)]
    rooms = [0] * passes  # bit n: a group has room for n tokens
    for row in np.argsort(-rows.lengths, kind="stable").tolist():
        length, number = lengths[row], of_pass[row]
        groups = with_room[number]
        if fitting := rooms[number] >> length:
            free = length + (fitting & -fitting).bit_length() - 1
            group = groups[free].pop()
            if not groups[free]:
                rooms[number] ^= 1 << free
        else:
            free, group = width, len(group_pass)
            group_pass.append(number)
        begin[row] = group * width + width - free
        if free > length:
            groups[free - length].append(group)
            rooms[number] |= 1 << (free - length)
    places = Ragged(np.repeat(begin, rows.lengths) + rows.position_of, rows.lengths)
    count = up(len(group_pass), step)
    token, item = np.zeros(count * width, dtype=np.int64), np.full(count * width, -1)
    token[places.values], item[places.values] = entry_of_token, rows.row_of
    made = {"group_token": token.reshape(count, width), "group_item": item.reshape(count, width)}
    return made | {"group_pass": padded(np.array(group_pass), step, 0)}, places


def up(number: int, step: int) -> int:
    """The number rounded up to a multiple of `step`."""
    return -(-number // step) * step


def padded(values: Ints, step: int, fill: int) -> Ints:
    """int64 [n rounded up to a multiple of `step`]."""
    return np.append(values, np.full(-len(values) % step, fill))
