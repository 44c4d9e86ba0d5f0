"""A few kills and full disks; `python -m tests.faults.interrupted` runs many."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import root


@pytest.mark.slow
def test_interrupted_commands() -> None:
    code = """
import sys
from tests.faults.interrupted import run
names = ["simulate", "convert", "log", "tokens", "teach"]
sys.exit(bool(run("kills", 5, names) + run("full", 5, names)))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
