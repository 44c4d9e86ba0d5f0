"""How much the items of a list share their tokens, and what a joint pass saves with it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from transformers import AutoConfig, PretrainedConfig

from crossjem_pl.data.database import Database, Summary
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.encoders import resolve
from crossjem_pl.text import Ragged, ShortTextTokenizer, distinct_rows, plan_passes, token_union
from crossjem_pl.text.ragged import Ints

__all__ = [
    "HARDLY_PAYS",
    "PAPER",
    "PAYS_WELL",
    "EncoderShape",
    "OverlapReport",
    "OverlapRow",
    "encoder_shape",
    "measure_overlap",
    "paper_cost",
    "prefix_unions",
]

PAPER: dict[int, tuple[float, float]] = {12: (498.38, 93.70), 16: (499.34, 94.02), 32: (501.52, 94.60)}
"""(m, N_u) by item limit L: Table 8b of the CROSS-JEM paper, a log of sponsored search."""
HARDLY_PAYS = 2.0
"""Below this predicted speed-up the joint pass hardly pays."""
PAYS_WELL = 4.0
"""From this predicted speed-up on it pays well."""

_CURVE = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1400)
_GATED = {"modernbert", "eurobert"}  # encoders whose feed-forward part has a third matrix, the gate
_TABLES = {
    "queries": "tokens INT, cut INT",
    "measured": "max_item_tokens INT, n INT, items INT, cut INT, total INT, distinct_tokens INT, passes INT, "
    "pairs DOUBLE, joint DOUBLE, paper_pairs DOUBLE, paper_joint DOUBLE",
}
_BY_LIST = "[0.05, 0.5, 0.95]"
_ROW = (
    "max_item_tokens, n, count(*), avg(items), sum(cut)::BIGINT, avg(total), avg(distinct_tokens), "
    f"quantile_disc(distinct_tokens, {_BY_LIST}), sum(total) / sum(distinct_tokens), "
    f"quantile_disc(total / distinct_tokens, {_BY_LIST}), avg(passes), count(*) FILTER (passes > 1), "
    f"sum(pairs) / sum(joint), quantile_disc(pairs / joint, {_BY_LIST}), sum(paper_pairs) / sum(paper_joint)"
)


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """What the cost of an encoder depends on: width d, feed-forward width f, layers, and a gate in the feed-forward
    part (a third matrix)."""

    width: int
    feed_forward: int
    layers: int
    gated: bool = False

    def flops(self, lengths: Ints) -> float:
        """Operations of all layers for sequences of these lengths, int64 [sequences], none padded.

        Per layer and sequence of T tokens: (8 d^2 + 4 d f) T + 4 d T^2, a multiplication and its addition
        counted as two. 8 d^2: the query, key, value and output matrices; 4 d f: the feed-forward part (6 d f
        with a gate); 4 d T^2: attention weights and their sums. With f = 4 d it is 24 d^2 T + 4 d T^2.
        Embeddings, normalisation, softmax and the scoring head are left out; they are small beside this.
        """
        per_token = 8 * self.width**2 + (6 if self.gated else 4) * self.width * self.feed_forward
        tokens = np.asarray(lengths, dtype=np.float64)
        return self.layers * float(per_token * tokens.sum() + 4 * self.width * (tokens**2).sum())


def encoder_shape(name: str) -> EncoderShape:
    """The shape in the configuration of a hub id, folder, or `packaged:all-MiniLM-L6-v2`; no weights are read.

    Raises:
        OSError: there is no such model.
        ValueError: the configuration is not that of a transformer encoder.
    """
    config: PretrainedConfig = AutoConfig.from_pretrained(resolve(name))
    width, layers = getattr(config, "hidden_size", None), getattr(config, "num_hidden_layers", None)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "hidden_dim", None)
    if not (width and layers and inner):
        raise ValueError(
            f"{name!r}: the configuration ({config.model_type}) does not tell hidden_size, num_hidden_layers and "
            "intermediate_size, so the cost of a pass is not known"
        )
    return EncoderShape(int(width), int(inner), int(layers), config.model_type in _GATED)


def paper_cost(query: int, others: Ints) -> float:
    """The sum over sequences of (L_q + L)^2: a layer's cost in section 5.2 of the paper.

    With the item lengths it is the paper's cost of the standard cross-encoder, (L_q + L_k)^2 N, with the
    sizes of the unions of the passes that of the joint one, (L_q + L_k N / C)^2. The square is the attention
    alone; a layer's linear parts, which take most of a short sequence's time, grow with the length and not
    with its square (`EncoderShape.flops` has both).
    """
    return float(((np.asarray(others, dtype=np.float64) + query) ** 2).sum())


def prefix_unions(items: Ragged) -> Ints:
    """int64 [items]: how many distinct tokens the first 1, 2, ... items have together."""
    first_seen = np.unique(items.values, return_index=True)[1]
    return np.cumsum(np.bincount(items.row_of[first_seen], minlength=len(items.lengths)))


class OverlapRow(NamedTuple):
    """One item limit and one number of items. `by_list` is (p5, p50, p95) over lists, each the smallest value that
    reaches its share of the lists.

    Args:
        max_item_tokens: L, to which each item was cut.
        items: N, the first N items of every list that has as many; None for all items of every list.
        lists: how many lists that are.
        mean_items: mean number of items.
        cut_items: items that lost tokens to the limit.
        total_tokens: m, the mean over lists of the summed item lengths.
        union_tokens: N_u, the mean number of distinct item tokens of a list.
        union_by_list: the same list by list.
        ratio: m / N_u, of the means.
        ratio_by_list: the same list by list.
        passes: mean number of passes.
        split_lists: lists that need more than one pass.
        speedup: operations of monoBERT on all lists over those of CROSS-JEM (`EncoderShape.flops`).
        speedup_by_list: the same list by list.
        paper_speedup: the same by the paper's estimate (`paper_cost`).
    """

    max_item_tokens: int
    items: int | None
    lists: int
    mean_items: float
    cut_items: int
    total_tokens: float
    union_tokens: float
    union_by_list: list[float]
    ratio: float
    ratio_by_list: list[float]
    passes: float
    split_lists: int
    speedup: float
    speedup_by_list: list[float]
    paper_speedup: float


class GrowthPoint(NamedTuple):
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
        found["rows"] = [row._asdict() for row in self.rows]
        found["curve"] = [point._asdict() for point in self.curve]
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
    """Counts the token overlap of a stream of lists; a list takes a few numbers for each limit, on the disk.

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
    curve = {n: np.zeros(3, dtype=np.int64) for n in sorted({*_CURVE, *sizes})}
    with Database(_TABLES) as database:
        for ranking_list in lists:
            try:
                query = tokenizer.encode([ranking_list.query], max_query_tokens)
                whole = tokenizer.encode(ranking_list.items, sys.maxsize).tokens
            except ValueError as error:
                raise ValueError(f"list {ranking_list.query_id!r}: {error}") from None
            length = len(query.tokens.values)
            database.add("queries", length, query.truncated)
            for limit in limits:
                tokens, cut = whole.cut(limit)[0], whole.lengths > limit
                unions, totals = prefix_unions(tokens), np.cumsum(tokens.lengths)
                for n in (*sizes, None):
                    if n is not None and n > len(ranking_list):
                        continue
                    some = tokens if n is None else tokens.slice(0, n)
                    last = len(some.lengths) - 1
                    of_passes = _pass_unions(some, unions[last], max_items_per_pass, max_union_tokens)
                    costs = (
                        shape.flops(some.lengths + (length + 3)),  # [CLS] query [SEP] item [SEP]
                        shape.flops(of_passes + (length + 2)),  # [CLS] query [SEP] union
                        paper_cost(length, some.lengths),
                        paper_cost(length, of_passes),
                    )
                    counts = (last + 1, cut[:n].sum(), totals[last], unions[last], len(of_passes))
                    database.add("measured", limit, n, *map(int, counts), *costs)
            for n, sums in curve.items():
                if n <= len(ranking_list):
                    sums += (1, totals[n - 1], unions[n - 1])
        count, cut_queries = database.row("SELECT count(*), sum(cut)::INT FROM queries")
        query_tokens = database.summary("tokens", "queries")
        if query_tokens is None:
            raise ValueError("no lists to count")
        rows = database.rows(
            f"SELECT {_ROW} FROM measured GROUP BY max_item_tokens, n ORDER BY ALL NULLS LAST"
        )
        ratios = database.rows(
            "SELECT round(total / distinct_tokens, 2) AS ratio, count(*) FROM measured "
            f"WHERE n IS NULL AND max_item_tokens = {limits[-1]} GROUP BY ratio ORDER BY ratio"
        )
        return OverlapReport(
            lists=count,
            shape=shape,
            max_query_tokens=max_query_tokens,
            max_items_per_pass=max_items_per_pass,
            max_union_tokens=max_union_tokens,
            query_tokens=query_tokens,
            cut_queries=cut_queries,
            rows=tuple(OverlapRow(*row) for row in rows),
            curve=tuple(
                GrowthPoint(n, int(found), total / found, union / found)
                for n, (found, total, union) in curve.items()
                if 2 * found >= count
            ),
            ratios=tuple(ratios),
        )


def _pass_unions(tokens: Ragged, union: int, max_items: int, max_union: int) -> Ints:
    """int64 [passes]: the union of each pass that the planner makes; items with equal tokens take one place."""
    tokens = tokens.take(distinct_rows(tokens)[0])
    if union <= max_union and len(tokens.lengths) <= max_items:
        return np.array([union])
    plan = plan_passes(tokens, max_items, max_union)
    return token_union(tokens, plan, int(plan.max()) + 1).tokens.lengths
