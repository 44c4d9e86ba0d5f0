"""Lists that are too many for the memory: what a folder of Parquet shards holds, the order of an epoch, its loader."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from crossjem_pl.data.batches import BatchLoader
from crossjem_pl.data.formats import ListReader
from crossjem_pl.data.rows import Row, column_names_of, listed, open_parquet
from crossjem_pl.data.shards import FIELDS, Manifest, shard_files
from crossjem_pl.files import ending
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

__all__ = ["EpochOrder", "Segment", "ShardIndex", "StreamingLoader"]

READ_LISTS = 256
"""Rows that are decoded at a time."""

TEXTS = ("query_id", "query")
"""Columns of one text a list; the others hold one value an item."""

_POSITION = "crossjem_pl.position"


class Segment(NamedTuple):
    """Rows `start` to `stop - 1` of a row group; `group` counts the row groups of all shards in stored order."""

    group: int
    start: int
    stop: int


class ShardIndex:
    """The row groups of a Parquet file or a folder of Parquet shards in the canonical layout.

    Only the footers are read, one file at a time, so memory grows by 16 bytes a row group and a path a shard, and the
    number of lists is exact before the first of them is read. Columns beside those of the layout are not read.

    Args:
        path: a Parquet file, or a folder whose shards are taken in the sorted order of their names. A folder with a
            manifest has to be complete.
        label_column: column of the labels, None to read none; another name than "labels" has to be in every shard.
        score_column: column of the teacher scores, likewise.
        buffer: lists that a `StreamingLoader` holds in memory and shuffles among each other.

    Raises:
        FileNotFoundError: nothing at `path`.
        ValueError: names the file, and the field where one is missing, is of another type, or is in some shards and
            not in others; for a file that is not Parquet or cut off, for shards that the manifest does not account
            for, and if there is no list at all.
    """

    def __init__(
        self,
        path: Path,
        label_column: str | None = "labels",
        score_column: str | None = "scores",
        buffer: int = 4096,
    ) -> None:
        self.path, self._numbers, self.buffer = path, (label_column, score_column), buffer
        self.files = shard_files(path)
        self.columns: tuple[str, ...] = ()
        rows: list[np.ndarray] = []
        totals: dict[str, int] = {}
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(file.name.encode() + b"\0")
            rows.append(self._footer(file, digest))
            totals[file.name] = int(rows[-1].sum())
        manifest = Manifest.read(path) if path.is_dir() else None
        if manifest is not None:
            manifest.check_shards(totals)
        if not any(totals.values()):
            raise ValueError(f"{path}: the shards hold no lists")
        self.digest = digest.hexdigest()[:16]
        """Changes with the names of the shards and with their footers; ours hold a digest of the contents."""
        counts, groups = np.concatenate(rows), [np.arange(len(of_file), dtype=np.int32) for of_file in rows]
        self.rows = counts[counts > 0]
        """int64 [row groups]: lists of each row group, in stored order; none is empty."""
        self._group = np.concatenate(groups)[counts > 0]
        self._file = np.repeat(np.arange(len(rows), dtype=np.int32), list(map(len, rows)))[counts > 0]
        self._reader = ListReader("canonical", label_column, score_column)

    def __len__(self) -> int:
        return int(self._first[-1])

    @cached_property
    def _first(self) -> np.ndarray:
        """int64 [row groups + 1]: position of the first list of each row group in stored order."""
        return np.concatenate([[0], np.cumsum(self.rows)])

    def whole(self) -> Iterator[Segment]:
        """Everything, in stored order."""
        return (Segment(group, 0, int(count)) for group, count in enumerate(self.rows))

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
            made.append((position, *self._reader.lists(row)))
        return made

    def read(self, segments: Iterable[Segment]) -> Iterator[pa.RecordBatch]:
        """The rows of the segments, in order, as Arrow batches of at most `READ_LISTS` rows for `lists`.

        One file is open at a time.

        Raises:
            ValueError: names the file (and the field, for values of another type), for damaged data or a file that is
                no longer the one that was indexed.
        """
        opened: Path | None = None
        with ExitStack() as held:
            for segment in segments:
                path = self.files[self._file[segment.group]]
                if path != opened:
                    held.close()
                    opened, file = path, held.enter_context(open_parquet(path))
                yield from self._read(path, file, segment)

    def _read(self, path: Path, file: ParquetFile, segment: Segment) -> Iterator[pa.RecordBatch]:
        first = int(self._first[segment.group])
        group, count, at = int(self._group[segment.group]), int(self.rows[segment.group]), 0
        if group >= file.num_row_groups or file.metadata.row_group(group).num_rows != count:
            raise ValueError(f"{path}: the file has changed since it was opened for streaming")
        columns = list(self.columns)
        for batch in file.iter_batches(READ_LISTS, row_groups=[group], columns=columns, use_threads=False):
            low, high = max(segment.start - at, 0), min(segment.stop - at, batch.num_rows)
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
            element = pa.string() if name in FIELDS[:4] else pa.float64()
            try:
                columns.append(batch.column(name).cast(element if name in TEXTS else pa.list_(element)))
            except pa.ArrowException as error:
                raise ValueError(f"{path}, field {name!r}: {error}") from None
        return pa.RecordBatch.from_arrays(columns, names=[_POSITION, *self.columns])

    def _footer(self, path: Path, digest: Any) -> np.ndarray:
        """int64 [row groups]: lists of each in a shard, its columns checked; the digest is told the footer's bytes."""
        if ending(path) != ".parquet":
            raise ValueError(
                f"{path}: only Parquet shards are streamed; make them with: "
                f"crossjem convert {self.path} FOLDER --shard-size 10000"
            )
        with open_parquet(path) as file:
            names = column_names_of(path, file.schema_arrow.names)
            numbers = (
                n
                for n, standard in zip(self._numbers, FIELDS[4:], strict=True)
                if n in names or n not in (standard, None)
            )
            columns = tuple(dict.fromkeys((*FIELDS[:4], *filter(None, numbers))))
            for name in columns:
                if name not in names:
                    raise ValueError(f"{path}, field {name!r}: is missing (found: {listed(names)})")
                _check_type(path, name, file.schema_arrow.field(name).type)
            if self.columns and columns != self.columns:
                (name, *_) = sorted(set(columns) ^ set(self.columns))
                having, lacking = (path, self.files[0]) if name in columns else (self.files[0], path)
                raise ValueError(f"{lacking}, field {name!r}: is missing, but {having} has it")
            self.columns = columns
            with path.open("rb") as raw:  # Thrift data, its length in 4 bytes, "PAR1"
                raw.seek(-8 - file.metadata.serialized_size, 2)
                digest.update(raw.read())
            groups = range(file.num_row_groups)
            return np.fromiter((file.metadata.row_group(group).num_rows for group in groups), np.int64)


def _check_type(path: Path, name: str, kind: pa.DataType) -> None:
    """Raises a ValueError if the values of a column, those inside of a list, are of another type than the layout's."""
    element = kind if name in TEXTS else getattr(kind, "value_type", kind)
    element = str(getattr(element, "value_type", element))  # of a dictionary
    integer, text = r"u?int\d+|null", r"(large_)?string"
    wanted, pattern = (
        ("texts", f"{text}|null") if name in ("query", "items")
        else ("texts or integers", f"{text}|{integer}") if name in FIELDS[:4]
        else ("numbers", f"bool|float|double|halffloat|decimal.*|{integer}")
    )  # fmt: skip
    if not re.fullmatch(pattern, element):
        raise ValueError(f"{path}, field {name!r}: expected {wanted}, got {kind}")


class EpochOrder:
    """Which lists a rank sees in an epoch, and when (docs/streaming.md, "The order of an epoch").

    The row groups of all shards are permuted. Rank r of W takes the part r T / W to (r + 1) T / W of the T lists in
    that order. A part that is one short gets its own first list once more at the end, so that all ranks make the same
    number of steps; with fewer lists than ranks, a rank without a list gets one of another rank. The part is read in
    windows of `buffer` lists, each permuted.

    Args:
        rows: int64 [row groups], the lists of each, none 0.
        seed, epoch: what the order depends on.
        rank, world_size: the process and how many there are.
        buffer: lists of a window.
        shuffle: without, row groups and lists keep their stored order.
    """

    def __init__(
        self, rows: np.ndarray, seed: int, epoch: int, rank: int, world_size: int, buffer: int, shuffle: bool
    ) -> None:
        self.rank, self.buffer, self.shuffle = rank, buffer, shuffle
        self._entropy = [seed, epoch]
        groups = np.arange(len(rows))
        self._groups = np.random.default_rng(self._entropy).permutation(groups) if shuffle else groups
        self._rows = rows[self._groups]
        self._ends = np.cumsum(self._rows)
        total = int(self._ends[-1])
        self._start, self._stop = rank * total // world_size, (rank + 1) * total // world_size
        self._lists = math.ceil(total / world_size)
        self._filled = self._lists > self._stop - self._start
        self._fill = self._start if self._start < self._stop else rank % total

    @property
    def windows(self) -> int:
        """Number of windows."""
        return math.ceil(self._lists / self.buffer)

    def permutation(self, window: int) -> np.ndarray:
        """int64 [lists of the window]: the order in which its lists, numbered as `segments` reads them, are seen."""
        size = min(self.buffer, self._lists - window * self.buffer)
        order = np.arange(size)
        if not self.shuffle:
            return order
        own = size - (self._filled and window == self.windows - 1)  # what fills up stays last
        order[:own] = np.random.default_rng([*self._entropy, self.rank, window]).permutation(own)
        return order

    def segments(self, window: int) -> Iterator[Segment]:
        """What to read, from the first list of `window` to the end of the epoch."""
        yield from self._part(self._start + window * self.buffer, self._stop)
        if self._filled:
            yield from self._part(self._fill, self._fill + 1)

    def _part(self, start: int, stop: int) -> Iterator[Segment]:
        at = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            end = int(self._ends[at])
            begin = end - int(self._rows[at])
            upto = min(stop, end)
            yield Segment(int(self._groups[at]), start - begin, upto - begin)
            start, at = upto, at + 1


class StreamingLoader(BatchLoader):
    """Yields `ListBatch`es of lists that are read from Parquet shards as they are needed.

    The batches of an epoch are a pure function of (seed, epoch, rank, world_size, batch_size, buffer), see
    `EpochOrder`. Each process reads its part of the shards once, in Arrow's columns, and hands the rows of whole
    batches to its workers, which make lists of them and tokenise. Memory holds one window of `buffer` lists (twice
    that while the next is read) and the batches that are prepared.

    A run that resumes begins to read at the row group in which the window of its next batch begins.

    Args:
        index: the shards and the size of the shuffle buffer.
        ranker, batch_size, options: see `BatchLoader`.

    Raises:
        ValueError: while iterating, for damaged data or rows that make no list: names file, row and field.
    """

    def __init__(self, index: ShardIndex, ranker: Ranker, batch_size: int, **options: Any) -> None:
        super().__init__(len(index), ranker, batch_size, **options)
        self.index, self.buffer, self._content = index, index.buffer, index.digest
        self._make_lists = index.lists

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "buffer": self.buffer}

    def _batches(self, first: int) -> Iterator[pa.Table]:
        """The rows of batch number `first` and of those after it."""
        order = EpochOrder(
            self.index.rows, self.seed, self.epoch, self.rank, self.world_size, self.buffer, self.shuffle
        )
        window, skipped = divmod(first * self.batch_size, self.buffer)
        parts: list[pa.Table] = []
        missing = self.batch_size
        permutations = (order.permutation(number) for number in range(window, order.windows))
        for rows, permutation in _windows(self.index.read(order.segments(window)), permutations):
            left = permutation[skipped:]
            skipped = 0
            while len(left):
                taken, left = left[:missing], left[missing:]
                parts.append(rows.take(pa.array(taken)))
                missing -= len(taken)
                if not missing:
                    yield pa.concat_tables(parts)
                    parts, missing = [], self.batch_size
        if parts:
            yield pa.concat_tables(parts)


def _windows(
    batches: Iterator[pa.RecordBatch], permutations: Iterator[np.ndarray]
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Each permutation with as many rows as it is long."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for permutation in permutations:
        size = len(permutation)
        while rows < size:
            held.append(next(batches))
            rows += held[-1].num_rows
        over = rows - size
        last = held[-1]
        held[-1] = last.slice(0, last.num_rows - over)
        window = pa.Table.from_batches(held).combine_chunks()
        held, rows = ([last.slice(last.num_rows - over)], over) if over else ([], 0)
        del last
        yield window, permutation
        del window
