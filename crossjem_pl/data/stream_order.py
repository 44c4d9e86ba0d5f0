"""The order of a streamed epoch: a pure function of (seed, epoch), known before any list is read."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from crossjem_pl.data.shard_index import Segment

__all__ = ["EpochOrder"]


class EpochOrder:
    """Which lists a rank sees in an epoch, and when.

    The row groups of all shards are permuted. Rank r of W takes the contiguous part r T / W to (r + 1) T / W of the T
    lists in that order (row groups are cut at the borders), so that every list is in one part and the parts differ by
    one list at most. A part that is one short gets its own first list once more at the end, so that all ranks make
    the same number of steps; with fewer lists than ranks, a rank without a list gets one of another rank.

    The part is read front to back in windows of `buffer` lists, each permuted: a list moves by less than one window
    from where its row group puts it, which is anywhere in the epoch.

    Args:
        rows: int64 [row groups], the lists of each, none 0.
        seed, epoch: what the order depends on.
        rank, world_size: the process and how many there are.
        buffer: lists of a window.
        shuffle: without, row groups and lists keep their stored order.
    """

    def __init__(
        self,
        rows: np.ndarray,
        seed: int,
        epoch: int,
        rank: int,
        world_size: int,
        buffer: int,
        shuffle: bool,
    ) -> None:
        self.rank, self.buffer, self.shuffle = rank, buffer, shuffle
        self._entropy = [seed, epoch]
        groups = np.arange(len(rows))
        self._groups = np.random.default_rng(self._entropy).permutation(groups) if shuffle else groups
        self._rows = rows[self._groups]
        self._ends = np.cumsum(self._rows)
        total = int(self._ends[-1])
        self._start, self._stop = rank * total // world_size, (rank + 1) * total // world_size
        self._lists = math.ceil(total / world_size)
        self._filled = self._lists > self._stop - self._start
        self._fill = self._start if self._start < self._stop else rank % total

    def __len__(self) -> int:
        """Lists of this rank, the one that fills up included: the same for every rank."""
        return self._lists

    @property
    def windows(self) -> int:
        """Number of windows."""
        return math.ceil(self._lists / self.buffer)

    def permutation(self, window: int) -> np.ndarray:
        """int64 [lists of the window]: the order in which its lists, numbered as `segments` reads them, are seen."""
        size = min(self.buffer, self._lists - window * self.buffer)
        order = np.arange(size)
        if not self.shuffle:
            return order
        own = size - (self._filled and window == self.windows - 1)  # what fills up stays last
        order[:own] = np.random.default_rng([*self._entropy, self.rank, window]).permutation(own)
        return order

    def segments(self, window: int) -> Iterator[Segment]:
        """What to read, from the first list of `window` to the end of the epoch."""
        yield from self._part(self._start + window * self.buffer, self._stop)
        if self._filled:
            yield from self._part(self._fill, self._fill + 1)

    def _part(self, start: int, stop: int) -> Iterator[Segment]:
        at = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            end = int(self._ends[at])
            begin = end - int(self._rows[at])
            upto = min(stop, end)
            yield Segment(int(self._groups[at]), start - begin, upto - begin)
            start, at = upto, at + 1
