"""MEB, "make every feature binary": a sparse network over hashed n-grams and their crosses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, Ranker, init_arguments, item_mask, register
from crossjem_pl.rankers.sparse.hashing import Hashes, combined, word_hash
from crossjem_pl.rankers.sparse.words import Words
from crossjem_pl.text.ragged import Ints

__all__ = ["MEB", "FeatureBatch"]


class _Grams(NamedTuple):
    """Hashed n-grams of some texts, text after text: uint64 [grams] and int64 [texts], how many each has."""

    hashes: Hashes
    counts: Ints


@dataclass
class FeatureBatch(Batch):
    """The binary features that are on, by group and item.

    Args:
        features: int64 [features], rows of the embedding table.
        offsets: int64 [groups * I], where the features of each (group, item) begin, group after group.
        item_slot: int64 [I], place of each item in the flattened [lists, max_items].
    """

    features: Tensor
    offsets: Tensor
    item_slot: Tensor


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
    here there is one field. Words are those of `Words`; a text without any has no features.

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
        self.words = Words()
        self.table = nn.EmbeddingBag(buckets, width, mode="sum")
        nn.init.normal_(self.table.weight, std=0.1)
        self.groups = 2 * ngrams + ngrams**2
        self.network = nn.Sequential(nn.Linear(self.groups * width, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def collate(self, lists: Sequence[RankingList]) -> FeatureBatch:
        mask = item_mask(lists)
        queries, cut_queries = self._grams([one.query for one in lists], self.max_query_words)
        items, cut_items = self._grams([text for one in lists for text in one.items], self.max_item_words)
        list_of_item = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
        of_item = [_taken(grams, list_of_item) for grams in queries]
        groups = [*of_item, *items, *(_crossed(q, i) for q in of_item for i in items)]
        rows, counts = zip(*(self._buckets(grams, salt) for salt, grams in enumerate(groups)), strict=True)
        sizes = np.concatenate(counts)
        return FeatureBatch(
            item_mask=mask,
            truncated_items=cut_items,
            truncated_queries=cut_queries,
            features=torch.from_numpy(np.concatenate(rows)),
            offsets=torch.from_numpy(np.cumsum(sizes) - sizes),
            item_slot=torch.from_numpy(np.flatnonzero(mask.numpy().ravel())),
        )

    def forward(self, batch: FeatureBatch) -> Tensor:
        with torch.autocast(batch.features.device.type, enabled=False):
            sums = self.table(batch.features, batch.offsets).view(self.groups, len(batch.item_slot), -1)
            scores = self.network(sums.transpose(0, 1).flatten(1))[:, 0].float()
        flat = torch.zeros(batch.item_mask.numel(), dtype=torch.float32, device=scores.device)
        return flat.index_copy(0, batch.item_slot, scores).view(batch.item_mask.shape)

    def save_assets(self, folder: str) -> dict[str, Any]:
        return {}

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        return cls(**init_args)

    def _grams(self, texts: list[str], limit: int) -> tuple[list[_Grams], int]:
        """The n-grams of every text for n = 1 to `ngrams`, and how many texts were cut to `limit` words."""
        rows = [[word_hash(word) for word in self.words(text)] for text in texts]
        truncated = sum(len(row) > limit for row in rows)
        words = np.array([value for row in rows for value in row[:limit]], dtype=np.uint64)
        lengths = np.array([min(len(row), limit) for row in rows], dtype=np.int64)
        ends = np.repeat(np.cumsum(lengths), lengths)
        grams = [_Grams(words, lengths)]
        hashes = words
        for n in range(2, self.ngrams + 1):
            hashes = combined(hashes[: max(len(words) - n + 1, 0)], words[n - 1 :])
            inside = np.arange(len(hashes)) + n <= ends[: len(hashes)]
            grams.append(_Grams(hashes[inside], np.maximum(lengths - n + 1, 0)))
        return grams, truncated

    def _buckets(self, grams: _Grams, salt: int) -> tuple[Ints, Ints]:
        """The distinct rows of each text's features, and how many there are of each text."""
        text = np.repeat(np.arange(len(grams.counts)), grams.counts)
        row = (combined(grams.hashes, salt) % np.uint64(self.buckets)).astype(np.int64)
        keys = np.unique(text * self.buckets + row)
        return keys % self.buckets, np.bincount(keys // self.buckets, minlength=len(grams.counts))


def _taken(grams: _Grams, index: Ints) -> _Grams:
    """The n-grams of the texts at `index`, repeats allowed."""
    counts = grams.counts[index]
    return _Grams(grams.hashes[_places(grams.counts, index)], counts)


def _crossed(first: _Grams, second: _Grams) -> _Grams:
    """Every pair (n-gram of text i of `first`, n-gram of text i of `second`)."""
    counts = first.counts * second.counts
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    length = np.repeat(second.counts, counts)
    start_first = np.repeat(np.cumsum(first.counts) - first.counts, counts)
    start_second = np.repeat(np.cumsum(second.counts) - second.counts, counts)
    return _Grams(
        combined(first.hashes[start_first + within // length], second.hashes[start_second + within % length]),
        counts,
    )


def _places(counts: Ints, index: Ints) -> Ints:
    """Flat places of the values of the rows at `index`."""
    chosen = counts[index]
    starts = (np.cumsum(counts) - counts)[index]
    return np.repeat(starts - (np.cumsum(chosen) - chosen), chosen) + np.arange(int(chosen.sum()))
