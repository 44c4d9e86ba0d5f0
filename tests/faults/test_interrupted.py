"""A few kills and full disks; `python -m tests.faults.interrupted` runs many."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import root


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kills", "full"])
def test_interrupted_commands(how: str) -> None:
    names = ["simulate", "convert", "log", "tokens", "teach"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.interrupted", how, "5", *names],
        cwd=root(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
