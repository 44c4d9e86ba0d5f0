"""The console that tables are printed on."""

from __future__ import annotations

from rich.console import Console

__all__ = ["wide_console"]


def wide_console() -> Console:
    """The terminal as it is; 140 columns where the output goes to a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=140)
