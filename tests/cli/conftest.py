from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from crossjem_pl.cli import main


class Ran(NamedTuple):
    """What a command did: its exit status and what it printed."""

    status: int
    out: str
    err: str


@pytest.fixture
def crossjem(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs the command of these words, texts or paths."""

    def run(*words: object) -> Ran:
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        return Ran(status, *capsys.readouterr())

    return run
