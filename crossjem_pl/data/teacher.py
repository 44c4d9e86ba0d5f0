"""Teacher scores in Parquet: written with their provenance, and joined to ranking lists."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossjem_pl.data.rows import Row, open_parquet, read_rows
from crossjem_pl.files import replacing
from crossjem_pl.lists import RankingList, shown

__all__ = ["join_scores", "read_provenance", "read_scores", "write_scores"]

COLUMNS = ("query_id", "item_id", "score")
"""One row for each (query, item); the score is the teacher's probability that the item is relevant, in [0, 1]."""

log = logging.getLogger(__name__)

_PROVENANCE = b"crossjem_pl.provenance"


def write_scores(rows: Iterable[tuple[str, str, float]], path: Path, provenance: dict[str, Any]) -> None:
    """Writes scores and where they come from; the file appears whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    types = (pa.string(), pa.string(), pa.float64())
    table = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=list(COLUMNS))
    with replacing(path) as stream:
        table = table.replace_schema_metadata({_PROVENANCE: json.dumps(provenance).encode()})
        pq.write_table(table, stream, write_page_checksum=True)


def read_provenance(path: Path) -> dict[str, Any]:
    """The provenance that `write_scores` stored, empty for files from elsewhere.

    Raises:
        ValueError: names the file, if it is not Parquet or its provenance is damaged.
    """
    with open_parquet(path) as file:
        stored = (file.schema_arrow.metadata or {}).get(_PROVENANCE, b"{}")
    try:
        return dict(json.loads(stored))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: damaged provenance in the metadata ({error})") from None


def read_scores(path: Path) -> dict[tuple[str, str], float]:
    """Scores by (query_id, item_id); NaN where the file has none.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if the file is not Parquet, a column is missing, an id is no text or integer, a score is no number,
            or a pair occurs twice; names file and row.
    """
    _existing(path)
    scores: dict[str, dict[str, float]] = {}
    for row in read_rows(path, COLUMNS):
        _take(row, scores)
    return {(query, item): score for query, of_query in scores.items() for item, score in of_query.items()}


def join_scores(
    lists: Iterable[RankingList], path: Path, *, allow_missing: bool = False, exact: bool = False
) -> Iterator[RankingList]:
    """The lists with the teacher's scores, joined by (query_id, item_id) as they are read.

    Memory holds the scores of one list where the rows stand in the order of the lists, as `crossjem teach` writes them;
    scores that come earlier than their list wait for it.

    Args:
        lists: ranking lists.
        path: Parquet file of `query_id, item_id, score`, or a folder of such files in the sorted order of their names.
        allow_missing: leave out items whose score is missing or not finite, and lists left with none; how many is
            logged.
        exact: every score must belong to an item of the lists.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: names file and list or row, for an item without a finite score (unless allowed), one that is scored
            twice, a score without an item (if `exact`), or if no item at all has a score.
    """
    _existing(path)
    rows = read_rows(path, COLUMNS)
    waiting: dict[str, dict[str, float]] = {}
    left_out = lists_left_out = joined = 0
    first = ""
    for one in lists:
        wanted = set(one.item_ids) - waiting.get(one.query_id, {}).keys()
        while wanted and (row := next(rows, None)) is not None:
            query_id, item_id = _take(row, waiting)
            if query_id == one.query_id:
                wanted.discard(item_id)
        scores = waiting.pop(one.query_id, {})
        kept = [i for i, item in enumerate(one.item_ids) if math.isfinite(scores.get(item, math.nan))]
        if len(kept) < len(one):
            item = next(one.item_ids[i] for i in range(len(one)) if i not in kept)
            first = first or f"the first is query {shown(one.query_id)}, item {shown(item)}"
            left_out, lists_left_out = left_out + len(one) - len(kept), lists_left_out + (not kept)
            if not allow_missing:
                raise ValueError(
                    f"{path}: list {shown(one.query_id)}, item {shown(item)} has no finite teacher score; score it, or "
                    "set data.allow_missing_scores to leave such items out"
                )
        if surplus := scores.keys() - {*one.item_ids} if exact else set():
            raise ValueError(
                f"{path}: list {shown(one.query_id)} has no item {shown(min(surplus))}, which is scored"
            )
        if kept:
            joined += 1
            yield replace(one.select(kept), scores=tuple(scores[one.item_ids[i]] for i in kept))
    if exact and (row := next(rows, None)) is not None:
        _take(row, waiting)
    if exact and waiting:
        query = shown(min(waiting))
        raise ValueError(
            f"{path}: there are scores of query {query}, but no such list or a list that has its scores"
        )
    if left_out and not joined:
        raise ValueError(f"{path}: not one item has a teacher score, {first}; are these the same ids?")
    if left_out:
        log.warning(
            "%s: left out %d items without a finite teacher score, %s, and so %d lists",
            *(path, left_out, first, lists_left_out),
        )


def _take(row: Row, scores: dict[str, dict[str, float]]) -> tuple[str, str]:
    """Puts the score of a row (NaN where it has none) into the table; returns its query and item."""
    query_id, item_id = row.identifier("query_id"), row.identifier("item_id")
    of_query = scores.setdefault(query_id, {})
    if item_id in of_query:
        raise row.error("item_id", f"query {shown(query_id)}, item {shown(item_id)} is scored twice")
    value = row.values.get("score", "missing")
    absent = value is None or (isinstance(value, float) and not math.isfinite(value))
    of_query[item_id] = math.nan if absent else row.scalar("score")
    return query_id, item_id


def _existing(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(
            f"no teacher scores at {path}; write them with: crossjem teach MODEL LISTS --out {path}"
        )
