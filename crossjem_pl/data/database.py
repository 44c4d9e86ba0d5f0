"""Temporary tables that may be larger than the memory: grouping, sorting and joining by DuckDB."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

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
        folder: where the temporary folder is made; None: where the system makes temporary files. What killed processes
            left there is removed.
    """

    def __init__(self, tables: Mapping[str, str], folder: Path | None = None) -> None:
        for leftover in Path(folder or tempfile.gettempdir()).glob(".crossjem-*-*"):
            if not _is_running(leftover.name.split("-")[1]):
                shutil.rmtree(leftover, ignore_errors=True)
        self._folder = tempfile.mkdtemp(prefix=f".crossjem-{os.getpid()}-", dir=folder)
        self._connection = duckdb.connect(f"{self._folder}/tables.duckdb")
        self._connection.execute(f"SET memory_limit = '{MEMORY}'")
        self._connection.execute(f"SET threads = {min(THREADS, os.cpu_count() or 1)}")
        self._connection.execute("SET preserve_insertion_order = false")
        self._held: dict[str, list[tuple[Any, ...]]] = {}
        for name, columns in tables.items():
            self._connection.execute(f"CREATE TABLE {name} ({columns})")
            self._held[name] = []

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
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, table: str) -> None:
        held = self._held[table]
        if not held:
            return
        columns = [pa.array(column) for column in zip(*held, strict=True)]
        self._connection.register("held", pa.table(columns, [f"c{i}" for i in range(len(columns))]))
        self._connection.execute(f"INSERT INTO {table} SELECT * FROM held")
        self._connection.unregister("held")
        held.clear()


def _is_running(pid: str) -> bool:
    """Whether there is a process of this number; True where it cannot be told."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (ValueError, OSError):  # not a number, or another user's
        pass
    return True
