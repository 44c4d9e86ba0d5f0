"""CROSS-JEM's batch: every index that the network reads, padded, made in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crossjem_pl.rankers.attention import HIDDEN
from crossjem_pl.text import Ragged, TokenUnion, distinct_rows, length_runs, plan_passes, token_union
from crossjem_pl.text.passes import PassOrder
from crossjem_pl.text.ragged import Ints

__all__ = ["Passes", "RunFormat", "Steps", "UnionAttention", "UnionPositions", "deal", "first_places"]

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


class Passes(NamedTuple):
    """Passes of several lists.

    Args:
        queries: one row of token ids per pass.
        rows: token ids of the items, each distinct row of a list once.
        pass_of_row: int64 [rows].
        row_of_item: int64 [items]; items of equal tokens share a row, so that their scores are equal.
        slot_of_item: int64 [items], the item's place in the flattened [lists, max_items].
    """

    queries: Ragged
    rows: Ragged
    pass_of_row: Ints
    row_of_item: Ints
    slot_of_item: Ints

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
            self.slot_of_item[items],
        )


def deal(
    queries: Ragged, items: Ragged, mask: Tensor, max_items: int, max_union: int, order: PassOrder
) -> Passes:
    """Puts the items of several lists into passes, see `plan_passes`.

    Args:
        queries: one row of token ids per list.
        items: one row of token ids per item, list after list.
        mask: bool [lists, max_items].
        max_items, max_union, order: see `plan_passes`.
    """
    rows, pass_of_row, row_of_item = [], [], []
    list_of_pass: list[int] = []
    begin = found = 0
    for number, count in enumerate(mask.sum(1).tolist()):
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
        np.flatnonzero(mask.numpy().ravel()),
    )


@dataclass(frozen=True)
class RunFormat:
    """Which tensors a form of CROSS-JEM reads, and how they are padded.

    Args:
        cls_id, sep_id, pad_id: token ids.
        union_positions, union_attention, query_bias, item_side_layers, own_places: see `CrossJEM`.
        segments: whether the encoder tells two segments apart.
        most_tokens: no pass is padded beyond it; None for no limit.
        steps: what sizes are padded to.
    """

    cls_id: int
    sep_id: int
    pad_id: int
    union_positions: UnionPositions
    union_attention: UnionAttention
    query_bias: float
    item_side_layers: int
    own_places: bool
    segments: bool
    most_tokens: int | None
    steps: Steps

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The names of the tensors of a run and of their axes, in the order of `runs`' dicts.

        P passes of S tokens `[CLS] query [SEP] union`, Q of them `[CLS] query [SEP]`; R rows of distinct items with
        T tokens; n items:

        - input_ids, segment_ids, position_ids: int64 [P, S].
        - attention_mask: int64 [P, S], or with "item" attention float32 [P, S, S], what is added to the logits.
        - context_mask, word_mask: bool [P, Q], which of the first Q tokens are [CLS], query or [SEP], and which
          query.
        - item_pass: int64 [R], item_mask: bool [R, T].
        - item_rows: int64 [R, T], where the states of the item's tokens are: among all P * S, in ascending order
          and each token once; with item-side layers among all P * Q + G * W, in the item's order.
        - item_positions: int64 [R, T], the (first) place of each of these tokens in its item.
        - item_of_output: int64 [n], the row of each item.
        - entry_token: int64 [E], the states among all P * S that enter the item-side layers, entry_place and
          entry_shared: int64 [E], the place of the token in the item, and that which it has in the union.
        - group_token, group_item: int64 [G, W], items put into rows of W tokens: which entry each token is, and the
          row (of R) of its item, -1 on padding; group_pass: int64 [G].
        """
        passes, context, items = (
            ("passes", "pass_tokens"),
            ("passes", "context_tokens"),
            ("items", "item_tokens"),
        )
        found: dict[str, tuple[str, ...]] = {"input_ids": passes}
        found["attention_mask"] = passes if self.union_attention == "full" else (*passes, "pass_tokens")
        if self.segments and self.union_positions == "sequential":
            found["segment_ids"] = passes
        if self.union_positions == "item":
            found["position_ids"] = passes
        found |= {"context_mask": context, "word_mask": context, "item_pass": ("items",), "item_mask": items}
        found |= {"item_rows": items, "item_positions": items, "item_of_output": ("outputs",)}
        if self.item_side_layers:
            found["entry_token"] = ("entries",)
            if self.own_places:
                found |= {"entry_place": ("entries",), "entry_shared": ("entries",)}
            found |= dict.fromkeys(("group_token", "group_item"), ("groups", "group_tokens"))
            found["group_pass"] = ("groups",)
        return found

    def runs(
        self, passes: Passes, spare: int, cost: int | None
    ) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        """The tensors of each run (see `axes`) and the slots of its outputs, int64 [n].

        Args:
            passes: what to run.
            spare: the slot of outputs that are padding.
            cost: see `length_runs`; None for all passes in one run.
        """
        union = token_union(passes.rows, passes.pass_of_row, len(passes.queries.lengths))
        cuts = []
        if cost is not None:
            cuts = length_runs(passes.queries.lengths + union.tokens.lengths, cost)
        parts = [passes.select(np.sort(cut)) for cut in cuts] if len(cuts) > 1 else [passes]
        for part in parts:
            if len(parts) > 1:
                union = token_union(part.rows, part.pass_of_row, len(part.queries.lengths))
            made = self._tensors(part, union)
            slots = _padded(part.slot_of_item, self.steps.items, spare)
            yield {name: torch.from_numpy(made[name]) for name in self.axes}, torch.from_numpy(slots)

    def _tensors(self, passes: Passes, union: TokenUnion) -> dict[str, np.ndarray]:
        steps, queries, pass_of_row = self.steps, passes.queries, passes.pass_of_row
        count = len(queries.lengths)
        start = queries.lengths + 2  # where the union begins: after [CLS], the query and [SEP]
        lengths = start + union.tokens.lengths
        width = _up(int(lengths.max()), steps.tokens)
        width = max(int(lengths.max()), min(width, self.most_tokens or width))
        shape = (_up(count, steps.passes), width)
        columns = np.arange(width)[None, :]
        ids = np.full(shape, self.pad_id, dtype=np.int64)
        ids[:, 0] = self.cls_id
        ids[queries.row_of, queries.position_of + 1] = queries.values
        ids[np.arange(count), start - 1] = self.sep_id
        union_pass = union.tokens.row_of
        ids[union_pass, start[union_pass] + union.tokens.position_of] = union.tokens.values

        ends, starts = (
            _padded(x, steps.passes, 1)[:, None] for x in (lengths, start)
        )  # padding: [CLS] alone
        in_context = columns[:, : min(_up(int(start.max()), 4), width)]
        offset = pass_of_row * width + start[pass_of_row]
        pair_token = offset[union.pair_item] + union.pair_position
        own = Ragged(pair_token, np.bincount(union.pair_item, minlength=len(pass_of_row)))
        positions = Ragged(union.pair_first, own.lengths)
        made = {
            "input_ids": ids,
            "attention_mask": (columns < ends).astype(np.int64),
            "segment_ids": ((columns >= starts) & (columns < ends)).astype(np.int64),
            "context_mask": in_context < starts,
            "word_mask": (in_context > 0) & (in_context < starts - 1),
            "item_pass": _padded(pass_of_row, steps.items, 0),
            "item_of_output": _padded(passes.row_of_item, steps.items, 0),
        }
        places = None
        if self.union_positions == "item":
            places = first_places(pair_token, union.pair_first, ids.size)
            made["position_ids"] = np.where(
                columns < starts, columns, np.where(columns < ends, places.reshape(shape) + 1, 0)
            )
        if self.union_attention == "item":
            made["attention_mask"] = self._neighbours(shape, starts, own)
        if self.item_side_layers:
            token = offset[passes.rows.row_of] + union.occurrence
            entries, positions = self._entries(token, passes.rows, places)
            groups, own = _groups(passes.rows, pass_of_row, count, entries, steps.groups)
            made |= entries | groups
            own = Ragged(own.values + shape[0] * in_context.shape[1], own.lengths)
        rows = len(made["item_pass"])
        made["item_mask"] = _table(np.ones_like(own.values), own.lengths, rows).astype(bool)
        made["item_rows"] = _table(own.values, own.lengths, rows)
        made["item_positions"] = _table(positions.values, own.lengths, rows)
        return made

    def _neighbours(self, shape: tuple[int, int], starts: Ints, own: Ragged) -> np.ndarray:
        """What is added to the attention logits of joint passes, float32 [P, S, S]: row sees column.

        [CLS], the query and [SEP] see each other and nothing else, so that they do not depend on the items. A union
        token sees them, the query's words with `query_bias` added, and the tokens that it shares an item with.

        Args:
            shape: P, S.
            starts: int64 [P, 1], where the unions begin.
            own: the flat places (of P * S) of the distinct tokens of each item.
        """
        columns = np.arange(shape[1])[None, :]
        of_query = columns < starts
        words = of_query & (columns > 0) & (columns < starts - 1)
        by_query = np.where(of_query, 0.0, HIDDEN).astype(np.float32)
        by_union = np.where(words, np.float32(self.query_bias), by_query)
        table = np.where(of_query[:, :, None], by_query[:, None, :], by_union[:, None, :])
        # of each token of an item, its partners: all tokens of the item
        partners = own.take(own.row_of)
        table.reshape(-1)[np.repeat(own.values, partners.lengths) * shape[1] + partners.values % shape[1]] = (
            0.0
        )
        return table

    def _entries(
        self, token: Ints, rows: Ragged, places: Ints | None
    ) -> tuple[dict[str, np.ndarray], Ragged]:
        """The states that enter the item-side layers: one for each token of a union, or, with places of the items'
        own, for each place that the token has; `group_token` says for each token of `rows` which one it is."""
        positions = Ragged(rows.position_of, rows.lengths)
        span = int(positions.values.max()) + 1 if self.own_places else 1
        keys = token * span + (positions.values if self.own_places else 0)
        found, index = np.unique(keys, return_inverse=True)
        made = {"entry_token": found // span, "group_token": index}
        if self.own_places:
            assert places is not None
            made |= {"entry_place": found % span + 1, "entry_shared": places[made["entry_token"]] + 1}
        return made, positions


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


def _groups(
    rows: Ragged, pass_of_row: Ints, passes: int, entries: dict[str, np.ndarray], step: int
) -> tuple[dict[str, np.ndarray], Ragged]:
    """Items of one pass put into rows of W tokens, and where in the flattened [G, W] the tokens of each item are.

    Longest first, each into the fullest group that has room.
    """
    width = _up(max(_GROUP, int(rows.lengths.max())), 8)
    lengths, of_pass = rows.lengths.tolist(), pass_of_row.tolist()
    begin = np.empty(len(lengths), dtype=np.int64)
    group_pass: list[int] = []
    room: list[list[list[int]]] = [[[] for _ in range(width + 1)] for _ in range(passes)]
    for row in np.argsort(-rows.lengths, kind="stable").tolist():
        length, own = lengths[row], room[of_pass[row]]
        free = next((n for n in range(length, width) if own[n]), width)
        if free < width:
            group = own[free].pop()
        else:
            group = len(group_pass)
            group_pass.append(of_pass[row])
        begin[row] = group * width + width - free
        own[free - length].append(group)
    places = Ragged(np.repeat(begin, rows.lengths) + rows.position_of, rows.lengths)
    groups = _up(len(group_pass), step)
    token, item = np.zeros(groups * width, dtype=np.int64), np.full(groups * width, -1)
    token[places.values], item[places.values] = entries["group_token"], rows.row_of
    made = {"group_token": token.reshape(groups, width), "group_item": item.reshape(groups, width)}
    return made | {"group_pass": _padded(np.array(group_pass), step, 0)}, places


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def _padded(values: Ints, step: int, fill: int) -> Ints:
    """int64 [n rounded up to a multiple of `step`]."""
    return np.append(values, np.full(-len(values) % step, fill))


def _table(values: Ints, lengths: Sequence[int] | Ints, rows: int) -> Ints:
    """int64 [rows, longest rounded up to a multiple of 4]: rows of `lengths` values, filled up with 0."""
    ragged = Ragged(values, np.asarray(lengths))
    out = np.zeros((rows, _up(int(ragged.lengths.max()), 4)), dtype=np.int64)
    out[ragged.row_of, ragged.position_of] = values
    return out
