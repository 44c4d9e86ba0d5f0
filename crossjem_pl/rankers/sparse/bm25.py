"""BM25 with corpus statistics, the lexical baseline that every trained ranker has to beat; and words of a text."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, Ranker, check_choice, init_arguments, item_mask, register

__all__ = ["BM25", "BM25Method", "WordBatch", "Words"]

BM25Method = Literal["lucene", "robertson", "atire", "bm25l", "bm25+"]

_IDF: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "lucene": lambda n, documents: torch.log1p((documents - n + 0.5) / (n + 0.5)),
    "robertson": lambda n, documents: torch.log(((documents - n + 0.5) / (n + 0.5)).clamp(min=1)),
    "atire": lambda n, documents: torch.log(documents / n),
    "bm25l": lambda n, documents: torch.log((documents + 1) / (n + 0.5)),
    "bm25+": lambda n, documents: torch.log((documents + 1) / n),
}
_VOCABULARY = "vocabulary.json"
_WORD = re.compile(r"\w+")
_ENGLISH = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
    "this to was will with"
)


class Words:
    """Lower-cased runs of letters, digits and underscores (Unicode `\\w+`), in the order of the text.

    "C++ vs. C#" is `c, vs, c`: punctuation is no word, one letter is one. A text without any has no words.

    Args:
        stopwords: words to leave out; "en" for 33 English ones; None leaves none out.
        stemmer: language of a Snowball stemmer ("english", "german", ...), applied after the stopwords; None
            keeps words as they are.

    Raises:
        ImportError: if a stemmer is asked for and PyStemmer is not installed.
        ValueError: on an unknown name of stopwords.
        KeyError: if PyStemmer does not know the language.
    """

    def __init__(
        self, stopwords: Literal["en"] | Sequence[str] | None = None, stemmer: str | None = None
    ) -> None:
        if isinstance(stopwords, str) and stopwords != "en":
            raise ValueError(f"stopwords must be 'en', a list of words or None, got {stopwords!r}")
        words = _ENGLISH.split() if isinstance(stopwords, str) else stopwords or ()
        self.stopwords = frozenset(word.lower() for word in words)
        self.stemmer = stemmer
        if stemmer is not None:
            _stem_words(stemmer)  # a missing package or language is told now, not in a worker

    def __call__(self, text: str) -> list[str]:
        words = [word for word in _WORD.findall(text.lower()) if word not in self.stopwords]
        return words if self.stemmer is None else _stem_words(self.stemmer)(words)


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
    """Okapi BM25 (Robertson et al., 1994) and the variants that Kamphuis et al. (ECIR 2020) compare.

    f_j = sum over the query's words w, repeats included, of idf(w) * tf(c_jw, l_j / l),
    c_jw = count of w in item j, l_j = words of item j, l = average over the corpus, N = items of the corpus,
    n = items of the corpus that have w. With K = k1 (1 - b + b l_j / l):

    | method | idf(w) | tf(c) |
    | --- | --- | --- |
    | lucene | log(1 + (N - n + 0.5) / (n + 0.5)) | c / (c + K) |
    | robertson | log(max(1, (N - n + 0.5) / (n + 0.5))) | c / (c + K) |
    | atire | log(N / n) | (k1 + 1) c / (c + K) |
    | bm25l | log((N + 1) / (n + 0.5)) | (k1 + 1) (c' + delta) / (k1 + c' + delta), c' = c k1 / K |
    | bm25+ | log((N + 1) / n) | (k1 + 1) c / (c + K) + delta |

    On the items of the corpus the scores are those of the bm25s library, which scores nothing else. Items that are
    not of the corpus are scored with the corpus's statistics; a word that the corpus does not have counts only in
    the items that have it, with n = 1.

    `index_items` learns N, n and l. Where it was never called, every list is its own corpus: N, n and l are
    those of the list's items. A text without words (see `Words`) matches nothing: as an item it has none of
    the query's words, as a query it gives all items 0.

    Args:
        k1: how slowly repeats of a word saturate, at least 0.
        b: how much a long item is held back, between 0 (not at all) and 1.
        method: row of the table.
        delta: read by bm25l and bm25+ only.
        stopwords: see `Words`; none are left out by default.
        stemmer: see `Words`; no stemming by default.

    Raises:
        ValueError: on an unknown method or a number out of its bounds.
    """

    name = "bm25"
    trainable = False
    document_frequency: Tensor
    documents: Tensor
    word_total: Tensor

    def __init__(
        self,
        k1: float = 1.5,
        b: float = 0.75,
        method: BM25Method = "lucene",
        delta: float = 0.5,
        stopwords: Literal["en"] | list[str] | None = None,
        stemmer: str | None = None,
    ) -> None:
        super().__init__(init_arguments(locals()))
        check_choice("method", method, get_args(BM25Method))
        if not 0 <= k1 < float("inf") or not 0 <= b <= 1 or not 0 <= delta < float("inf"):
            raise ValueError(f"k1 and delta must be at least 0 and b in [0, 1]; got {k1=}, {delta=}, {b=}")
        self.k1, self.b, self.method, self.delta = k1, b, method, delta
        self.words = Words(stopwords, stemmer)
        self._set_statistics({}, 0, 0)

    def index_items(self, items: Iterable[str]) -> None:
        """Learns document frequencies, the number of items and their mean length, and forgets earlier ones.

        Raises:
            ValueError: if there are no items.
        """
        frequency: Counter[str] = Counter()
        documents = word_total = 0
        for text in items:
            words = self.words(text)
            frequency.update(set(words))
            documents += 1
            word_total += len(words)
        if not documents:
            raise ValueError("index_items got no items")
        self._set_statistics(dict(sorted(frequency.items())), documents, word_total)

    def collate(self, lists: Sequence[RankingList]) -> WordBatch:
        mask = item_mask(lists)
        queries = [Counter(self.words(one.query)) for one in lists]
        shape = (len(lists), max(1, *map(len, queries)))
        term_id, term_count = np.full(shape, -1), np.zeros(shape, dtype=np.float32)
        item_words = np.zeros(mask.shape, dtype=np.float32)
        item_count = np.zeros((*mask.shape, shape[1]), dtype=np.float32)
        for i, (one, terms) in enumerate(zip(lists, queries, strict=True)):
            term_id[i, : len(terms)] = [self._ids.get(word, -1) for word in terms]
            term_count[i, : len(terms)] = list(terms.values())
            column = {word: k for k, word in enumerate(terms)}
            for j, text in enumerate(one.items):
                words = self.words(text)
                item_words[i, j] = len(words)
                for word in words:
                    if word in column:
                        item_count[i, j, column[word]] += 1
        return WordBatch(
            item_mask=mask,
            truncated_items=0,
            truncated_queries=0,
            term_id=torch.from_numpy(term_id),
            term_count=torch.from_numpy(term_count),
            item_count=torch.from_numpy(item_count),
            item_words=torch.from_numpy(item_words),
        )

    def forward(self, batch: WordBatch) -> Tensor:
        has = batch.item_count > 0
        if int(self.documents):
            known = batch.term_id >= 0
            frequency = F.pad(self.document_frequency, (0, 1))[batch.term_id] * known
            documents = self.documents.expand(len(known))
            average = self.word_total / documents
        else:
            frequency, documents = has.sum(dim=1), batch.item_mask.sum(dim=1)
            average = batch.item_words.sum(dim=1) / documents
        weight = _IDF[self.method](frequency.clamp(min=1).float(), documents[:, None].float())
        relative = batch.item_words / average.clamp(min=1e-9)[:, None]
        # bm25l and bm25+ give an item something for a word of the corpus that it lacks
        counts = has | (frequency > 0)[:, None]
        gain = self._saturation(batch.item_count, relative[:, :, None]) * counts
        scores = torch.einsum("lt,lit->li", batch.term_count * weight, gain)
        return scores.masked_fill(~batch.item_mask, 0.0)

    def save_assets(self, folder: str) -> dict[str, Any]:
        text = json.dumps(list(self._ids), ensure_ascii=False, indent=0)
        (Path(folder) / _VOCABULARY).write_text(text + "\n", encoding="utf-8")
        return {}

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        ranker = cls(**init_args)
        vocabulary = json.loads((Path(folder) / _VOCABULARY).read_text(encoding="utf-8"))
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

    def _saturation(self, count: Tensor, relative: Tensor) -> Tensor:
        """tf of the table, `relative` = item length over average length."""
        k1, norm = self.k1, 1 - self.b + self.b * relative
        if self.method == "bm25l":
            scaled = count / norm
            return (k1 + 1) * (scaled + self.delta) / (k1 + scaled + self.delta).clamp(min=1e-30)
        saturated = count / (k1 * norm + count).clamp(min=1e-30)
        if self.method in ("lucene", "robertson"):
            return saturated
        return (k1 + 1) * saturated + (self.delta if self.method == "bm25+" else 0.0)


@cache
def _stem_words(language: str) -> Callable[[list[str]], list[str]]:
    try:
        module: Any = importlib.import_module("Stemmer")
    except ImportError as error:
        raise ImportError("stemmer needs PyStemmer: pip install PyStemmer") from error
    return module.Stemmer(language).stemWords
