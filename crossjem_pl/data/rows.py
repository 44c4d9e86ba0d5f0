"""Rows of JSON lines, JSON arrays, CSV, TSV and Parquet as one stream, with the file and line that errors name."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from crossjem_pl.data.shards import COLUMNS_KEY, shard_files
from crossjem_pl.files import LONGEST_LINE, RemotePath, ending, existing, read_lines
from crossjem_pl.lists import as_identifier, as_number, as_text, shown

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

__all__ = [
    "ROW_ENDINGS",
    "Row",
    "column_names",
    "column_names_of",
    "listed",
    "open_parquet",
    "parse_number",
    "read_rows",
]

JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json", ".json.gz")
TABLE_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
ROW_ENDINGS = (*JSON_ENDINGS, *TABLE_ENDINGS, ".parquet", ".arrow")
PARQUET_BATCH = 256

T = TypeVar("T")

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


def parse_number(text: str) -> float | None:
    """The number that a text is, in decimal ASCII digits; None for other text, "1_000", "nan" and "inf"."""
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class Row:
    """One row and where it is. Its methods give the value of a field, or an error that names file, line and field.

    Args:
        path: the file.
        unit: "line" (JSON lines, CSV, TSV) or "row" (Parquet, JSON arrays).
        number: 1-based number of the line or row.
        values: the values by column.
        columns: all columns that the row has in the file, also those that were not read.
        typed: whether numbers are numbers; the cells of CSV and TSV are texts, and blank cells are no values.
    """

    path: Path
    unit: str
    number: int
    values: dict[str, Any]
    columns: Collection[str]
    typed: bool = True

    @property
    def where(self) -> str:
        """ "FILE, line 3": the start of every message about this row."""
        return f"{self.path}, {self.unit} {self.number}"

    def error(self, field: str, problem: str) -> ValueError:
        """The error to raise for a field of this row."""
        return ValueError(f"{self.where}, field {field!r}: {problem}")

    def has(self, field: str) -> bool:
        """Whether the field is there and neither null nor a blank cell."""
        value = self.values.get(field)
        return value is not None and (self.typed or bool(value.strip()))

    def text(self, field: str) -> str:
        """A text that is not blank."""
        return self._convert(field, self._value(field), as_text)

    def texts(self, field: str) -> list[str]:
        """A list of texts, none of them blank."""
        return self._each(field, as_text)

    def one_or_more_texts(self, field: str) -> list[str]:
        """A list of texts; a single text counts as a list of one."""
        return [self.text(field)] if isinstance(self.values.get(field), str) else self.texts(field)

    def identifier(self, field: str) -> str:
        """A text that is not blank, or an integer, which becomes its decimal digits."""
        return self._convert(field, self._value(field), as_identifier)

    def identifiers(self, field: str) -> list[str]:
        """A list of identifiers."""
        return self._each(field, as_identifier)

    def scalar(self, field: str) -> float:
        """A finite number; true and false are 1 and 0."""
        value = self._value(field)
        if not self.typed:
            number = parse_number(value.strip())
            value = value if number is None else number
        if (
            isinstance(value, str)
            and "," in value
            and parse_number(value.strip().replace(",", ".")) is not None
        ):
            raise self.error(field, f"expected a number with a decimal point, as 2.5, got {shown(value)}")
        return self._convert(field, value, as_number)

    def numbers(self, field: str, count: int, of: str) -> list[float]:
        """A list of `count` finite numbers, one for each entry of field `of`."""
        values = self._each(field, as_number)
        if len(values) != count:
            raise self.error(field, f"{len(values)} values for {count} entries of {of!r}")
        return values

    def _value(self, field: str) -> Any:
        value = self.values.get(field)
        if value is None:
            missing = f"is missing (found: {listed(self.columns)})"
            raise self.error(field, "is null" if field in self.values else missing)
        return value

    def _each(self, field: str, convert: Callable[[Any], T]) -> list[T]:
        values = self._value(field)
        if not isinstance(values, list):
            raise self.error(field, f"expected a list, got {shown(values)}")
        return [self._convert(field, value, convert, f"position {i}: ") for i, value in enumerate(values)]

    def _convert(self, field: str, value: Any, convert: Callable[[Any], T], position: str = "") -> T:
        try:
            return convert(value)
        except ValueError as error:
            raise self.error(field, f"{position}{error}") from None


def listed(names: Collection[str]) -> str:
    """The names as messages show them: the first twenty, each shortened."""
    first = [name if len(name) <= 40 else f"{name[:37]}..." for name in islice(names, 20)]
    return ", ".join([*first, *[f"... ({len(names)} in all)"] * (len(names) > 20)]) or "(none)"


def column_names(path: Path) -> list[str]:
    """Column names of a file or a folder's first shard: Parquet's schema, the header, or the first JSON row's keys.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an ending that is not understood, no rows at all, or a malformed first row.
    """
    for file in shard_files(path):
        if ending(file) == ".parquet":
            with open_parquet(file) as parquet:
                return column_names_of(file, parquet.schema_arrow.names)
        if ending(file) == ".arrow":
            with _open_arrow(file) as (names, _):
                return names
        if (row := next(_read_file(file, None), None)) is not None:
            return list(row.columns)
    raise ValueError(f"{path}: the file has no rows")


def read_rows(path: Path, columns: Collection[str] | None = None, *, empty: bool = False) -> Iterator[Row]:
    """The rows of a file, or of a folder of shards in sorted order, in bounded memory; a JSON array is read whole.

    CSV is quoted as spreadsheets do (RFC 4180); its delimiter is whichever of `,` `;` tab and `|` is most frequent in
    the header. TSV has no quoting: a quotation mark is a character like others, and a text cannot hold a tab.

    Args:
        path: .jsonl, .ndjson or .json (lines or one array), .csv or .tsv with a header line, each also with .gz;
            .parquet or .arrow; or a folder of .parquet, .arrow, .jsonl or .jsonl.gz shards.
        columns: the Parquet columns to read (those that are absent are passed over); None reads all.
        empty: whether there may be no rows.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names the file and the line or row, for an ending that is not understood, a file without rows (a
            shard may have none if another has some), and anything malformed.
    """
    for file in shard_files(path):
        for row in _read_file(file, columns):
            empty = True
            yield row
    if not empty:
        raise ValueError(f"{path}: the file has no rows")


@contextmanager
def open_parquet(path: Path) -> Iterator[ParquetFile]:
    """A Parquet file whose pages are read through a buffer of 1 MiB a column, their checksums verified.

    It is not memory-mapped: the pages of a map would count as memory of the process. Of one behind a URL the columns of
    a row group are fetched together, in few requests.

    Raises:
        ValueError: names the file, for what Arrow cannot read, here and inside the block.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    existing(path)
    options: dict[str, Any] = {
        "page_checksum_verification": True,
        "pre_buffer": False,
        "buffer_size": 1 << 20,
    }
    source: Any = path
    if isinstance(path, RemotePath):
        source, options = path.key, {**options, "pre_buffer": True, "filesystem": path.filesystem}
    try:
        with pq.ParquetFile(source, **options) as file:
            written, names = (file.metadata.metadata or {}).get(COLUMNS_KEY.encode()), file.schema_arrow.names
            if written is not None and written != ",".join(names).encode():
                raise ValueError(f"{path}: damaged: its columns ({listed(names)}) are not those written")
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            if sum(group.num_rows for group in groups) != file.metadata.num_rows:
                raise ValueError(
                    f"{path}: damaged: its row groups have not {file.metadata.num_rows:,} rows in all"
                )
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: unreadable Parquet data ({' '.join(str(error).split())})") from None


@contextmanager
def _open_arrow(path: Path) -> Iterator[tuple[list[str], Iterator[pa.RecordBatch]]]:
    """The columns and the batches of Arrow's IPC stream (what `datasets` saves) or file (Feather).

    Raises:
        ValueError: names the file, for what Arrow cannot read, here and inside the block.
    """
    import pyarrow as pa

    existing(path)
    try:
        with path.open("rb") as raw:
            try:
                reader = pa.ipc.open_stream(raw)
                batches: Iterator[pa.RecordBatch] = iter(reader)
            except pa.ArrowInvalid:
                raw.seek(0)
                reader = pa.ipc.open_file(raw)
                batches = map(reader.get_batch, range(reader.num_record_batches))
            yield column_names_of(path, reader.schema.names), batches
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: unreadable Arrow data ({shown(str(error))})") from None


def column_names_of(path: Path, names: list[str]) -> list[str]:
    """The names of the columns; raises a ValueError that names the file if two columns have one name."""
    if len(set(names)) != len(names):
        raise ValueError(f"{path}: two columns have the same name ({listed(names)})")
    return names


def _read_file(path: Path, columns: Collection[str] | None) -> Iterator[Row]:
    existing(path)
    kind = ending(path)
    if kind not in ROW_ENDINGS:
        known = ", ".join(ROW_ENDINGS)
        raise ValueError(f"{path}: cannot tell the kind of file from its ending; understood: {known}")
    if kind in (".parquet", ".arrow"):
        return _read_columns(path, columns)
    return _read_json(path) if kind in JSON_ENDINGS else _read_table(path)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {shown(twice)} occurs more than once in an object")
    for name in values:
        if not name.isascii():
            as_text(name)
    return values


def _read_json(path: Path) -> Iterator[Row]:
    first = next((line for _, line in read_lines(path)), "")
    unit = "row" if first.lstrip().startswith("[") else "line"
    for number, value in _json_array(path) if unit == "row" else _json_lines(path):
        if not isinstance(value, dict):
            raise ValueError(f"{path}, {unit} {number}: expected a JSON object, got {shown(value)}")
        yield Row(path, unit, number, value, value.keys())


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique_keys)
    for number, line in read_lines(path):
        try:
            yield number, decoder.decode(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not a JSON object on one line ({error})") from None


def _json_array(path: Path) -> Iterator[tuple[int, Any]]:
    text = "\n".join(line for _, line in read_lines(path, blank=True))
    try:
        yield from enumerate(json.loads(text, object_pairs_hook=_unique_keys), 1)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: malformed JSON array ({error})") from None


def _read_table(path: Path) -> Iterator[Row]:
    rows = _cells(path)
    _, header = next(rows, (1, []))
    columns = [name.strip() for name in header]
    if not columns:
        raise ValueError(f"{path}: the file has no rows; expected a line of column names")
    if len(set(columns)) != len(columns) or not all(columns):
        raise ValueError(f"{path}, line 1: column names must be distinct and not blank: {listed(columns)}")
    for number, cells in rows:
        if len(cells) != len(columns):
            raise ValueError(
                f"{path}, line {number}: {len(cells)} cells for {len(columns)} columns ({listed(columns)})"
            )
        yield Row(path, "line", number, dict(zip(columns, cells, strict=True)), columns, typed=False)


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line of CSV or TSV, with the number of its last line."""
    if ending(path).startswith(".tsv"):
        yield from ((number, line.split("\t")) for number, line in read_lines(path))
        return
    header = next((line for _, line in read_lines(path)), "")
    number, begun = 1, 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in read_lines(path, blank=True):  # noqa: B007 - the line that the reader is at
            yield line + "\n"

    try:
        for cells in csv.reader(lines(), delimiter=max(",;\t|", key=header.count), strict=True):
            begun = number
            if cells:
                yield number, cells
    except csv.Error as error:
        quote = 'a quotation mark that opens a text has none that closes it; inside a text it is written twice: ""'
        reason = quote if "unexpected end of data" in str(error) else error
        raise ValueError(f"{path}, line {begun + 1}: malformed CSV ({reason})") from None


def _read_columns(path: Path, columns: Collection[str] | None) -> Iterator[Row]:
    """The rows of Parquet or Arrow data, a few decoded at a time."""

    def rows(names: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
        number = 0
        for batch in batches:
            size = batch.num_rows if batch.nbytes <= LONGEST_LINE else 1
            for part in (batch.slice(start, size) for start in range(0, batch.num_rows, size)):
                if part.nbytes > LONGEST_LINE:  # a small file can hold it
                    raise ValueError(f"{path}, row {number + 1}: longer than {LONGEST_LINE >> 20} MiB")
                for values in part.to_pylist():
                    number += 1
                    yield Row(path, "row", number, values, names)

    def chosen(names: list[str]) -> list[str]:
        return [name for name in names if columns is None or name in columns]

    if ending(path) == ".parquet":
        with open_parquet(path) as file:
            names = column_names_of(path, file.schema_arrow.names)
            yield from rows(names, file.iter_batches(PARQUET_BATCH, columns=chosen(names)))
        return
    with _open_arrow(path) as (names, batches):
        yield from rows(names, _slices(batches, chosen(names)))


def _slices(batches: Iterator[pa.RecordBatch], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of Arrow's batches, a few rows at a time; damaged offsets are found before they are used."""
    for batch in batches:
        batch.validate(full=True)
        for start in range(0, batch.num_rows, PARQUET_BATCH):
            yield batch.slice(start, PARQUET_BATCH).select(columns)
