"""Which layout a file has, and its lists."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from crossjem_pl.data.formats import canonical, columns, mteb
from crossjem_pl.data.formats.content import ContentIds
from crossjem_pl.data.formats.counts import ReadCounts
from crossjem_pl.data.formats.rows import Row, column_names, read_rows
from crossjem_pl.files import shard_files
from crossjem_pl.lists import RankingList

__all__ = ["LAYOUTS", "detect_layout", "read_lists"]

log = logging.getLogger(__name__)

LAYOUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "canonical": (canonical.REQUIRED, canonical.OPTIONAL),
    "mteb": (mteb.REQUIRED, mteb.OPTIONAL),
    "columns": (columns.REQUIRED, columns.OPTIONAL),
}
"""(required columns, optional columns) of each layout, in the order in which they are tried."""


def detect_layout(path: str | os.PathLike[str]) -> str:
    """The name of the first layout whose required columns the source has.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no layout fits; lists the columns found and the layouts understood.
    """
    found = column_names(Path(path))
    for name, (required, _) in LAYOUTS.items():
        if set(required) <= set(found):
            return name
    raise ValueError(f"{path}: no layout fits the columns {', '.join(found) or '(none)'}; {_understood()}")


def read_lists(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    labels_field: str | None = "labels",
    scores_field: str | None = "scores",
    unique: bool = True,
    counts: ReadCounts | None = None,
) -> Iterator[RankingList]:
    """Streams the lists of a file, or of a folder of shards in sorted order, in bounded memory.

    Args:
        path: .jsonl, .ndjson or .json (JSON lines or one array), each also with .gz, .parquet, or a folder of
            .parquet, .jsonl or .jsonl.gz shards.
        format: "canonical", "mteb", "columns", or "auto" (by the columns of the first row or the schema).
        labels_field: column to read as the labels; None reads none. A name other than "labels" must be there
            in every row.
        scores_field: the same for the scores ("scores").
        unique: check that no query id occurs twice. It costs about 200 bytes a list, the only memory that
            grows with the source; switch it off for a source that has been checked.
        counts: filled with what was merged and what was not carried. Without it merges are logged as a
            warning.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names the file, the line (row of Parquet, 1-based) and the field of what is malformed; for
            a repeated query id, both lines; for an unknown layout, the columns found and the layouts
            understood.
    """
    source = Path(path)
    shard_files(source)
    if format not in ("auto", *LAYOUTS):
        raise ValueError(f"unknown format {format!r}; {_understood()}")
    if format == "auto":
        format = detect_layout(source)
    if format == "mteb" and (labels_field not in (None, "labels") or scores_field not in (None, "scores")):
        raise ValueError(
            f"{source}: rows of the layout 'mteb' have no field for labels or scores, so labels_field and "
            "scores_field cannot name one"
        )
    return _lists(source, format, labels_field, scores_field, unique, counts)


def _lists(
    source: Path,
    layout: str,
    labels_field: str | None,
    scores_field: str | None,
    unique: bool,
    counts: ReadCounts | None,
) -> Iterator[RankingList]:
    tally = ReadCounts() if counts is None else counts
    ids = ContentIds()
    used = _used_columns(layout, labels_field, scores_field)
    seen: dict[str, tuple[Path, int]] = {}
    for row in read_rows(source, used):
        for column in row.columns:
            if column not in used:
                tally.leave(column)
        for one in _row_lists(row, layout, labels_field, scores_field, ids, tally):
            if unique:
                if one.query_id in seen:
                    file, number = seen[one.query_id]
                    before = f"{file}, {row.unit} {number}"
                    raise row.error("query_id", f"id {one.query_id!r} occurs before, in {before}")
                seen[one.query_id] = (row.path, row.number)
            tally.lists += 1
            tally.items += len(one)
            yield one
    merged = tally.merged_items + tally.merged_queries
    if counts is None and merged:
        log.warning("%s: merged %d exact repeats of a text inside one row", source, merged)


def _used_columns(layout: str, labels_field: str | None, scores_field: str | None) -> Collection[str]:
    required, optional = LAYOUTS[layout]
    replaced = {"labels": labels_field, "scores": scores_field}
    names = [*required, *(replaced.get(name, name) for name in optional)]
    return {name for name in names if name is not None}


def _row_lists(
    row: Row,
    layout: str,
    labels_field: str | None,
    scores_field: str | None,
    ids: ContentIds,
    tally: ReadCounts,
) -> Iterator[RankingList]:
    if layout == "canonical":
        yield canonical.canonical_list(row, labels_field, scores_field)
    elif layout == "mteb":
        yield from mteb.mteb_lists(row, ids, tally)
    else:
        yield columns.columns_list(row, labels_field, scores_field, ids, tally)


def _understood() -> str:
    layouts = (
        f"{name} ({', '.join(required)}; optional {', '.join(optional)})"
        for name, (required, optional) in LAYOUTS.items()
    )
    return "layouts understood: " + "; ".join(layouts)
