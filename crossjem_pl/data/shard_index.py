"""What a folder of Parquet shards holds, known from its footers, and reading any rows of it in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crossjem_pl.data.formats.canonical import OPTIONAL, REQUIRED, canonical_list
from crossjem_pl.data.formats.rows import Row
from crossjem_pl.data.shards import check_manifest
from crossjem_pl.files import ending, shard_files
from crossjem_pl.hashing import content_sha256
from crossjem_pl.lists import RankingList

__all__ = ["ListStream", "Segment", "ShardIndex"]

READ_LISTS = 256
"""Rows that are decoded at a time."""

_POSITION = "crossjem_pl.position"


class Segment(NamedTuple):
    """Rows `start` to `stop - 1` of a row group; `group` counts the row groups of all shards in stored order."""

    group: int
    start: int
    stop: int


class ShardIndex:
    """The row groups of a Parquet file or a folder of Parquet shards in the canonical layout.

    Only the footers are read, one file at a time, so memory grows by 16 bytes a row group and a path a shard, and
    the number of lists is exact before the first of them is read. Columns beside those of the layout are not read.

    Args:
        path: a Parquet file, or a folder whose shards are taken in the sorted order of their names. A folder with
            a manifest of `write_shards` has to be complete.
        labels_field: column of the labels; another name than "labels" has to be there in every shard.
        scores_field: column of the teacher scores, likewise.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: names the file, and the field where one is missing, is of another type, or is in some shards
            and not in others; for a file that is not Parquet or cut off, for shards that the manifest does not
            account for, and if there is no list at all.
    """

    def __init__(self, path: Path, labels_field: str = "labels", scores_field: str = "scores") -> None:
        self.path, self.labels_field, self.scores_field = path, labels_field, scores_field
        self.files = shard_files(path)
        self.columns: tuple[str, ...] = ()
        rows: list[int] = []
        files: list[int] = []
        groups: list[int] = []
        totals: dict[str, int] = {}
        for number, file in enumerate(self.files):
            counts = self._footer(file)
            totals[file.name] = sum(counts)
            kept = [group for group, count in enumerate(counts) if count]
            rows += [counts[group] for group in kept]
            files += [number] * len(kept)
            groups += kept
        if path.is_dir():
            check_manifest(path, totals)
        if not rows:
            raise ValueError(f"{path}: the shards hold no lists")
        self.rows = np.asarray(rows, dtype=np.int64)
        """int64 [row groups]: lists of each row group, in stored order; none is empty."""
        self._file = np.asarray(files, dtype=np.int32)
        self._group = np.asarray(groups, dtype=np.int32)

    def __len__(self) -> int:
        return int(self._first[-1])

    @cached_property
    def digest(self) -> str:
        """Changes with the names of the shards and the lists of their row groups."""
        names = "\n".join(file.name for file in self.files)
        parts = (names.encode(), self.rows.tobytes(), self._file.tobytes())
        return content_sha256(b"\0".join(parts))[:16]

    @cached_property
    def _first(self) -> np.ndarray:
        """int64 [row groups + 1]: position of the first list of each row group in stored order."""
        return np.concatenate([[0], np.cumsum(self.rows)])

    def whole(self) -> Iterator[Segment]:
        """Everything, in stored order."""
        return (Segment(group, 0, int(count)) for group, count in enumerate(self.rows))

    def read(self, segments: Iterable[Segment]) -> Iterator[pa.RecordBatch]:
        """The rows of the segments, in order, as Arrow batches of at most `READ_LISTS` rows for `lists`.

        One file is open at a time. Files are read through a buffer of 1 MiB a column and not memory-mapped: the
        pages of a map would count as memory of the process.

        Raises:
            ValueError: names the file (and the field, for values of another type), for damaged data or a file that
                is no longer the one that was indexed.
        """
        for segment in segments:
            yield from self._read(segment)

    def lists(self, table: pa.Table | pa.RecordBatch) -> list[tuple[int, RankingList]]:
        """(position in stored order, list) for each of the rows that `read` gave.

        Raises:
            ValueError: names file, row and field of a value that makes no list.
        """
        made = []
        for values in table.to_pylist():
            position = values.pop(_POSITION)
            group = int(np.searchsorted(self._first, position, side="right")) - 1
            file = int(self._file[group])
            start = self._first[np.searchsorted(self._file, file)]
            row = Row(self.files[file], "row", int(position - start) + 1, values, self.columns)
            made.append((position, canonical_list(row, self.labels_field, self.scores_field)))
        return made

    def _read(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        path, first = self.files[self._file[segment.group]], int(self._first[segment.group])
        count, at = int(self.rows[segment.group]), 0
        with _parquet(path, "damaged or changed Parquet data") as file:
            group = int(self._group[segment.group])
            if group >= file.num_row_groups or file.metadata.row_group(group).num_rows != count:
                raise ValueError(f"{path}: the file has changed since it was opened for streaming")
            for batch in file.iter_batches(
                READ_LISTS, row_groups=[group], columns=list(self.columns), use_threads=False
            ):
                low = max(segment.start - at, 0)
                high = min(segment.stop - at, batch.num_rows)
                if low < high:
                    yield self._cast(path, batch.slice(low, high - low), first + at + low)
                at += batch.num_rows
                if at >= segment.stop:
                    return
        raise ValueError(f"{path}: row group {group} ends after {at} lists, its footer says {count}")

    def _cast(self, path: Path, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """The batch in the types of the layout, so that shards of other writers agree, with its positions."""
        columns = [pa.array(np.arange(first, first + batch.num_rows))]
        for name in self.columns:
            try:
                columns.append(batch.column(name).cast(self._type(name)))
            except pa.ArrowException as error:
                raise ValueError(f"{path}, field {name!r}: {error}") from None
        return pa.RecordBatch.from_arrays(columns, names=[_POSITION, *self.columns])

    def _type(self, name: str) -> pa.DataType:
        if name in ("query_id", "query"):
            return pa.string()
        return pa.list_(pa.string() if name in REQUIRED else pa.float64())

    def _footer(self, path: Path) -> list[int]:
        """Lists of each row group of a shard, its columns checked."""
        if ending(path) != ".parquet":
            raise ValueError(
                f"{path}: only Parquet shards are streamed; make them with: "
                f"crossjem convert {self.path} FOLDER --shard-size 10000"
            )
        with _parquet(path, "not a readable Parquet file") as file:
            self._check_columns(path, file.schema_arrow)
            return [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]

    def _check_columns(self, path: Path, schema: pa.Schema) -> None:
        found = schema.names
        if len(set(found)) != len(found):
            raise ValueError(f"{path}: two columns have the same name ({', '.join(found)})")
        wanted = [*REQUIRED]
        for standard, name in zip(OPTIONAL, (self.labels_field, self.scores_field), strict=True):
            if name in found or name != standard:
                wanted.append(name)
        for name in wanted:
            if name not in found:
                raise ValueError(f"{path}, field {name!r}: is missing (found: {', '.join(found)})")
            _check_type(path, name, schema.field(name).type)
        columns = tuple(dict.fromkeys(wanted))
        if self.columns and columns != self.columns:
            (name, *_) = sorted(set(columns) ^ set(self.columns))
            having, lacking = (path, self.files[0]) if name in columns else (self.files[0], path)
            raise ValueError(f"{lacking}, field {name!r}: is missing, but {having} has it")
        self.columns = columns


@dataclass(frozen=True)
class ListStream:
    """Lists to stream.

    Args:
        index: the shards.
        buffer: lists that are held in memory and shuffled among each other.
    """

    index: ShardIndex
    buffer: int


@contextmanager
def _parquet(path: Path, problem: str) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(
            path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True
        ) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {problem} ({error})") from None


def _check_type(path: Path, name: str, found: pa.DataType) -> None:
    types = pa.types
    element = found
    if name not in ("query_id", "query") and not types.is_null(found):
        if not (types.is_list(found) or types.is_large_list(found) or types.is_fixed_size_list(found)):
            raise ValueError(f"{path}, field {name!r}: expected a list, got {found}")
        element = found.value_type
    if types.is_dictionary(element):
        element = element.value_type
    text = types.is_string(element) or types.is_large_string(element) or types.is_null(element)
    integer = types.is_integer(element)
    if name in ("query", "items"):
        fits, wanted = text, "texts"
    elif name in REQUIRED:
        fits, wanted = text or integer, "texts or integers"
    else:
        number = integer or types.is_floating(element) or types.is_decimal(element)
        fits, wanted = number or types.is_boolean(element) or types.is_null(element), "numbers"
    if not fits:
        raise ValueError(f"{path}, field {name!r}: expected {wanted}, got {found}")
