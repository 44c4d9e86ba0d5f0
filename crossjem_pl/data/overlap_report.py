"""Token overlap by item limit and number of items, and what the joint pass saves with it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crossjem_pl.data.distributions import IntegerCounts, Summary
from crossjem_pl.data.overlap import PAPER, prefix_unions
from crossjem_pl.data.pass_cost import EncoderShape, joint_lengths, pair_lengths, paper_cost
from crossjem_pl.lists import RankingList
from crossjem_pl.text import Ragged, ShortTextTokenizer, plan_passes, token_union
from crossjem_pl.text.ragged import Ints

__all__ = ["HARDLY_PAYS", "PAYS_WELL", "GrowthPoint", "OverlapReport", "OverlapRow", "measure_overlap"]

HARDLY_PAYS = 2.0
"""Below this predicted speed-up the joint pass hardly pays."""
PAYS_WELL = 4.0
"""From this predicted speed-up on it pays well."""

_CURVE = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1400)


@dataclass(frozen=True)
class OverlapRow:
    """One item limit and one number of items.

    Args:
        max_item_tokens: L, to which each item was cut.
        items: N, the first N items of every list that has as many; None for all items of every list.
        lists: how many lists that are.
        mean_items: mean number of items.
        cut_items: items that lost tokens to the limit.
        total_tokens: m, the mean over lists of the summed item lengths.
        union: N_u is its mean; distinct item tokens of a list.
        list_ratio: m / N_u list by list, to two decimals.
        passes: mean number of passes.
        split_lists: lists that need more than one pass.
        speedup: operations of monoBERT on all lists over those of CROSS-JEM (`EncoderShape.flops`).
        list_speedup: the same list by list, to two decimals.
        paper_speedup: the same by the paper's estimate (`paper_cost`).
    """

    max_item_tokens: int
    items: int | None
    lists: int
    mean_items: float
    cut_items: int
    total_tokens: float
    union: Summary
    list_ratio: Summary
    passes: float
    split_lists: int
    speedup: float
    list_speedup: Summary
    paper_speedup: float

    @property
    def ratio(self) -> float:
        """m / N_u, of the means."""
        return self.total_tokens / self.union.mean


@dataclass(frozen=True)
class GrowthPoint:
    """Mean m and N_u of the first `items` items over the `lists` lists that have as many."""

    items: int
    lists: int
    total_tokens: float
    union_tokens: float


@dataclass(frozen=True)
class OverlapReport:
    """What `measure_overlap` found.

    Args:
        lists: lists that were read.
        shape: sizes of the encoder.
        max_query_tokens, max_items_per_pass, max_union_tokens: the limits of a pass.
        query_tokens: lengths of the queries, cut to the limit.
        cut_queries: queries that lost tokens to the limit.
        rows: by item limit, then N ascending, then all items.
        curve: growth at the largest item limit, as far as half of the lists reach.
        ratios: (m / N_u, lists) over all items at the largest limit, ascending, to two decimals.
    """

    lists: int
    shape: EncoderShape
    max_query_tokens: int
    max_items_per_pass: int
    max_union_tokens: int
    query_tokens: Summary
    cut_queries: int
    rows: tuple[OverlapRow, ...]
    curve: tuple[GrowthPoint, ...]
    ratios: tuple[tuple[float, int], ...]

    @property
    def limits(self) -> tuple[OverlapRow, ...]:
        """All items of every list, by item limit: the rows of Table 8b."""
        return tuple(row for row in self.rows if row.items is None)

    @property
    def growth(self) -> tuple[OverlapRow, ...]:
        """The rows of the largest item limit, by number of items."""
        return tuple(row for row in self.rows if row.max_item_tokens == self.rows[-1].max_item_tokens)

    @property
    def verdict(self) -> str:
        """Whether CROSS-JEM suits these lists, by the predicted speed-up on all items at the largest limit."""
        whole = self.rows[-1]
        found = f"predicted speed-up over monoBERT {whole.speedup:.1f}"
        if whole.speedup < 1:
            return f"The joint pass costs more than pair by pair: {found}, below 1."
        if whole.speedup < HARDLY_PAYS:
            return (
                f"The joint pass hardly pays: {found}, below {HARDLY_PAYS:g}. Choose by accuracy; monoBERT sees "
                "each item in its word order."
            )
        if whole.speedup < PAYS_WELL:
            return f"The joint pass pays: {found}, between {HARDLY_PAYS:g} and {PAYS_WELL:g}."
        return f"The joint pass pays well: {found}, at least {PAYS_WELL:g}."

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values, with the paper's figures beside."""
        found = asdict(self)
        for row, values in zip(self.rows, found["rows"], strict=True):
            values["ratio"] = row.ratio
        found["verdict"] = self.verdict
        found["rules"] = {"hardly_pays_below": HARDLY_PAYS, "pays_well_from": PAYS_WELL}
        found["paper"] = [
            {"max_item_tokens": limit, "total_tokens": m, "union_tokens": union}
            for limit, (m, union) in PAPER.items()
        ]
        return found


def measure_overlap(
    lists: Iterable[RankingList],
    tokenizer: ShortTextTokenizer,
    shape: EncoderShape,
    *,
    max_item_tokens: Sequence[int] = (12, 16, 32),
    items: Sequence[int] = (10, 30, 100),
    max_query_tokens: int = 64,
    max_items_per_pass: int = 100,
    max_union_tokens: int = 262,
) -> OverlapReport:
    """Counts the token overlap of a stream of lists, in memory that does not grow with it.

    Args:
        lists: the lists; read once.
        tokenizer: of the encoder.
        shape: sizes of the encoder, see `encoder_shape`.
        max_item_tokens: item limits L to compare.
        items: numbers of items N; the first N items of each list, so smaller N are nested in larger ones.
        max_query_tokens: limit of a query.
        max_items_per_pass: most items of one pass.
        max_union_tokens: L_u, most distinct item tokens of one pass.

    Raises:
        ValueError: no lists, a limit below 1, a union limit below an item limit, or a text without tokens
            (names the list).
    """
    limits, sizes = sorted(set(max_item_tokens)), sorted(set(items))
    for name, given in (
        ("max_item_tokens", limits),
        ("items", sizes),
        ("max_query_tokens", [max_query_tokens]),
        ("max_items_per_pass", [max_items_per_pass]),
    ):
        if not given or min(given) < 1:
            raise ValueError(f"{name} must be at least 1, got {', '.join(map(str, given)) or 'none'}")
    if max_union_tokens < limits[-1]:
        raise ValueError(
            f"max_union_tokens={max_union_tokens} cannot hold one item of max_item_tokens={limits[-1]}"
        )
    limit_of_pass = (max_items_per_pass, max_union_tokens)
    tallies = {(limit, n): _Tally(limit, n) for limit in limits for n in (*sizes, None)}
    curve = {n: np.zeros(3, dtype=np.int64) for n in sorted({*_CURVE, *sizes})}
    queries, cut_queries, count = IntegerCounts(), 0, 0
    for one in lists:
        try:
            query = tokenizer.encode([one.query], max_query_tokens)
            whole = tokenizer.encode(one.items, sys.maxsize).tokens
        except ValueError as error:
            raise ValueError(f"list {one.query_id!r}: {error}") from None
        length = len(query.tokens.values)
        queries.add([length])
        cut_queries += query.truncated
        count += 1
        for limit in limits:
            tokens = Ragged(whole.values[whole.position_of < limit], np.minimum(whole.lengths, limit))
            unions, totals, cut = prefix_unions(tokens), np.cumsum(tokens.lengths), whole.lengths > limit
            for n in (*sizes, None):
                if n is None or n <= len(one):
                    own = tokens if n is None else tokens.slice(0, n)
                    tallies[limit, n].add(shape, length, own, unions, int(cut[:n].sum()), limit_of_pass)
        for n, sums in curve.items():
            if n <= len(one):
                sums += (1, totals[n - 1], unions[n - 1])
    query_tokens = queries.summary()
    if query_tokens is None:
        raise ValueError("no lists to count")
    values, counts = tallies[limits[-1], None].ratios.values()
    return OverlapReport(
        lists=count,
        shape=shape,
        max_query_tokens=max_query_tokens,
        max_items_per_pass=max_items_per_pass,
        max_union_tokens=max_union_tokens,
        query_tokens=query_tokens,
        cut_queries=cut_queries,
        rows=tuple(row for tally in tallies.values() if (row := tally.row()) is not None),
        curve=tuple(
            GrowthPoint(n, int(found), total / found, union / found)
            for n, (found, total, union) in curve.items()
            if 2 * found >= count
        ),
        ratios=tuple(
            (round(value, 2), times) for value, times in zip(values.tolist(), counts.tolist(), strict=True)
        ),
    )


class _Tally:
    """The sums of one row."""

    def __init__(self, max_item_tokens: int, items: int | None) -> None:
        self.ratios = IntegerCounts(unit=0.01)
        self._limit, self._items = max_item_tokens, items
        self._unions, self._speedups = IntegerCounts(), IntegerCounts(unit=0.01)
        self._lists = self._all_items = self._cut = self._total = self._passes = self._split = 0
        self._pairs = self._joint = self._paper_pairs = self._paper_joint = 0.0

    def add(
        self,
        shape: EncoderShape,
        query: int,
        tokens: Ragged,
        unions: Ints,
        cut: int,
        limit_of_pass: tuple[int, int],
    ) -> None:
        n = len(tokens.lengths)
        total, union = len(tokens.values), int(unions[n - 1])
        of_passes = _pass_unions(tokens, union, *limit_of_pass)
        pairs = shape.flops(pair_lengths(query, tokens.lengths))
        joint = shape.flops(joint_lengths(query, of_passes))
        self._lists += 1
        self._all_items += n
        self._cut += cut
        self._total += total
        self._passes += len(of_passes)
        self._split += len(of_passes) > 1
        self._pairs += pairs
        self._joint += joint
        self._paper_pairs += paper_cost(query, tokens.lengths)
        self._paper_joint += paper_cost(query, of_passes)
        self._unions.add([union])
        self.ratios.add_number(total / union)
        self._speedups.add_number(pairs / joint)

    def row(self) -> OverlapRow | None:
        """None where no list has as many items."""
        union, ratio, speedup = self._unions.summary(), self.ratios.summary(), self._speedups.summary()
        if union is None or ratio is None or speedup is None:
            return None
        return OverlapRow(
            max_item_tokens=self._limit,
            items=self._items,
            lists=self._lists,
            mean_items=self._all_items / self._lists,
            cut_items=self._cut,
            total_tokens=self._total / self._lists,
            union=union,
            list_ratio=ratio,
            passes=self._passes / self._lists,
            split_lists=self._split,
            speedup=self._pairs / self._joint,
            list_speedup=speedup,
            paper_speedup=self._paper_pairs / self._paper_joint,
        )


def _pass_unions(tokens: Ragged, union: int, max_items: int, max_union: int) -> Ints:
    """int64 [passes]: the union of each pass that the planner makes."""
    if union <= max_union and len(tokens.lengths) <= max_items:
        return np.array([union])
    plan = plan_passes(tokens, max_items, max_union)
    return token_union(tokens, plan, int(plan.max()) + 1).tokens.lengths
