"""The loader of lists that are too many for the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from torch.utils.data import Dataset

from crossjem_pl.data.batches import BatchLoader, ListBatch, draw_and_collate
from crossjem_pl.data.sampler import ItemSampler
from crossjem_pl.data.shard_index import ListStream, ShardIndex
from crossjem_pl.data.stream_order import EpochOrder
from crossjem_pl.rankers.base import Ranker

__all__ = ["StreamingLoader"]


class StreamingLoader(BatchLoader):
    """Yields `ListBatch`es of lists that are read from Parquet shards as they are needed.

    The batches of an epoch are a pure function of (seed, epoch, rank, world_size, batch_size, buffer), see
    `EpochOrder`; the number of workers does not enter. Each process reads its part of the shards once, in Arrow's
    columns, and hands the rows of whole batches to its workers, which make lists of them and tokenise: so no worker
    reads what another one reads, none has more to do than the others, and one shard serves any number of them.
    Memory holds one window of `buffer` lists (twice that while the next is read) and the batches that are prepared.

    A run that resumes begins to read at the row group in which the window of its next batch begins. The position
    holds for the same shards and settings only; with others it is refused, not misread.

    Args:
        stream: the shards and the size of the shuffle buffer.
        ranker: whose `collate` makes the batches.
        batch_size: lists per batch and rank.
        sampler, shuffle, seed, rank, world_size, num_workers, pin_memory: as in `ListLoader`.

    Raises:
        ValueError: while iterating, for damaged data or rows that make no list: names file, row and field.
    """

    def __init__(self, stream: ListStream, ranker: Ranker, batch_size: int, **options: Any) -> None:
        super().__init__(ranker, batch_size, **options)
        self.index, self.buffer = stream.index, stream.buffer

    @property
    def total(self) -> int:
        return len(self.index)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "batches": len(self), "stream": self._settings()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues the epoch at the position of `state`.

        Raises:
            ValueError: names the setting that differs, if the position is in mid-epoch.
        """
        handed_out = int(state.get("handed_out", 0))
        if handed_out in (0, state.get("batches")):
            self._start = 0
            return
        before = state.get("stream", {})
        for name, value in self._settings().items():
            if before.get(name) != value:
                raise ValueError(
                    f"the checkpoint is in the middle of an epoch of other batches: {name} was "
                    f"{before.get(name)!r} and is {value!r} now; resume with the same shards and settings, or "
                    "begin anew from the model with --model.weights"
                )
        self._start = handed_out

    def _settings(self) -> dict[str, Any]:
        """What a position in an epoch depends on, beside the epoch."""
        return {
            "shards": self.index.digest,
            "lists": self.total,
            "batch_size": self.batch_size,
            "buffer": self.buffer,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "world_size": self.world_size,
        }

    def _dataset(self) -> Dataset[ListBatch]:
        return _RowBatches(self.index, self.ranker, self.item_sampler, self.epoch)

    def _batches(self, first: int) -> Iterator[pa.Table]:
        """The rows of batch number `first` and of those after it."""
        order = EpochOrder(
            self.index.rows, self.seed, self.epoch, self.rank, self.world_size, self.buffer, self.shuffle
        )
        window, skipped = divmod(first * self.batch_size, self.buffer)
        parts: list[pa.Table] = []
        missing = self.batch_size
        permutations = (order.permutation(number) for number in range(window, order.windows))
        for rows, permutation in _windows(self.index.read(order.segments(window)), permutations):
            left = permutation[skipped:]
            skipped = 0
            while len(left):
                taken, left = left[:missing], left[missing:]
                parts.append(rows.take(pa.array(taken)))
                missing -= len(taken)
                if not missing:
                    yield pa.concat_tables(parts)
                    parts, missing = [], self.batch_size
        if parts:
            yield pa.concat_tables(parts)


def _windows(
    batches: Iterator[pa.RecordBatch], permutations: Iterator[np.ndarray]
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Each permutation with as many rows as it is long."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for permutation in permutations:
        size = len(permutation)
        while rows < size:
            held.append(next(batches))
            rows += held[-1].num_rows
        over = rows - size
        last = held[-1]
        held[-1] = last.slice(0, last.num_rows - over)
        window = pa.Table.from_batches(held).combine_chunks()
        held, rows = ([last.slice(last.num_rows - over)], over) if over else ([], 0)
        del last
        yield window, permutation
        del window


class _RowBatches(Dataset[ListBatch]):
    """Asked for the rows of a batch, makes its lists and tokenises them."""

    def __init__(self, index: ShardIndex, ranker: Ranker, sampler: ItemSampler | None, epoch: int) -> None:
        self.index, self.ranker, self.sampler, self.epoch = index, ranker, sampler, epoch

    def __getitem__(self, rows: pa.Table) -> ListBatch:
        return draw_and_collate(self.index.lists(rows), self.ranker, self.sampler, self.epoch)
