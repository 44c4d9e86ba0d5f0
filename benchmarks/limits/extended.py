"""Lists with more candidates than they came with: BM25's best of a corpus are added as negatives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

    Raises:
        ValueError: if there are no texts, or none with a word.
    """

    def __init__(self, texts: Iterable[str], seed: int = 0) -> None:
        from bm25s import BM25

        distinct: dict[str, str] = {}
        for text in texts:
            distinct.setdefault(folded(text), text)
        self.texts, self.keys = tuple(distinct.values()), tuple(distinct)
        words = [words_of(text) for text in self.texts]
        if not any(words):
            raise ValueError(f"the corpus of {len(words)} texts has no words to find them by")
        self._index = BM25(method="lucene")
        self._index.index(words, show_progress=False)
        self._ties = np.random.default_rng(seed).permutation(len(self.texts))

    def __len__(self) -> int:
        return len(self.texts)

    def ranked(self, query: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions of all texts, best first, int64 [texts], and the score of every text, float32 [texts]."""
        words = words_of(query)
        scores = np.zeros(len(self.texts), dtype=np.float32)
        if words:
            scores = np.asarray(self._index.get_scores(words), dtype=np.float32)
        return np.lexsort((self._ties, -scores)), scores


def folded(text: str) -> str:
    """What two texts are compared by: neither case nor outer white space counts."""
    return text.strip().casefold()


def relevant_items(ranking_list: RankingList) -> list[int]:
    """Positions of the items with a label of at least `LEAST_RELEVANT`."""
    return [i for i, label in enumerate(ranking_list.labels or ()) if label >= LEAST_RELEVANT]


def measurable(lists: Iterable[RankingList], fewest: int) -> list[RankingList]:
    """The lists with a relevant item that keep a negative one when they are cut to `fewest` items."""
    return [ranking_list for ranking_list in lists if 0 < len(relevant_items(ranking_list)) < fewest]


def extend(ranking_list: RankingList, corpus: Corpus, size: int) -> tuple[RankingList, int, int]:
    """The list with `size` items: its relevant ones, its others in the first stage's order, the corpus's in BM25's.

    Not added: a text that the list has already, or that equals the query (see `folded`). Added items have grade 0.
    The items' ids are made anew, of their old ids and texts: metrics break ties by id, and no id should tell where
    an item comes from.

    Args:
        ranking_list: its `scores`, if any, are the first stage's; without them its items stand in its order.
        corpus: where negatives come from.
        size: at least the number of relevant items.

    Returns:
        The list, how many of its items are the corpus's, and how many of those share no word with the query.

    Raises:
        ValueError: if the list has more relevant items, or list and corpus together have too few texts; says how
            many there are.
    """
    first = relevant_items(ranking_list)
    if len(first) > size:
        raise ValueError(
            f"list {ranking_list.query_id!r}: {len(first)} relevant items do not fit into {size}"
        )
    labels, scores = ranking_list.labels or (), ranking_list.scores
    others = [i for i in range(len(ranking_list)) if i not in set(first)]
    if scores is not None:
        others.sort(key=lambda i: -scores[i])
    kept = [*first, *others][:size]
    items, grades = [ranking_list.items[i] for i in kept], [labels[i] for i in kept]
    ids = [content_id(f"{ranking_list.item_ids[i]}\t{ranking_list.items[i]}") for i in kept]
    missing = size - len(kept)
    added, unmatched = _negatives(ranking_list, corpus, missing) if missing else ([], 0)
    ids += [content_id(f"\t{text}") for text in added]
    query_id, query = ranking_list.query_id, ranking_list.query
    grades += [0.0] * missing
    return RankingList(query_id, query, tuple(ids), (*items, *added), tuple(grades)), missing, unmatched


def cut(ranking_list: RankingList, size: int) -> RankingList:
    """The first `size` items of an extended list, in the order of their ids, which tells nothing of the items.

    Raises:
        ValueError: if the list has fewer.
    """
    if size > len(ranking_list):
        raise ValueError(
            f"list {ranking_list.query_id!r} has {len(ranking_list)} items, {size} were asked for"
        )
    return ranking_list.select(sorted(range(size), key=lambda i: ranking_list.item_ids[i]))


def _negatives(ranking_list: RankingList, corpus: Corpus, count: int) -> tuple[Sequence[str], int]:
    """`count` texts of the corpus, and how many of them share no word with the query."""
    taken = {folded(ranking_list.query), *map(folded, ranking_list.items)}
    order, scores = corpus.ranked(ranking_list.query)
    chosen = [i for i in order[: count + len(taken)].tolist() if corpus.keys[i] not in taken][:count]
    size = len(ranking_list)
    if len(chosen) < count:
        raise ValueError(
            f"list {ranking_list.query_id!r}: {size + count} items were asked for, but its own {size} items and the "
            f"corpus of {len(corpus)} different texts make no more than {size + len(chosen)}; add a --corpus "
            "or lower --items"
        )
    return [corpus.texts[i] for i in chosen], int((scores[chosen] <= 0).sum())
