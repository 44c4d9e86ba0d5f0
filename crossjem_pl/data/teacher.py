"""Teacher scores in Parquet: written with their provenance, and joined to ranking lists."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from crossjem_pl.data.rows import Row, open_parquet, read_rows
from crossjem_pl.files import replacing
from crossjem_pl.lists import RankingList

__all__ = ["join_scores", "merge_scores", "read_provenance", "read_scores", "write_scores"]

COLUMNS = ("query_id", "item_id", "score")
"""One row for each (query, item); the score is the teacher's probability that the item is relevant, in [0, 1]."""

log = logging.getLogger(__name__)

_PROVENANCE = b"crossjem_pl.provenance"


def write_scores(rows: Iterable[tuple[str, str, float]], path: Path, provenance: dict[str, Any]) -> None:
    """Writes scores and where they come from; the file appears whole or not at all.

    Raises:
        ValueError: if there are no rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [list(column) for column in zip(*rows, strict=True)]
    if not columns:
        raise ValueError(f"no scores to write to {path}")
    types = (pa.string(), pa.string(), pa.float64())
    table = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=list(COLUMNS))
    with replacing(path) as stream:
        pq.write_table(table.replace_schema_metadata({_PROVENANCE: json.dumps(provenance).encode()}), stream)


def read_provenance(path: Path) -> dict[str, Any]:
    """The provenance that `write_scores` stored (empty for files from elsewhere)."""
    with open_parquet(path) as file:
        return dict(json.loads((file.schema_arrow.metadata or {}).get(_PROVENANCE, b"{}")))


def read_scores(path: Path) -> dict[tuple[str, str], float]:
    """Scores by (query_id, item_id); NaN where the file has none.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if the file is not Parquet, a column is missing, an id is no text or integer, a score is no number,
            or a pair occurs twice; names file and row.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"no teacher scores at {path}; write them with: crossjem teach MODEL LISTS --out {path}"
        )
    scores: dict[tuple[str, str], float] = {}
    for row in read_rows(path, COLUMNS):
        pair = row.identifier("query_id"), row.identifier("item_id")
        if pair in scores:
            raise row.error("item_id", f"query {pair[0]!r}, item {pair[1]!r} is scored twice")
        value = row.values.get("score", "missing")
        absent = value is None or (isinstance(value, float) and not math.isfinite(value))
        scores[pair] = math.nan if absent else row.scalar("score")
    return scores


def join_scores(lists: Sequence[RankingList], path: Path, allow_missing: bool = False) -> list[RankingList]:
    """The lists with the teacher's scores, joined by (query_id, item_id).

    Args:
        lists, path: ranking lists, and a Parquet file of `query_id, item_id, score`.
        allow_missing: leave out items whose score is missing or not finite, and lists left with none; how many is
            logged.

    Raises:
        ValueError: if scores are missing or not finite and that is not allowed; counts them and names the first. If no
            item at all has a score, allowed or not.
    """
    scores = read_scores(path)
    joined: list[RankingList] = []
    missing: list[tuple[str, str]] = []
    for ranking_list in lists:
        pairs = [(ranking_list.query_id, item_id) for item_id in ranking_list.item_ids]
        values = [scores.get(pair, math.nan) for pair in pairs]
        kept = [i for i, value in enumerate(values) if math.isfinite(value)]
        missing += [pair for pair, value in zip(pairs, values, strict=True) if not math.isfinite(value)]
        if kept:
            joined.append(replace(ranking_list.select(kept), scores=tuple(values[i] for i in kept)))
    first = "the first is query {!r}, item {!r}".format(*missing[0]) if missing else ""
    if missing and not allow_missing:
        raise ValueError(
            f"{path}: {len(missing)} items have no finite teacher score, {first}; "
            "score them, or set data.allow_missing_scores to leave them out"
        )
    if lists and not joined:
        raise ValueError(f"{path}: not one item has a teacher score, {first}; are these the same ids?")
    if missing:
        log.warning(
            "%s: left out %d items without a finite teacher score, %s, and so %d lists",
            *(path, len(missing), first, len(lists) - len(joined)),
        )
    return joined


def merge_scores(lists: Iterable[RankingList], path: Path) -> Iterator[RankingList]:
    """The lists with the teacher's scores; holds one list and its scores at a time.

    The rows of one query stand together, and the queries stand in the order of the lists, as `crossjem teach` writes
    them. Every item has a score and every score an item.

    Args:
        lists: the lists.
        path: Parquet file of `query_id, item_id, score`, or a folder of such files in the sorted order of their names
            (one for each shard of the lists, for example).

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: names file, row and field, for a query out of order, an item that has no score or two, a score
            without an item or that is not a finite number, or queries left over.
    """
    queries = groupby(read_rows(path, COLUMNS), key=lambda row: row.identifier("query_id"))
    for ranking_list in lists:
        query_id, rows = next(queries, (None, iter(())))
        if query_id is None:
            raise ValueError(f"{path}: the scores end before list {ranking_list.query_id!r}")
        yield replace(ranking_list, scores=_list_scores(path, ranking_list, query_id, rows))
    query_id, rows = next(queries, (None, iter(())))
    if query_id is not None:
        raise next(rows).error("query_id", f"the lists end before query {query_id!r}")


def _list_scores(
    path: Path, ranking_list: RankingList, query_id: str, rows: Iterator[Row]
) -> tuple[float, ...]:
    scores: dict[str, float] = {}
    for row in rows:
        if query_id != ranking_list.query_id:
            raise row.error(
                "query_id",
                f"expected the scores of list {ranking_list.query_id!r}, got {query_id!r}: the scores have to stand in "
                "the order of the lists, as crossjem teach writes them",
            )
        item = row.identifier("item_id")
        if item not in ranking_list.item_ids:
            raise row.error("item_id", f"list {query_id!r} has no item {item!r}")
        if item in scores:
            raise row.error("item_id", f"query {query_id!r}, item {item!r} is scored twice")
        scores[item] = row.scalar("score")
    for item in ranking_list.item_ids:
        if item not in scores:
            raise ValueError(f"{path}: list {ranking_list.query_id!r}, item {item!r} has no teacher score")
    return tuple(scores[item] for item in ranking_list.item_ids)
