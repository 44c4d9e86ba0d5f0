"""Work in a fresh process: its peak memory is its own, and nothing is warm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["fresh", "specification"]

_ROOT = Path(__file__).parents[2]


def fresh(module: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Runs `python -m <module> <spec as JSON>` and reads the JSON object on its last line.

    Raises:
        RuntimeError: if it fails, with the end of what it said.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(spec)], cwd=_ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{module} failed on {dict(spec)}:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def specification() -> dict[str, Any]:
    """The specification that `fresh` gave this process."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    return spec
