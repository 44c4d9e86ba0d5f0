"""Joining teacher scores to lists that are too many for the memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from crossjem_pl.data.formats.rows import Row, read_rows
from crossjem_pl.data.teacher import SCORES_SCHEMA
from crossjem_pl.files import shard_files
from crossjem_pl.lists import RankingList

__all__ = ["merge_scores"]


def merge_scores(lists: Iterable[RankingList], path: Path) -> Iterator[RankingList]:
    """The lists with the teacher's scores; holds one list and its scores at a time.

    The rows of one query stand together, and the queries stand in the order of the lists, as `crossjem teach` writes
    them. Every item has a score and every score an item.

    Args:
        lists: the lists.
        path: Parquet file of `query_id, item_id, score`, or a folder of such files in the sorted order of their
            names (one for each shard of the lists, for example).

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: names file, row and field, for a query out of order, an item that has no score or two, a score
            without an item or that is not a finite number, or queries left over.
    """
    shard_files(path)
    return _merged(lists, path)


def _merged(lists: Iterable[RankingList], path: Path) -> Iterator[RankingList]:
    queries = groupby(read_rows(path, SCORES_SCHEMA.names), key=lambda row: row.identifier("query_id"))
    for one in lists:
        query_id, rows = next(queries, (None, iter(())))
        if query_id is None:
            raise ValueError(f"{path}: the scores end before list {one.query_id!r}")
        yield replace(one, scores=_scores(path, one, query_id, rows))
    query_id, rows = next(queries, (None, iter(())))
    if query_id is not None:
        raise next(rows).error("query_id", f"the lists end before query {query_id!r}")


def _scores(path: Path, one: RankingList, query_id: str, rows: Iterator[Row]) -> tuple[float, ...]:
    wanted = set(one.item_ids)
    found: dict[str, float] = {}
    for row in rows:
        if query_id != one.query_id:
            raise row.error(
                "query_id",
                f"expected the scores of list {one.query_id!r}, got {query_id!r}: the scores have to stand in the "
                "order of the lists, as crossjem teach writes them",
            )
        item = row.identifier("item_id")
        if item not in wanted:
            raise row.error("item_id", f"list {query_id!r} has no item {item!r}")
        if item in found:
            raise row.error("item_id", f"query {query_id!r}, item {item!r} is scored twice")
        score = row.values.get("score")
        if not isinstance(score, (int, float)) or not math.isfinite(score):
            raise row.error(
                "score", f"query {query_id!r}, item {item!r}: expected a finite number, got {score!r}"
            )
        found[item] = float(score)
    missing = next((item for item in one.item_ids if item not in found), None)
    if missing is not None:
        raise ValueError(f"{path}: list {one.query_id!r}, item {missing!r} has no teacher score")
    return tuple(found[item] for item in one.item_ids)
