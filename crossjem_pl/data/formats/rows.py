"""Rows of JSONL, JSON arrays and Parquet as one stream, with the file and line that every error names."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crossjem_pl.files import ending, existing, read_chunks, read_lines, shard_files

__all__ = ["Row", "column_names", "read_rows"]

JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz")
PARQUET_BATCH = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One row and where it stands.

    Args:
        path: the file.
        unit: "line" (JSON) or "row" (Parquet).
        number: 1-based number of the line or row.
        values: the values by column.
        columns: all columns that the row has in the file, also those that were not read.
    """

    path: Path
    unit: str
    number: int
    values: dict[str, Any]
    columns: Collection[str]

    @property
    def where(self) -> str:
        """ "FILE, line 3": the start of every message about this row."""
        return f"{self.path}, {self.unit} {self.number}"

    def error(self, field: str, problem: str) -> ValueError:
        """The error to raise for a field of this row."""
        return ValueError(f"{self.where}, field {field!r}: {problem}")

    def has(self, field: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(field) is not None

    def text(self, field: str) -> str:
        """A text that is not blank."""
        return self._text(field, self._value(field), "")

    def texts(self, field: str) -> list[str]:
        """A list of texts, none of them blank."""
        return [self._text(field, value, f"position {i}: ") for i, value in enumerate(self._list(field))]

    def one_or_more_texts(self, field: str) -> list[str]:
        """A list of texts; a single text counts as a list of one."""
        return [self.text(field)] if isinstance(self.values.get(field), str) else self.texts(field)

    def identifier(self, field: str) -> str:
        """A text that is not blank, or an integer, which becomes its decimal digits."""
        return self._identifier(field, self._value(field), "")

    def identifiers(self, field: str) -> list[str]:
        """A list of identifiers."""
        return [self._identifier(field, v, f"position {i}: ") for i, v in enumerate(self._list(field))]

    def numbers(self, field: str, count: int, of: str) -> list[float]:
        """A list of `count` finite numbers, one for each entry of field `of`; true and false are 1 and 0."""
        values = self._list(field)
        if len(values) != count:
            raise self.error(field, f"{len(values)} values for {count} entries of {of!r}")
        return [self._number(field, value, i) for i, value in enumerate(values)]

    def _value(self, field: str) -> Any:
        value = self.values.get(field)
        if value is None:
            found = ", ".join(self.columns)
            raise self.error(field, "is null" if field in self.values else f"is missing (found: {found})")
        return value

    def _list(self, field: str) -> list[Any]:
        value = self._value(field)
        if not isinstance(value, list):
            raise self.error(field, f"expected a list, got {_shown(value)}")
        return value

    def _text(self, field: str, value: Any, position: str) -> str:
        if not isinstance(value, str):
            raise self.error(field, f"{position}expected a text, got {_shown(value)}")
        if not value or value.isspace():
            raise self.error(field, f"{position}the text is blank: {value!r}")
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise self.error(
                    field, f"{position}half a surrogate pair, which is no text: {value!r}"
                ) from None
        return value

    def _identifier(self, field: str, value: Any, position: str) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self._text(field, value, position)

    def _number(self, field: str, value: Any, position: int) -> float:
        if not isinstance(value, (int, float, Decimal)):
            raise self.error(field, f"position {position}: expected a number, got {_shown(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.error(field, f"position {position}: expected a finite number, got {_shown(value)}")
        return number


def column_names(path: Path) -> list[str]:
    """Column names of a file or a folder's first shard: Parquet's schema, or the keys of the first JSON row.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an ending that is not understood, an empty file, or a malformed first row.
    """
    first = shard_files(path)[0]
    if ending(first) == ".parquet":
        with _open_parquet(first) as file:
            return _parquet_columns(first, file)
    return list(next(_read_file(first, None)).columns)


def read_rows(path: Path, columns: Collection[str] | None = None) -> Iterator[Row]:
    """The rows of a file, or of a folder of shards in sorted order, in bounded memory.

    Args:
        path: .jsonl, .ndjson or .json (lines or one array), each also with .gz, .parquet, or a folder of
            shards.
        columns: the Parquet columns to read (those that are absent are passed over); None reads all.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names the file and the line or row, for an ending that is not understood, a file without
            rows, and anything malformed.
    """
    for file in shard_files(path):
        yield from _read_file(file, columns)


def _read_file(path: Path, columns: Collection[str] | None) -> Iterator[Row]:
    existing(path)
    kind = ending(path)
    if kind == ".parquet":
        rows = _read_parquet(path, columns)
    elif kind not in JSON_ENDINGS:
        known = ", ".join((*JSON_ENDINGS, ".parquet"))
        raise ValueError(f"{path}: cannot tell the kind of file from its ending; understood: {known}")
    else:
        rows = _read_array(path) if _starts_array(path) else _read_jsonl(path)
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise ValueError(f"{path}: the file has no rows")


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} occurs more than once in an object")
    return values


def _json_row(path: Path, number: int, value: Any) -> Row:
    if not isinstance(value, dict):
        raise ValueError(f"{path}, line {number}: expected a JSON object, got {_shown(value)}")
    return Row(path, "line", number, value, value.keys())


def _read_jsonl(path: Path) -> Iterator[Row]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique_keys)
    for number, line in read_lines(path):
        try:
            value = decoder.decode(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not a JSON object on one line ({error})") from None
        yield _json_row(path, number, value)


def _starts_array(path: Path) -> bool:
    for chunk in read_chunks(path, 1 << 12):
        text = chunk.lstrip()
        if text:
            return text[0] == "["
    return False


class _ArrayText:
    """The text of a JSON array, read piece by piece."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chunks = read_chunks(path)
        self._decoder = json.JSONDecoder(object_pairs_hook=_unique_keys)
        self._text = ""
        self._at = 0
        self._line = 1  # the line of position `_at`

    def peek(self) -> str:
        """The next character that is not white space, or "" at the end."""
        while True:
            at = self._at
            while at < len(self._text) and self._text[at] in " \t\r\n":
                at += 1
            self._advance(at)
            if at < len(self._text):
                return self._text[at]
            if not self._more():
                return ""

    def take(self) -> None:
        """Passes over one character."""
        self._advance(self._at + 1)

    def value(self) -> tuple[int, Any]:
        """(line it starts on, value) of the next JSON value."""
        while True:
            line = self._line
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # the text that was read so far may end inside the value: then there is more to read
                cut = error.pos > len(self._text) - 16 or error.msg.startswith("Unterminated string")
                if cut and self._more():
                    continue
                line += self._text.count("\n", self._at, error.pos)
                raise self.error(error.msg, line) from None
            except (ValueError, RecursionError) as error:
                raise self.error(str(error), line) from None
            self._advance(end)
            return line, value

    def error(self, problem: str, line: int | None = None) -> ValueError:
        return ValueError(f"{self.path}, line {line or self._line}: malformed JSON array ({problem})")

    def _advance(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _more(self) -> bool:
        """Doubles the text that is held (so that one long value costs linear time); False at the end."""
        kept = [self._text[self._at :]]
        wanted = max(1, len(kept[0]))
        for chunk in self._chunks:
            kept.append(chunk)
            wanted -= len(chunk)
            if wanted <= 0:
                break
        self._text, self._at = "".join(kept), 0
        return len(kept) > 1


def _read_array(path: Path) -> Iterator[Row]:
    text = _ArrayText(path)
    text.peek()
    text.take()
    if text.peek() == "]":
        text.take()
    else:
        while True:
            text.peek()
            number, value = text.value()
            yield _json_row(path, number, value)
            mark = text.peek()
            if mark not in (",", "]"):
                raise text.error(f"expected ',' or ']' after a row, got {mark or 'the end of the file'!r}")
            text.take()
            if mark == "]":
                break
    if text.peek():
        raise text.error("there is something after the closing ']'")


def _open_parquet(path: Path) -> pq.ParquetFile:
    existing(path)
    try:
        return pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from None


def _parquet_columns(path: Path, file: pq.ParquetFile) -> list[str]:
    names: list[str] = file.schema_arrow.names
    if len(set(names)) != len(names):
        raise ValueError(f"{path}: two columns have the same name ({', '.join(names)})")
    return names


def _read_parquet(path: Path, columns: Collection[str] | None) -> Iterator[Row]:
    number = 0
    with _open_parquet(path) as file:
        names = _parquet_columns(path, file)
        wanted = [name for name in names if columns is None or name in columns]
        try:
            for batch in file.iter_batches(PARQUET_BATCH, columns=wanted):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(path, "row", number, values, names)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}, after row {number}: damaged Parquet data ({error})") from None
