"""The console scripts `lightning` and `crossjem`, one program."""

from crossjem_pl.cli.main import main

__all__ = ["main"]
