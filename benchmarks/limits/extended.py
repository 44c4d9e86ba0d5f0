"""Lists with more candidates than they came with: BM25's best of a corpus are added as negatives."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from crossjem_pl.hashing import content_id
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.sparse.bm25 import words as words_of

LEAST_RELEVANT = 1.0
"""The lowest label of a relevant item, as in ir-measures."""


class Corpus:
    """Different texts, ranked by BM25 (Lucene's form, k1 1.5, b 0.75, words as in `rankers.sparse.bm25.words`).

    Args:
        texts: of two that are equal but for case and outer white space the first is kept.
        seed: of the order among texts of equal score, those without a word of the query included.
    """

    def __init__(self, texts: Iterable[str], seed: int = 0) -> None:
        from bm25s import BM25

        distinct: dict[str, str] = {}
        for text in texts:
            distinct.setdefault(folded(text), text)
        self.texts, self.keys = tuple(distinct.values()), tuple(distinct)
        self._index = BM25(method="lucene")
        self._index.index([words_of(text) for text in self.texts], show_progress=False)
        self._ties = np.random.default_rng(seed).permutation(len(self.texts))

    def __len__(self) -> int:
        return len(self.texts)

    def ranked(self, query: str) -> NDArray[np.int64]:
        """Positions of all texts, best first, int64 [texts]."""
        words = words_of(query)
        scores = self._index.get_scores(words) if words else np.zeros(len(self.texts))
        return np.lexsort((self._ties, -scores))


def folded(text: str) -> str:
    """What two texts are compared by: neither case nor outer white space counts."""
    return text.strip().casefold()


def relevant_items(ranking_list: RankingList) -> list[int]:
    """Positions of the items with a label of at least `LEAST_RELEVANT`."""
    return [i for i, label in enumerate(ranking_list.labels or ()) if label >= LEAST_RELEVANT]


def measurable(lists: Iterable[RankingList], fewest: int) -> list[RankingList]:
    """The lists with a relevant item that keep a negative one when they are cut to `fewest` items."""
    return [ranking_list for ranking_list in lists if 0 < len(relevant_items(ranking_list)) < fewest]


def extend(ranking_list: RankingList, corpus: Corpus, size: int) -> tuple[RankingList, int]:
    """The list with `size` items, its relevant ones, then its others, then the corpus's in BM25's order, and how many
    of its items are the corpus's.

    Not added: a text that the list has already, or that equals the query (see `folded`). Added items have grade 0.
    The items' ids are made anew, of their old ids and texts: metrics break ties by id, and no id should tell where
    an item comes from.

    Raises:
        ValueError: if list and corpus together have too few texts; says how many there are.
    """
    first, labels = relevant_items(ranking_list), ranking_list.labels or ()
    kept = [*first, *(i for i in range(len(ranking_list)) if i not in first)][:size]
    taken = {folded(ranking_list.query), *map(folded, ranking_list.items)}
    order = corpus.ranked(ranking_list.query)[: size + len(taken)].tolist()
    added = [corpus.texts[i] for i in order if corpus.keys[i] not in taken][: size - len(kept)]
    if len(kept) + len(added) < size:
        raise ValueError(
            f"list {ranking_list.query_id!r}: {size} items were asked for, but its own {len(kept)} items and the "
            f"corpus of {len(corpus)} different texts make no more than {len(kept) + len(added)}; add a --corpus "
            "or lower --items"
        )
    items = [ranking_list.items[i] for i in kept] + added
    old = [ranking_list.item_ids[i] for i in kept] + [""] * len(added)
    ids = tuple(content_id(f"{item_id}\t{text}") for item_id, text in zip(old, items, strict=True))
    grades = [labels[i] for i in kept] + [0.0] * len(added)
    query = (ranking_list.query_id, ranking_list.query)
    return RankingList(*query, ids, tuple(items), tuple(grades)), len(added)


def cut(ranking_list: RankingList, size: int) -> RankingList:
    """The first `size` items of an extended list, in the order of their ids, which tells nothing of the items."""
    return ranking_list.select(sorted(range(size), key=lambda i: ranking_list.item_ids[i]))
