"""Rows of a user's table: TSV or CSV with a header line, JSON lines, Parquet; with the place each row stands at."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from crossjem_pl.data.rows import JSON_ENDINGS, Row, read_rows
from crossjem_pl.files import ending, existing, read_lines

__all__ = ["TABLE_ENDINGS", "read_table"]

_DELIMITED = (".tsv", ".tsv.gz", ".csv", ".csv.gz")
TABLE_ENDINGS = (*_DELIMITED, *JSON_ENDINGS, ".parquet")


def read_table(path: Path) -> Iterator[Row]:
    """The rows of a file, or of a folder of Parquet or JSONL shards, in flat memory.

    TSV has no quoting: a quotation mark is a character like others, and a text cannot hold a tab. CSV is quoted
    as spreadsheets do (RFC 4180). The cells of both are texts.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names file and line, for another ending, a file without rows, a row with more or fewer cells
            than the header, two columns of one name, and damaged or undecodable data.
    """
    existing(path)
    if path.is_dir() or ending(path) in (*JSON_ENDINGS, ".parquet"):
        yield from read_rows(path)
    elif ending(path) in _DELIMITED:
        yield from _delimited(path)
    else:
        raise ValueError(f"{path}: cannot tell the kind of table; endings: {', '.join(TABLE_ENDINGS)}")


def _delimited(path: Path) -> Iterator[Row]:
    cells = _csv(path) if ending(path).startswith(".csv") else _tsv(path)
    _, header = next(cells, (1, []))
    columns = [name.strip() for name in header]
    if not columns:
        raise ValueError(f"{path}: the file is empty; expected a line of column names")
    if len(set(columns)) != len(columns) or not all(columns):
        raise ValueError(f"{path}, line 1: column names must be distinct and not blank, found {columns}")
    empty = True
    for number, values in cells:
        if len(values) != len(columns):
            raise ValueError(
                f"{path}, line {number}: {len(values)} cells for {len(columns)} columns ({', '.join(columns)})"
            )
        empty = False
        yield Row(path, "line", number, dict(zip(columns, values, strict=True)), columns)
    if empty:
        raise ValueError(f"{path}: the file has no rows")


def _tsv(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path):
        yield number, line.split("\t")


def _csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    number = 1

    def lines() -> Iterator[str]:
        nonlocal number
        for at, line in read_lines(path):
            number = at
            yield line + "\n"

    reader = csv.reader(lines(), strict=True)
    while True:
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(f"{path}, line {number}: malformed CSV ({error})") from None
        yield number, values
