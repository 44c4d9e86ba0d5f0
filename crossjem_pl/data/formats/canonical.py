"""The package's own layout: one `RankingList` a row, `query_id, query, item_ids, items, labels?, scores?`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crossjem_pl.data.formats.rows import Row
from crossjem_pl.files import ending, replacing
from crossjem_pl.lists import RankingList

__all__ = ["CANONICAL_ENDINGS", "OPTIONAL", "REQUIRED", "SCHEMA", "canonical_list", "write_canonical"]

REQUIRED = ("query_id", "query", "item_ids", "items")
OPTIONAL = ("labels", "scores")
CANONICAL_ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
GROUP_LISTS = 4096
GROUP_ITEMS = 100_000

SCHEMA = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("query", pa.string(), nullable=False),
        pa.field("item_ids", pa.list_(pa.string()), nullable=False),
        pa.field("items", pa.list_(pa.string()), nullable=False),
        pa.field("labels", pa.list_(pa.float64())),
        pa.field("scores", pa.list_(pa.float64())),
    ]
)
"""Parquet schema of the canonical layout; numbers are float64, so that nothing is rounded."""


def canonical_list(row: Row, labels_field: str | None, scores_field: str | None) -> RankingList:
    """The list of one canonical row.

    A field with a name of the user's own must be there in every row; the standard `labels` and `scores` may
    be missing or null. With None the field is not read.

    Raises:
        ValueError: names file, line and field.
    """
    items = row.texts("items")

    def numbers(field: str | None, standard: str) -> tuple[float, ...] | None:
        if field is None or (field == standard and not row.has(field)):
            return None
        return tuple(row.numbers(field, len(items), "items"))

    arguments = (
        row.identifier("query_id"),
        row.text("query"),
        tuple(row.identifiers("item_ids")),
        tuple(items),
        numbers(labels_field, "labels"),
        numbers(scores_field, "scores"),
    )
    try:
        return RankingList(*arguments)
    except ValueError as error:
        raise ValueError(f"{row.where}: {error}") from None


def write_canonical(lists: Iterable[RankingList], path: Path) -> None:
    """Writes .jsonl, .jsonl.gz or .parquet in flat memory, under a temporary name until it is whole.

    Raises:
        ValueError: another ending.
    """
    kind = ending(path)
    if kind not in CANONICAL_ENDINGS:
        raise ValueError(f"{path}: lists are written to names that end in {', '.join(CANONICAL_ENDINGS)}")
    with replacing(path) as stream:
        if kind == ".parquet":
            with pq.ParquetWriter(stream, SCHEMA, compression="zstd") as writer:
                for group in _groups(lists):
                    writer.write_table(pa.Table.from_pylist([_record(one) for one in group], SCHEMA))
        else:
            for one in lists:
                record = {name: value for name, value in _record(one).items() if value is not None}
                stream.write(json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n")


def _record(one: RankingList) -> dict[str, Any]:
    return {name: getattr(one, name) for name in (*REQUIRED, *OPTIONAL)}


def _groups(lists: Iterable[RankingList]) -> Iterator[list[RankingList]]:
    """Row groups, bounded in lists and in items."""
    group: list[RankingList] = []
    items = 0
    for one in lists:
        group.append(one)
        items += len(one)
        if len(group) >= GROUP_LISTS or items >= GROUP_ITEMS:
            yield group
            group, items = [], 0
    if group:
        yield group
