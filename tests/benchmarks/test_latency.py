"""The benchmark programs run and write what they say. Speed itself is not a matter of tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny_models
from tests.conftest import root


@pytest.mark.slow
def test_latency_measures_all_rankers_on_the_same_lists(tmp_path: Path) -> None:
    encoder = tiny_models.write_bert(tmp_path / "bert", positions=512)
    program = [sys.executable, "benchmarks/latency.py", "--encoder", str(encoder), "--items", "5", "120"]
    command = [*program, "--rounds", "2", "--out", str(tmp_path / "out")]
    subprocess.run(command, check=True, cwd=root(), env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads((tmp_path / "out" / "latency.json").read_text())["milliseconds"]
    assert set(found) == {"5", "120"}
    for times in found.values():
        assert set(times) == {"crossjem", "crossjem-best", "monobert"}
        assert all(len(values) == 2 and min(values) > 0 for values in times.values())
    assert (tmp_path / "out" / "latency.png").stat().st_size > 1000
