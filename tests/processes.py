"""Two processes of one test, forked: a fork costs none of the imports that a spawned process repeats."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["run_two"]


def run_two(work: Callable[..., None], *arguments: Any) -> None:
    """Runs `work(rank, *arguments)` with one thread in each of two forked processes, at most five minutes."""
    context: Any = torch.multiprocessing.start_processes(
        _with_one_thread, (work, arguments), 2, join=False, start_method="fork"
    )
    end = time.monotonic() + 300
    while not context.join(5):
        if time.monotonic() > end:
            for process in context.processes:
                process.kill()
            raise TimeoutError("the forked processes did not end")


def _with_one_thread(rank: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    work(rank, *arguments)
