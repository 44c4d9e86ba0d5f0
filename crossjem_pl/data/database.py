"""Temporary tables that may be larger than the memory: grouping, sorting and joining by DuckDB."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from crossjem_pl.files import scratch_folder

__all__ = ["Database", "Summary"]

BATCH = 50_000
MEMORY = "1GB"
THREADS = 4  # each needs memory of its own for sorting


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, extremes and quantiles. A quantile is the smallest value that reaches its share of the values."""

    count: int
    mean: float
    smallest: float
    p5: float
    p50: float
    p95: float
    largest: float


class Database:
    """Tables in temporary files, which `with` removes at its end; what does not fit into `MEMORY` is on the disk.

    Args:
        tables: the columns of each table with their DuckDB types: {"lists": "number BIGINT, query VARCHAR"}.
        folder: where the temporary folder is made; None: where the system makes temporary files.

    Raises:
        OSError: at either end of the block, naming the folder, if the tables could not be written or read.
    """

    def __init__(self, tables: Mapping[str, str], folder: Path | None = None) -> None:
        self._tables, self._folder = tables, Path(folder or tempfile.gettempdir())
        self._held: dict[str, list[tuple[Any, ...]]] = {name: [] for name in tables}

    def add(self, table: str, *values: Any) -> None:
        """Adds a row."""
        held = self._held[table]
        held.append(values)
        if len(held) >= BATCH:
            self._write(table)

    def execute(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Runs a statement over all rows that were added; its result is read through a cursor of its own."""
        for table in self._held:
            self._write(table)
        return self._connection.cursor().execute(sql)

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, read as they are needed."""
        result = self.execute(sql)
        while rows := result.fetchmany(BATCH):
            yield from rows

    def record(self, sql: str) -> dict[str, Any]:
        """The first row of a query, by column."""
        result = self.execute(sql)
        (row,) = result.fetchmany(1)
        return dict(zip((name for name, *_ in result.description), row, strict=True))

    def value(self, sql: str) -> Any:
        """The first value of the first row of a query."""
        return next(self.rows(sql))[0]

    def summary(self, expression: str, source: str) -> Summary | None:
        """The distribution of a number over the rows of `source` (a table, with or without WHERE) where it is not null;
        None where there is no such row."""
        (found,) = self.rows(
            f"WITH counts AS (SELECT {expression} AS x, count(*) AS n FROM {source} GROUP BY x), "
            "reached AS (SELECT x, n, sum(n) OVER (ORDER BY x) / sum(n) OVER () AS share FROM counts "
            "WHERE x IS NOT NULL) SELECT sum(n)::BIGINT, sum(x * n) / sum(n), min(x), min(x) FILTER (share >= 0.05), "
            "min(x) FILTER (share >= 0.5), min(x) FILTER (share >= 0.95), max(x) FROM reached"
        )
        return None if found[0] is None else Summary(found[0], *map(float, found[1:]))

    def __enter__(self) -> Database:
        with ExitStack() as stack:
            stack.push(self._name_the_folder)
            scratch = stack.enter_context(scratch_folder(self._folder / "tables"))
            self._connection = duckdb.connect(scratch / "tables.duckdb")
            stack.callback(self._close)
            self._connection.execute(f"SET memory_limit = '{MEMORY}'")
            self._connection.execute(f"SET threads = {min(THREADS, os.cpu_count() or 1)}")
            self._connection.execute("SET preserve_insertion_order = false")
            for name, columns in self._tables.items():
                self._connection.execute(f"CREATE TABLE {name} ({columns})")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _close(self) -> None:
        with suppress(duckdb.Error):  # what could not be written is not needed any more
            self._connection.close()

    def _name_the_folder(self, _kind: object, error: object, _trace: object) -> None:
        if isinstance(error, duckdb.OperationalError):
            raise OSError(f"{self._folder}: {' '.join(str(error).split())}") from None

    def _write(self, table: str) -> None:
        held = self._held[table]
        if not held:
            return
        columns = [pa.array(column) for column in zip(*held, strict=True)]
        self._connection.register("held", pa.table(columns, [f"c{i}" for i in range(len(columns))]))
        self._connection.execute(f"INSERT INTO {table} SELECT * FROM held")
        self._connection.unregister("held")
        held.clear()
