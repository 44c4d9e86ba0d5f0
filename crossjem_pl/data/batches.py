"""Batches of ranking lists: drawing the items of a step, and loaders that are reproducible and resume in mid-epoch."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from crossjem_pl.hashing import content_sha256
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, Ranker, TensorRecord

__all__ = ["BatchLoader", "ItemSampler", "ListBatch", "ListLoader", "collate_lists"]

MakeLists = Callable[[Any], list[tuple[int, RankingList]]]


@dataclass
class ListBatch(TensorRecord):
    """What a training or evaluation step gets.

    Args:
        inputs: the ranker's own batch.
        labels: float32 [lists, max_items] with 0 on padding, or None if the lists have no labels.
        scores: float32 [lists, max_items], the teacher's, likewise.
        query_ids: the ids of the lists.
        item_ids: the ids of each list's items.
        items_left_out: items that were drawn but did not fit one pass.
    """

    inputs: Batch
    labels: Tensor | None
    scores: Tensor | None
    query_ids: list[str]
    item_ids: list[tuple[str, ...]]
    items_left_out: int


def collate_lists(lists: Sequence[RankingList], ranker: Ranker, items_left_out: int = 0) -> ListBatch:
    """One batch of `lists`, tokenised by `ranker`.

    Raises:
        ValueError: if some lists have labels (or scores) and others do not.
    """
    inputs = ranker.collate(lists)
    return ListBatch(
        inputs=inputs,
        labels=_numbers(lists, "labels", inputs.item_mask.shape[1]),
        scores=_numbers(lists, "scores", inputs.item_mask.shape[1]),
        query_ids=[ranking_list.query_id for ranking_list in lists],
        item_ids=[ranking_list.item_ids for ranking_list in lists],
        items_left_out=items_left_out,
    )


def _numbers(lists: Sequence[RankingList], field: str, width: int) -> Tensor | None:
    rows = [getattr(ranking_list, field) for ranking_list in lists]
    if all(row is None for row in rows):
        return None
    out = torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        if row is None:
            raise ValueError(f"list {lists[i].query_id!r} has no {field}, others of its batch have")
        out[i, : len(row)] = torch.tensor(row)
    return out


class ItemSampler:
    """Draws the items that a training step sees; the draw is a pure function of (seed, epoch, list).

    One positive (label above 0), drawn at random, is always kept where the list has one; the others are drawn
    uniformly. If the drawn items do not fit one pass of the ranker, the last drawn are left out, so that no token of a
    drawn item is ever dropped. What the draw leaves out returns in other epochs.

    Args:
        n_items: how many items to draw; None keeps all that fit.
        seed: seed of the draws.
    """

    def __init__(self, n_items: int | None, seed: int) -> None:
        if n_items is not None and n_items < 2:
            raise ValueError(f"n_items must be at least 2, got {n_items}")
        self.n_items, self.seed = n_items, seed

    def draw(
        self, ranking_list: RankingList, ranker: Ranker, epoch: int, index: int
    ) -> tuple[RankingList, int]:
        """The list with the drawn items, and how many of the N did not fit one pass."""
        wanted = min(self.n_items or len(ranking_list), len(ranking_list))
        order = np.random.default_rng([self.seed, epoch, index]).permutation(len(ranking_list)).tolist()
        labels = ranking_list.labels
        first = next((i for i in order if labels is not None and labels[i] > 0), order[0])
        order.remove(first)
        drawn = ranking_list.select([first, *order][:wanted])
        fits = ranker.one_pass_items(drawn)
        return (drawn, 0) if fits == wanted else (drawn.select(range(fits)), wanted - fits)


class BatchLoader(ABC):
    """Yields the `ListBatch`es of one rank and counts those handed out, so that a run resumes in mid-epoch.

    A subclass says what the batches of an epoch are, as a pure function of the seed and the epoch.

    Args:
        total: lists of all ranks.
        ranker: whose `collate` makes the batches.
        batch_size: lists per batch and rank.
        sampler: draws items (training), or None for all items (evaluation).
        shuffle: whether epochs are shuffled.
        seed: seed of the order.
        rank, world_size: this process and how many there are.
        num_workers: processes that tokenise; 0 tokenises in this one.
        pin_memory: whether batches are pinned for a faster copy to a GPU.
    """

    def __init__(
        self,
        total: int,
        ranker: Ranker,
        batch_size: int,
        *,
        sampler: ItemSampler | None = None,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        self.total, self.ranker, self.batch_size = total, ranker, batch_size
        self.item_sampler, self.shuffle, self.seed = sampler, shuffle, seed
        self.rank, self.world_size = rank, world_size
        self.num_workers, self.pin_memory = num_workers, pin_memory
        self.epoch = 0
        self._make_lists: MakeLists = list
        """(position in the source, list) of each list of what `_batches` yields; called in the workers."""
        self._content = ""
        """Digest of the lists, by which a run that resumes knows them."""
        self._handed_out = 0
        self._start = 0

    @abstractmethod
    def _batches(self, first: int) -> Iterable[Any]:
        """What batch number `first` of the epoch is made of, and those after it; stays in this process."""

    def __len__(self) -> int:
        return math.ceil(math.ceil(self.total / self.world_size) / self.batch_size)

    @property
    def sampler(self) -> Self:
        """The object whose `set_epoch` the trainer calls before every epoch; it looks at both names."""
        return self

    batch_sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def resumes(self) -> bool:
        """Whether the next epoch begins at a position that was loaded."""
        return self._start > 0

    def state_dict(self) -> dict[str, Any]:
        """The position in the epoch, and what it depends on."""
        return {"handed_out": self._handed_out, "batches": len(self), "settings": self._settings()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues the epoch at the position of `state`; one at the end of an epoch fits any lists and settings.

        Raises:
            ValueError: names what differs, the content of the lists or a setting, if the position is in mid-epoch.
        """
        handed_out = int(state.get("handed_out", 0))
        if handed_out in (0, state.get("batches")):
            self._start = 0
            return
        before = state.get("settings", {})
        for name, value in self._settings().items():
            if before.get(name) != value:
                raise ValueError(
                    f"the checkpoint is in the middle of an epoch of other batches: {name} was "
                    f"{before.get(name)!r} and is {value!r} now; resume with the same lists and settings, or "
                    "begin anew from the model with --model.weights"
                )
        self._start = handed_out

    def _settings(self) -> dict[str, Any]:
        """What a position in an epoch depends on, beside the epoch."""
        names = ("batch_size", "seed", "shuffle", "world_size")
        n_items = None if self.item_sampler is None else self.item_sampler.n_items
        own = {name: getattr(self, name) for name in names}
        return {"lists": self.total, "n_items": n_items, **own, "content": self._content}

    def __iter__(self) -> Iterator[ListBatch]:
        self._handed_out, self._start = self._start, 0
        loader: DataLoader[ListBatch] = DataLoader(
            _DrawnBatches(self),
            batch_size=None,
            sampler=self._batches(self._handed_out),
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            generator=torch.Generator().manual_seed(self.seed),  # leaves the global generator alone
            worker_init_fn=_quiet_tokenizers,
        )
        for batch in loader:
            self._handed_out += 1
            yield batch


class ListLoader(BatchLoader):
    """Yields `ListBatch`es of lists held in memory: `lists` are all lists of the stage, for the rest see `BatchLoader`.

    Every rank takes its slice of the order, the last ones filled up with lists from the start so that all ranks make
    the same number of steps (an evaluation counts each query once).
    """

    def __init__(self, lists: Sequence[RankingList], ranker: Ranker, batch_size: int, **options: Any) -> None:
        super().__init__(len(lists), ranker, batch_size, **options)
        self.lists = lists
        # now, since lists that a run replaces are replaced again when it resumes
        self._content = content_sha256(one.content() for one in lists)[:16] if self.shuffle else ""

    def _batches(self, first: int) -> Iterator[list[tuple[int, RankingList]]]:
        """Lists, not positions: workers hold no copy, so lists that were replaced meanwhile reach the next batches."""
        order = np.arange(len(self.lists))
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(order)
        total = math.ceil(len(order) / self.world_size) * self.world_size
        own = np.resize(order, total)[self.rank :: self.world_size].tolist()
        for i in range(first * self.batch_size, len(own), self.batch_size):
            yield [(position, self.lists[position]) for position in own[i : i + self.batch_size]]


class _DrawnBatches(Dataset[ListBatch]):
    """Makes the lists of a batch, draws items from them and tokenises; works in the workers."""

    def __init__(self, loader: BatchLoader) -> None:
        self.make_lists, self.ranker = loader._make_lists, loader.ranker
        self.sampler, self.epoch = loader.item_sampler, loader.epoch

    def __getitem__(self, batch: Any) -> ListBatch:
        lists, left_out = [], 0
        for position, ranking_list in self.make_lists(batch):
            if self.sampler is not None:
                ranking_list, too_many = self.sampler.draw(ranking_list, self.ranker, self.epoch, position)
                left_out += too_many
            lists.append(ranking_list)
        return collate_lists(lists, self.ranker, left_out)


def _quiet_tokenizers(_: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
