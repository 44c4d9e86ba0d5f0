"""MEB, "make every feature binary": a sparse network over hashed n-grams and their crosses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crossjem_pl.hashing import text_key
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import (
    Batch,
    Ranker,
    init_arguments,
    item_mask,
    item_places,
    item_scores,
    register,
    tensors,
)
from crossjem_pl.rankers.sparse.bm25 import words
from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import Ints

__all__ = ["MEB"]


@register
class MEB(Ranker):
    """Sparse network on binary features, after Microsoft's "Make Every feature Binary" (Bing, 2021).

    Features of a (query, item) pair, in groups: the query's n-grams, the item's n-grams, and every pair
    (n-gram of the query, n-gram of the item), one group for each n and each pair of n's. A feature is on or
    off, however often it occurs. Each is hashed to one of `buckets` rows of one table E; with groups G_1,
    ..., G_g,

        f_j = MLP([sum over i in G_1 of E_i; ...; sum over i in G_g of E_i])   (one hidden layer, ReLU).

    As published, features of a group are summed, groups are concatenated, an embedding has 15 numbers and two
    dense layers follow; that system has 49 groups over several document fields and 135 billion parameters,
    here there is one field. Words are those of `words`; a text without any has no features.

    Args:
        buckets: rows of the table; n-grams that share one are told apart no more.
        width: size of an embedding.
        hidden: size of the hidden layer.
        ngrams: the longest n-grams.
        max_query_words: limit of a query; longer ones are cut and counted.
        max_item_words: limit of an item.

    Raises:
        ValueError: on an argument below 1.
    """

    name = "meb"

    def __init__(
        self,
        buckets: int = 1 << 20,
        width: int = 15,
        hidden: int = 128,
        ngrams: int = 2,
        max_query_words: int = 32,
        max_item_words: int = 32,
    ) -> None:
        init_args = init_arguments(locals())
        super().__init__(init_args)
        for field, value in init_args.items():
            if value < 1:
                raise ValueError(f"{field} must be at least 1, got {value}")
        self.buckets, self.ngrams = buckets, ngrams
        self.max_query_words, self.max_item_words = max_query_words, max_item_words
        self.table = nn.EmbeddingBag(buckets, width, mode="sum")
        nn.init.normal_(self.table.weight, std=0.1)
        self.groups = 2 * ngrams + ngrams**2
        self.network = nn.Sequential(nn.Linear(self.groups * width, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def collate(self, lists: Sequence[RankingList]) -> Batch:
        mask = item_mask(lists)
        queries, cut_queries = self._grams([one.query for one in lists], self.max_query_words)
        items, cut_items = self._grams([text for one in lists for text in one.items], self.max_item_words)
        list_of_item = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
        of_item = [grams.take(list_of_item) for grams in queries]
        groups = [*of_item, *items, *(_crossed(q, i) for q in of_item for i in items)]
        rows, counts = zip(*(self._buckets(grams, salt) for salt, grams in enumerate(groups)), strict=True)
        sizes = np.concatenate(counts)
        run = {"features": np.concatenate(rows), "offsets": np.cumsum(sizes) - sizes}
        places = item_places(mask, np.arange(len(list_of_item)))
        return Batch(mask, cut_items, cut_queries, runs=[tensors(run)], places=places)

    def forward(self, batch: Batch) -> Tensor:
        return item_scores([self._scores(**run) for run in batch.runs], batch)

    def _scores(self, features: Tensor, offsets: Tensor) -> Tensor:
        """float32 [items], from the binary features that are on.

        Args:
            features: int64 [features], rows of the embedding table.
            offsets: int64 [groups * items], where the features of each (group, item) begin, group after group.
        """
        with torch.autocast(features.device.type, enabled=False):
            sums = self.table(features, offsets).view(self.groups, len(offsets) // self.groups, -1)
            return self.network(sums.transpose(0, 1).flatten(1))[:, 0].float()

    def save_assets(self, folder: str) -> dict[str, Any]:
        return {}

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        return cls(**init_args)

    def _grams(self, texts: list[str], limit: int) -> tuple[list[Ragged], int]:
        """Hashed n-grams of every text for n = 1 to `ngrams`, and how many texts were cut to `limit` words."""
        rows = [[word_hash(word) for word in words(text)] for text in texts]
        single, truncated = Ragged.from_rows(rows).cut(limit)
        ends = np.repeat(single.starts + single.lengths, single.lengths)
        grams, hashes = [single], single.values
        for n in range(2, self.ngrams + 1):
            hashes = combined(hashes[: max(len(single.values) - n + 1, 0)], single.values[n - 1 :])
            inside = np.arange(len(hashes)) + n <= ends[: len(hashes)]
            grams.append(Ragged(hashes[inside], np.maximum(single.lengths - n + 1, 0)))
        return grams, truncated

    def _buckets(self, grams: Ragged, salt: int) -> tuple[Ints, Ints]:
        """The distinct rows of each text's features, and how many there are of each text."""
        row = (combined(grams.values, salt).view(np.uint64) % np.uint64(self.buckets)).astype(np.int64)
        keys = np.unique(grams.row_of * self.buckets + row)
        return keys % self.buckets, np.bincount(keys // self.buckets, minlength=len(grams.lengths))


def _crossed(first: Ragged, second: Ragged) -> Ragged:
    """Every pair (n-gram of text i of `first`, n-gram of text i of `second`), hashed."""
    pairs = Ragged(
        np.empty(int((first.lengths * second.lengths).sum()), np.int64), first.lengths * second.lengths
    )
    row, place = pairs.row_of, pairs.position_of
    a = first.values[first.starts[row] + place // second.lengths[row]]
    b = second.values[second.starts[row] + place % second.lengths[row]]
    return Ragged(combined(a, b), pairs.lengths)


@lru_cache(maxsize=1 << 20)
def word_hash(word: str) -> int:
    """A signed 64-bit hash of a word, the same in every process."""
    return text_key(word)


def combined(first: Ints, second: Ints | int) -> Ints:
    """A hash of each ordered pair, int64 [n]; `combined(a, b)` and `combined(b, a)` differ."""
    other = np.asarray(second, dtype=np.int64).view(np.uint64)
    return _mixed(first.view(np.uint64) + _mixed(other ^ np.uint64(0x9E3779B97F4A7C15))).view(np.int64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every bit depends on every bit."""
    values = np.atleast_1d(values)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
