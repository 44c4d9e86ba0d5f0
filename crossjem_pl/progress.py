"""Progress of long work: a bar on a terminal or in a notebook, elsewhere a line a minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from datetime import timedelta
from typing import TypeVar

__all__ = ["track"]

T = TypeVar("T")


def track(
    items: Iterable[T], description: str, total: int | None = None, seconds: float = 60.0
) -> Iterator[T]:
    """The items, with what is done of them shown on standard error.

    Args:
        items: what is worked through.
        description: what happens to them.
        total: how many there are; None for their length, if they have one.
        seconds: between two lines where there is no terminal.
    """
    from rich.console import Console
    from rich.progress import track as with_bar

    if total is None and isinstance(items, Sized):
        total = len(items)
    console = Console(stderr=True)
    if console.is_terminal or console.is_jupyter:
        yield from with_bar(items, description, total, console=console, show_speed=False)
        return
    start = told = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if done and now - told >= seconds:
            told = now
            rest = ""
            if total is not None:
                left = timedelta(seconds=round((now - start) / done * (total - done)))
                rest = f" of {total:,}, {left} left"
            print(f"{description}: {done:,}{rest}", file=sys.stderr, flush=True)
        yield item
