"""Tables of texts by id, which a TREC run needs beside it: TSV `id<TAB>text`, or rows `{id, text}`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from crossjem_pl.data.formats.counts import ReadCounts
from crossjem_pl.data.formats.rows import JSON_ENDINGS, read_rows
from crossjem_pl.files import ending, existing, read_lines

__all__ = ["read_texts"]

_COLUMNS = ("id", "text")


def read_texts(
    path: str | os.PathLike[str], wanted: Collection[str] | None = None, counts: ReadCounts | None = None
) -> dict[str, str]:
    """Texts by id.

    Args:
        path: rows with the columns `id` and `text` (.jsonl, .ndjson, .json, .parquet, or a folder of shards),
            or else lines `id<TAB>text`, plain or gzip. The id ends at the first tab, later tabs belong to the
            text; there is no quoting and no header.
        wanted: the ids to keep (memory follows them, not the file); None keeps all.
        counts: told the columns that are not carried.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names file and line, for a malformed line, a blank text or a repeat of an id that is kept;
            or an empty file.
    """
    source = existing(path)
    texts: dict[str, str] = {}
    found = False
    for where, identifier, text in _rows(source, counts) if _has_rows(source) else _tsv(source):
        found = True
        if wanted is not None and identifier not in wanted:
            continue
        if not text or text.isspace():
            raise ValueError(f"{where}, field 'text': the text of id {identifier!r} is blank")
        if identifier in texts:
            raise ValueError(f"{where}, field 'id': id {identifier!r} occurs before in this source")
        texts[identifier] = text
    if not found:
        raise ValueError(f"{source}: the file has no rows")
    return texts


def _has_rows(path: Path) -> bool:
    return path.is_dir() or ending(path) in (*JSON_ENDINGS, ".parquet")


def _rows(path: Path, counts: ReadCounts | None) -> Iterator[tuple[str, str, str]]:
    for row in read_rows(path, _COLUMNS):
        if counts is not None:
            for column in row.columns:
                if column not in _COLUMNS:
                    counts.leave(f"{column} (of {path.name})")
        blank = isinstance(row.values.get("text"), str) and not row.values["text"].strip()
        yield row.where, row.identifier("id"), "" if blank else row.text("text")


def _tsv(path: Path) -> Iterator[tuple[str, str, str]]:
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        identifier, tab, text = line.partition("\t")
        if not tab:
            raise ValueError(f"{where}: expected 'id<TAB>text', found no tab")
        if not identifier or identifier.isspace():
            raise ValueError(f"{where}, field 'id': the id is blank")
        yield where, identifier, text
