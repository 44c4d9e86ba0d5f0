"""Rows of unequal length in one flat array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ints", "Ragged"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    """`rows` integer sequences stored end to end.

    Args:
        values: int64 [total], all rows one after the other.
        lengths: int64 [rows], how many values each row has.
    """

    values: Ints
    lengths: Ints

    @classmethod
    def from_rows(cls, rows: list[Ints]) -> Ragged:
        lengths = np.fromiter((len(r) for r in rows), dtype=np.int64, count=len(rows))
        values = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
        return cls(values.astype(np.int64, copy=False), lengths)

    @property
    def starts(self) -> Ints:
        """int64 [rows]: where each row begins in `values`."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def row_of(self) -> Ints:
        """int64 [total]: the row that each value belongs to."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def position_of(self) -> Ints:
        """int64 [total]: the position of each value inside its row."""
        return np.arange(len(self.values)) - np.repeat(self.starts, self.lengths)

    def row(self, i: int) -> Ints:
        start = int(self.lengths[:i].sum())
        return self.values[start : start + int(self.lengths[i])]

    def slice(self, start: int, stop: int) -> Ragged:
        """Rows start..stop-1, without a copy."""
        first = int(self.lengths[:start].sum())
        lengths = self.lengths[start:stop]
        return Ragged(self.values[first : first + int(lengths.sum())], lengths)

    def sorted_by(self, keys: Ints) -> Ragged:
        """The same rows, each with its values in ascending order of `keys[value]`; equal keys keep their order."""
        return Ragged(self.values[np.lexsort((keys[self.values], self.row_of))], self.lengths)

    def padded(self, fill: int) -> Ints:
        """int64 [rows, max(lengths)], short rows filled up with `fill`."""
        out = np.full((len(self.lengths), int(self.lengths.max(initial=0))), fill, dtype=np.int64)
        out[self.row_of, self.position_of] = self.values
        return out
