"""BM25 with corpus statistics, the lexical baseline that every trained ranker has to beat; and words of a text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, Ranker, init_arguments, item_mask, register, tensors
from crossjem_pl.rankers.encoders import read_json

__all__ = ["BM25", "WordBatch", "words"]

_VOCABULARY = "vocabulary.json"
_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Lower-cased runs of letters, digits and underscores (Unicode `\\w+`), in the order of the text.

    >>> words("C++ vs. C#")
    ['c', 'vs', 'c']
    """
    return _WORD.findall(text.lower())


@dataclass
class WordBatch(Batch):
    """How often the items of every list have the words of its query.

    Args:
        term_id: int64 [lists, terms], the row of each distinct query word in the statistics, -1 if the corpus does not
            have it.
        term_count: float32 [lists, terms], how often the query has it, 0 on padding.
        item_count: float32 [lists, max_items, terms], how often each item has it.
        item_words: float32 [lists, max_items], number of words of each item, 0 on padding.
    """

    term_id: Tensor
    term_count: Tensor
    item_count: Tensor
    item_words: Tensor


@register
class BM25(Ranker):
    """Okapi BM25 (Robertson et al., 1994) as Lucene has it.

    f_j = sum over the query's words w, repeats included, of log(1 + (N - n + 0.5) / (n + 0.5)) * c / (c + K),
    K = k1 (1 - b + b l_j / l); c = count of w in item j, l_j = words of item j, l = average over the corpus,
    N = items of the corpus, n = items of the corpus that have w (1 for a word that none has).

    `index_items` learns N, n and l. Where it was never called, every list is its own corpus: N, n and l are
    those of the list's items. A text without words (see `words`) matches nothing: as an item it has none of
    the query's words, as a query it gives all items 0.

    Args:
        k1: how slowly repeats of a word saturate, at least 0.
        b: how much a long item is held back, between 0 (not at all) and 1.

    Raises:
        ValueError: on a number out of its bounds.
    """

    name = "bm25"
    trainable = False
    document_frequency: Tensor
    documents: Tensor
    word_total: Tensor

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        super().__init__(init_arguments(locals()))
        if not 0 <= k1 < float("inf") or not 0 <= b <= 1:
            raise ValueError(f"k1 must be at least 0 and b in [0, 1]; got {k1=}, {b=}")
        self.k1, self.b = k1, b
        self._set_statistics({}, 0, 0)

    def index_items(self, items: Iterable[str]) -> None:
        """Learns document frequencies, the number of items and their mean length, and forgets earlier ones.

        Raises:
            ValueError: if there are no items.
        """
        frequency: Counter[str] = Counter()
        documents = word_total = 0
        for text in items:
            found = words(text)
            frequency.update(set(found))
            documents += 1
            word_total += len(found)
        if not documents:
            raise ValueError("index_items got no items")
        self._set_statistics(dict(sorted(frequency.items())), documents, word_total)

    def collate(self, lists: Sequence[RankingList]) -> WordBatch:
        mask = item_mask(lists)
        queries = [Counter(words(one.query)) for one in lists]
        shape = (len(lists), max(1, *map(len, queries)))
        arrays: dict[str, Any] = {
            "term_id": np.full(shape, -1),
            "term_count": np.zeros(shape, dtype=np.float32),
            "item_words": np.zeros(mask.shape, dtype=np.float32),
            "item_count": np.zeros((*mask.shape, shape[1]), dtype=np.float32),
        }
        for i, (one, terms) in enumerate(zip(lists, queries, strict=True)):
            arrays["term_id"][i, : len(terms)] = [self._ids.get(word, -1) for word in terms]
            arrays["term_count"][i, : len(terms)] = list(terms.values())
            for j, text in enumerate(one.items):
                found = words(text)
                arrays["item_words"][i, j] = len(found)
                count = Counter(found)
                arrays["item_count"][i, j, : len(terms)] = [count[word] for word in terms]
        counts: dict[str, Any] = tensors(arrays)
        return WordBatch(mask, 0, 0, **counts)

    def forward(self, batch: WordBatch) -> Tensor:
        if int(self.documents):
            frequency = F.pad(self.document_frequency, (0, 1))[batch.term_id] * (batch.term_id >= 0)
            documents = self.documents.expand(len(frequency))
            average = self.word_total / documents
        else:
            frequency, documents = (batch.item_count > 0).sum(dim=1), batch.item_mask.sum(dim=1)
            average = batch.item_words.sum(dim=1) / documents
        n = frequency.clamp(min=1).float()
        weight = torch.log1p((documents[:, None].float() - n + 0.5) / (n + 0.5))
        relative = batch.item_words / average.clamp(min=1e-9)[:, None]
        norm = self.k1 * (1 - self.b + self.b * relative)[:, :, None]
        gain = batch.item_count / (norm + batch.item_count).clamp(min=1e-30)
        scores = torch.einsum("lt,lit->li", batch.term_count * weight, gain)
        return scores.masked_fill(~batch.item_mask, 0.0)

    def save_assets(self, folder: str) -> dict[str, Any]:
        from crossjem_pl.files import write_json  # what only ranks writes nothing

        write_json(Path(folder) / _VOCABULARY, list(self._ids))
        return {}

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        kept = {"k1": init_args["k1"], "b": init_args["b"]}
        usual = {"method": "lucene", "stopwords": None, "stemmer": None}
        for field, value in usual.items():
            if init_args.get(field, value) != value:
                raise ValueError(
                    f"{folder}: a BM25 with {field} {init_args[field]!r}, which only version 0.1 reads"
                )
        ranker = cls(**kept)
        vocabulary = read_json(Path(folder) / _VOCABULARY, list)
        ranker._set_statistics(dict.fromkeys(vocabulary, 0), 0, 0)  # the numbers come with the weights
        return ranker

    def _set_statistics(self, frequency: dict[str, int], documents: int, word_total: int) -> None:
        """The vocabulary, read by `collate`, and the buffers, read by `forward`."""
        self._ids = {word: i for i, word in enumerate(frequency)}
        device = getattr(self, "documents", torch.empty(0)).device
        self.register_buffer(
            "document_frequency", torch.tensor(list(frequency.values()), dtype=torch.int64, device=device)
        )
        self.register_buffer("documents", torch.tensor(documents, device=device))
        self.register_buffer("word_total", torch.tensor(word_total, device=device))
