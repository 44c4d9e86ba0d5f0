from __future__ import annotations

import bm25s
import pytest
import torch

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25
from crossjem_pl.rankers.sparse.bm25 import words
from tests.conftest import example_lists

CORPUS = ("red shoes", "red red boots", "blue shoes for kids", "a couch", "red running shoes for men", "lamp")


def score(ranker: BM25, query: str, items: tuple[str, ...] | list[str]) -> torch.Tensor:
    return ranker(ranker.collate([RankingList.from_texts(query, list(items))]))[0]


@pytest.mark.parametrize("query", ["red shoes", "red red lamp", "shoes unknown", "unknown"])
def test_equals_bm25s_on_the_corpus(query: str) -> None:
    library = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
    library.index([words(text) for text in CORPUS], show_progress=False)
    expected = torch.from_numpy(library.get_scores(words(query)))
    ours = BM25(k1=0.9, b=0.4)
    ours.index_items(CORPUS)
    torch.testing.assert_close(score(ours, query, CORPUS), expected, rtol=1e-5, atol=1e-6)


def test_without_an_index_a_list_is_its_own_corpus() -> None:
    lists = example_lists(4, seed=2)
    bare = BM25()
    together = bare(bare.collate(lists))
    for i, one in enumerate(lists):
        indexed = BM25()
        indexed.index_items(one.items)
        torch.testing.assert_close(together[i, : len(one)], score(indexed, one.query, one.items))


def test_a_word_that_is_not_in_the_corpus_counts_where_it_occurs() -> None:
    ranker = BM25()
    ranker.index_items(CORPUS)
    with_word, without, neither = score(ranker, "lamp tricycle", ["lamp tricycle", "lamp bike", "green bike"])
    assert with_word > without > neither


def test_texts_without_words_score_nothing() -> None:
    ranker = BM25()
    ranker.index_items(["?!", "..."])  # an average of no words at all
    assert score(ranker, "red shoes", ["red shoes", "?!"]).tolist()[1] == 0.0
    assert not score(ranker, "?!", ["red shoes", "?!"]).any()


def test_words() -> None:
    assert words("C++ vs. C# in 2024: Ünïcode_x") == ["c", "vs", "c", "in", "2024", "ünïcode_x"]
