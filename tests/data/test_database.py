"""Temporary tables: exact summaries, and more data than memory."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from crossjem_pl.data import database
from crossjem_pl.data.database import Database


@pytest.mark.parametrize(
    "values", [np.random.default_rng(0).integers(0, 30, 500), np.linspace(-3, 5, 20) ** 3]
)
def test_summaries_agree_with_numpy(values: np.ndarray) -> None:
    with Database({"numbers": "x DOUBLE"}) as database:
        assert database.summary("x", "numbers") is None
        for value in (None, *values.tolist()):
            database.add("numbers", value)
        found = database.summary("x", "numbers")
    assert found is not None
    assert found.mean == pytest.approx(values.mean())
    expected = np.quantile(values, [0.05, 0.5, 0.95], method="inverted_cdf").tolist()
    assert [found.p5, found.p50, found.p95] == expected
    assert (found.count, found.smallest, found.largest) == (len(values), values.min(), values.max())


def test_tables_larger_than_the_memory_are_sorted_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MEMORY", "300MB")
    with Database({"texts": "x DOUBLE, text VARCHAR"}, tmp_path) as tables:
        tables.execute(
            "INSERT INTO texts SELECT random(), repeat(md5(i::VARCHAR), 32) FROM range(330000) t(i)"
        )
        count, before = 0, 0.0
        for x, text in tables.rows("SELECT x, text FROM texts ORDER BY x"):
            assert x >= before
            assert len(text) == 1024
            count, before = count + 1, x
        assert sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()) > 0
    assert count == 330_000
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", "pass"])
    killed.wait()
    dead, here = f"{killed.pid}-a.tmp", f"{zlib.crc32(platform.node().encode()):08x}"
    kept = {f".tables.{here}-{os.getpid()}-b.tmp", f".tables.00000000-{dead}", f".other.{here}-{dead}"}
    for name in (f".tables.{here}-{dead}", *kept):
        (tmp_path / name).mkdir()
    with Database({"numbers": "x DOUBLE"}, tmp_path):
        pass
    assert {path.name for path in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_full_disk_is_named(tmp_path: Path, size: int) -> None:
    def write() -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            with Database({"numbers": "x DOUBLE"}, tmp_path) as tables:
                tables.execute("INSERT INTO numbers SELECT random() FROM range(200000)")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with pytest.raises(OSError, match=rf"^{tmp_path}: .*File too large"):
        write()
    assert not list(tmp_path.iterdir())
