"""How much the items of a list share their tokens, and what a joint pass saves with it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from crossjem_pl.data.database import Database, Summary
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.encoders import load_config, resolve
from crossjem_pl.text import ShortTextTokenizer, distinct_rows, plan_passes, token_union
from crossjem_pl.text.ragged import Ints

__all__ = ["EncoderShape", "OverlapReport", "OverlapRow", "encoder_shape", "measure_overlap"]

_GATED = {"modernbert", "eurobert"}  # encoders whose feed-forward part has a third matrix, the gate
_TABLES = {
    "queries": "tokens INT, cut INT",
    "measured": "max_item_tokens INT, n INT, items INT, cut INT, total INT, distinct_tokens INT, passes INT, "
    "pairs DOUBLE, joint DOUBLE",
}
_BY_LIST = "[0.05, 0.5, 0.95]"
_ROW = (
    "max_item_tokens, n, count(*), avg(items), sum(cut)::BIGINT, avg(total), avg(distinct_tokens), "
    f"quantile_disc(distinct_tokens, {_BY_LIST}), sum(total) / sum(distinct_tokens), "
    f"quantile_disc(total / distinct_tokens, {_BY_LIST}), avg(passes), count(*) FILTER (passes > 1), "
    f"sum(pairs) / sum(joint), quantile_disc(pairs / joint, {_BY_LIST})"
)


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """What the cost of an encoder depends on: width d, feed-forward width f, layers, and a gate (a third matrix)."""

    width: int
    feed_forward: int
    layers: int
    gated: bool = False

    def flops(self, lengths: Ints) -> float:
        """Operations of all layers for sequences of these lengths, int64 [sequences], none padded.

        Per layer and sequence of T tokens (8 d^2 + 4 d f) T + 4 d T^2, a multiplication and its addition counted
        as two; 6 d f with a gate. Embeddings, normalisation, softmax and the scoring head are left out.
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
    config = load_config(resolve(name))
    width, layers = getattr(config, "hidden_size", None), getattr(config, "num_hidden_layers", None)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "hidden_dim", None)
    if not (width and layers and inner):
        sizes = "hidden_size, num_hidden_layers and intermediate_size"
        raise ValueError(f"{name!r}: the configuration ({config.model_type}) does not tell {sizes}")
    return EncoderShape(int(width), int(inner), int(layers), config.model_type in _GATED)


class OverlapRow(NamedTuple):
    """One item limit L (`max_item_tokens`) and one number of items N (`items`; None: all items of every list).

    Means over the `lists` lists that have so many items: `mean_items`; m (`total_tokens`, summed item lengths); N_u
    (`union_tokens`, distinct item tokens); `passes`. Sums: `cut_items` lost tokens to the limit, `split_lists`
    need more than one pass. `ratio` is m / N_u of the means, `speedup` the operations of monoBERT on all lists over
    those of CROSS-JEM (`EncoderShape.flops`). `_by_list` holds the 5th, 50th and 95th percentile over lists.
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


@dataclass(frozen=True)
class OverlapReport:
    """What `measure_overlap` counted.

    Args:
        lists: lists that were read.
        shape: sizes of the encoder.
        query_tokens: lengths of the queries, cut to the limit.
        cut_queries: queries that lost tokens to the limit.
        rows: by item limit, then N ascending, then all items.
    """

    lists: int
    shape: EncoderShape
    query_tokens: Summary
    cut_queries: int
    rows: tuple[OverlapRow, ...]

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
        speedup = self.rows[-1].speedup
        words = ("costs more than pair by pair", "hardly pays", "pays", "pays well")
        pays = words[sum(speedup >= bound for bound in (1, 2, 4))]
        return f"The joint pass {pays}: predicted speed-up over monoBERT {speedup:.1f}."

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {**asdict(self), "rows": [row._asdict() for row in self.rows], "verdict": self.verdict}


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
    if not limits or min(*limits, *sizes, max_query_tokens, max_items_per_pass) < 1:
        raise ValueError("max_item_tokens, items, max_query_tokens and max_items_per_pass must be at least 1")
    if max_union_tokens < limits[-1]:
        raise ValueError(
            f"max_union_tokens={max_union_tokens} cannot hold one item of max_item_tokens={limits[-1]}"
        )
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
                for n in (*(size for size in sizes if size <= len(ranking_list)), None):
                    some = tokens if n is None else tokens.slice(0, n)
                    distinct = some.take(distinct_rows(some)[0])  # items with equal tokens share a place
                    plan = plan_passes(distinct, max_items_per_pass, max_union_tokens)
                    unions = token_union(distinct, plan, int(plan.max()) + 1).tokens.lengths
                    counts = (len(some.lengths), cut[:n].sum(), len(some.values), len(np.unique(some.values)))
                    costs = (
                        shape.flops(some.lengths + (length + 3)),  # [CLS] query [SEP] item [SEP]
                        shape.flops(unions + (length + 2)),  # [CLS] query [SEP] union
                    )
                    database.add("measured", limit, n, *map(int, counts), len(unions), *costs)
        query_tokens = database.summary("tokens", "queries")
        if query_tokens is None:
            raise ValueError("no lists to count")
        cut_queries = database.value("SELECT sum(cut)::BIGINT FROM queries")
        rows = database.rows(
            f"SELECT {_ROW} FROM measured GROUP BY max_item_tokens, n ORDER BY ALL NULLS LAST"
        )
        found = tuple(OverlapRow(*row) for row in rows)
        return OverlapReport(query_tokens.count, shape, query_tokens, cut_queries, found)
