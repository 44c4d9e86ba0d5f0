"""How long work reports its progress: the command line passes rich's `track`, tests pass nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

__all__ = ["Track", "untracked"]

T = TypeVar("T")


class Track(Protocol):
    """Passes an iterable through while it shows how far it is; `rich.progress.track` is one."""

    def __call__(self, sequence: Iterable[T], description: str, total: float | None) -> Iterable[T]: ...


def untracked(sequence: Iterable[T], description: str, total: float | None) -> Iterable[T]:
    """A `Track` that shows nothing."""
    return sequence
