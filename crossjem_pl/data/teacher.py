"""Teacher scores in Parquet and their join to ranking lists."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crossjem_pl.lists import RankingList

__all__ = ["SCORES_SCHEMA", "join_scores", "read_provenance", "read_scores", "write_scores"]

SCORES_SCHEMA = pa.schema([("query_id", pa.string()), ("item_id", pa.string()), ("score", pa.float64())])
"""One row per (query, item): the teacher's probability that the item is relevant, in [0, 1]."""

log = logging.getLogger(__name__)

_PROVENANCE = b"crossjem_pl.provenance"


def write_scores(rows: Iterable[tuple[str, str, float]], path: Path, provenance: dict[str, Any]) -> None:
    """Writes scores and where they come from; under a temporary name first, renamed when complete.

    Raises:
        ValueError: if there are no rows.
    """
    columns = list(zip(*rows, strict=True))
    if not columns:
        raise ValueError(f"no scores to write to {path}")
    query_ids, item_ids, scores = columns
    table = pa.table([list(query_ids), list(item_ids), list(scores)], schema=SCORES_SCHEMA)
    table = table.replace_schema_metadata({_PROVENANCE: json.dumps(provenance).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    pq.write_table(table, partial)
    partial.replace(path)


def read_provenance(path: Path) -> dict[str, Any]:
    """The provenance that `write_scores` stored (empty for files from elsewhere)."""
    metadata = pq.read_schema(path).metadata or {}
    return json.loads(metadata.get(_PROVENANCE, b"{}"))


def read_scores(path: Path) -> dict[tuple[str, str], float]:
    """Scores by (query_id, item_id).

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if the file is not Parquet, a column is missing or cannot be read as text ids and numbers,
            an id is missing, or a pair occurs twice; names file and row.
    """
    if not path.exists():
        raise FileNotFoundError(
            f"no teacher scores at {path}; write them with: crossjem teach MODEL LISTS --out {path}"
        )
    try:
        names = set(pq.read_schema(path).names)
        for column in SCORES_SCHEMA.names:
            if column not in names:
                raise ValueError(f"{path}: no column {column!r}; it has {sorted(names)}")
        # integer ids from elsewhere become text, as the readers of lists make them
        table = pq.read_table(path, columns=SCORES_SCHEMA.names).cast(SCORES_SCHEMA)
    except pa.ArrowException as error:
        raise ValueError(
            f"{path}: not a Parquet file of {', '.join(SCORES_SCHEMA.names)} ({error})"
        ) from None
    columns = [table.column(name).to_pylist() for name in SCORES_SCHEMA.names]
    scores: dict[tuple[str, str], float] = {}
    for row, (query_id, item_id, score) in enumerate(zip(*columns, strict=True), start=1):
        if query_id is None or item_id is None:
            raise ValueError(f"{path}, row {row}: the query_id or item_id is missing")
        if (query_id, item_id) in scores:
            raise ValueError(f"{path}, row {row}: query {query_id!r}, item {item_id!r} is scored twice")
        scores[query_id, item_id] = math.nan if score is None else score
    return scores


def join_scores(lists: Sequence[RankingList], path: Path, allow_missing: bool = False) -> list[RankingList]:
    """The lists with the teacher's scores, joined by (query_id, item_id).

    Args:
        lists: the lists.
        path: Parquet file of `query_id, item_id, score`.
        allow_missing: leave out items whose score is missing or not finite, and lists left with none; how
            many is logged.

    Raises:
        ValueError: if scores are missing or not finite and that is not allowed; counts them and names the
            first. If no item at all has a score, allowed or not.
    """
    scores = read_scores(path)
    joined: list[RankingList] = []
    missing = 0
    first = ""
    for one in lists:
        values = [scores.get((one.query_id, item_id), math.nan) for item_id in one.item_ids]
        kept = [i for i, value in enumerate(values) if math.isfinite(value)]
        if len(kept) < len(values):
            missing += len(values) - len(kept)
            bad = next(i for i, value in enumerate(values) if not math.isfinite(value))
            first = first or f"query {one.query_id!r}, item {one.item_ids[bad]!r}"
        if kept:
            joined.append(replace(one.select(kept), scores=tuple(values[i] for i in kept)))
    if missing and not allow_missing:
        raise ValueError(
            f"{path}: {missing} items have no finite teacher score, the first is {first}; "
            "score them, or set data.allow_missing_scores to leave them out"
        )
    if lists and not joined:
        raise ValueError(
            f"{path}: not one item has a teacher score, the first is {first}; are these the same ids?"
        )
    if missing:
        log.warning(
            "%s: left out %d items without a finite teacher score, the first is %s, and so %d lists",
            *(path, missing, first, len(lists) - len(joined)),
        )
    return joined
