"""Rows of unequal length in one flat array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ints", "Ragged", "ranges", "side_by_side"]

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
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum())), lengths)

    @classmethod
    def joined(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts, one part after the other; at least one part."""
        if len(parts) == 1:
            return parts[0]
        return cls(np.concatenate([p.values for p in parts]), np.concatenate([p.lengths for p in parts]))

    @cached_property
    def starts(self) -> Ints:
        """int64 [rows]: where each row begins in `values`."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def row_of(self) -> Ints:
        """int64 [total]: the row that each value belongs to."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def position_of(self) -> Ints:
        """int64 [total]: the position of each value inside its row."""
        return np.arange(len(self.values)) - np.repeat(self.starts, self.lengths)

    def row(self, i: int) -> Ints:
        """The values of row `i`, without a copy."""
        return self.values[self.starts[i] : self.starts[i] + self.lengths[i]]

    def slice(self, start: int, stop: int) -> Ragged:
        """Rows start..stop-1, without a copy."""
        first = int(self.lengths[:start].sum())
        lengths = self.lengths[start:stop]
        return Ragged(self.values[first : first + int(lengths.sum())], lengths)

    def take(self, index: Ints) -> Ragged:
        """The rows at `index` int64 [n], in that order, repeats allowed."""
        lengths = self.lengths[index]
        return Ragged(self.values[ranges(self.starts[index], lengths)], lengths)

    def merged(self, counts: Ints) -> Ragged:
        """The first `counts[0]` rows as one, the next `counts[1]` as one, ...: int64 [n] that sum to the rows."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])[np.cumsum(counts)]
        return Ragged(self.values, np.diff(ends, prepend=0))

    def cut(self, limit: int) -> tuple[Ragged, int]:
        """Each row's first `limit` values, and how many rows were longer."""
        longer = int(np.count_nonzero(self.lengths > limit))
        if not longer:
            return self, 0
        return Ragged(self.values[self.position_of < limit], np.minimum(self.lengths, limit)), longer

    def sorted_by(self, keys: Ints) -> Ragged:
        """The same rows, each with its values in ascending order of `keys[value]`; equal keys keep their order."""
        return Ragged(self.values[np.lexsort((keys[self.values], self.row_of))], self.lengths)

    def padded(self, fill: int) -> Ints:
        """int64 [rows, max(lengths)], short rows filled up with `fill`."""
        out = np.full((len(self.lengths), int(self.lengths.max(initial=0))), fill, dtype=np.int64)
        out[self.row_of, self.position_of] = self.values
        return out


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """The numbers from each start on, so many as its length says, one range after the other."""
    return np.arange(int(lengths.sum())) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)


def side_by_side(*pieces: Ragged | Sequence[int]) -> Ragged:
    """Row i = the pieces' rows i, one after the other; a plain sequence of ids is the same in every row."""
    rows = next(len(piece.lengths) for piece in pieces if isinstance(piece, Ragged))
    ragged = [
        piece
        if isinstance(piece, Ragged)
        else Ragged(np.tile(np.asarray(piece, dtype=np.int64), rows), np.full(rows, len(piece)))
        for piece in pieces
    ]
    lengths = np.sum([piece.lengths for piece in ragged], axis=0)
    values = np.empty(int(lengths.sum()), dtype=np.int64)
    start = np.cumsum(lengths) - lengths
    for piece in ragged:
        values[start[piece.row_of] + piece.position_of] = piece.values
        start = start + piece.lengths
    return Ragged(values, lengths)
