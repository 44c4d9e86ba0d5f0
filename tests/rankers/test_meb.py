from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import MEB
from crossjem_pl.rankers.base import Batch
from crossjem_pl.rankers.sparse.meb import combined, word_hash


def gram_hash(words: tuple[str, ...]) -> np.ndarray:
    value = np.array([word_hash(words[0])], dtype=np.int64)
    for word in words[1:]:
        value = combined(value, np.array([word_hash(word)], dtype=np.int64))
    return value


def literal_groups(ranker: MEB, query: str, item: str) -> list[set[int]]:
    """The rows of each group, feature by feature."""

    def grams(text: str, n: int) -> list[tuple[str, ...]]:
        words = text.split()
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    sizes = range(1, ranker.ngrams + 1)
    groups = [[gram_hash(g) for g in grams(text, n)] for text in (query, item) for n in sizes]
    for a, b in product(sizes, sizes):
        pairs = product(grams(query, a), grams(item, b))
        groups.append([combined(gram_hash(q), gram_hash(i)) for q, i in pairs])
    return [
        {int(combined(value, salt)[0]) % 2**64 % ranker.buckets for value in values}
        for salt, values in enumerate(groups)
    ]


def rows(batch: Batch) -> list[set[int]]:
    (run,) = batch.runs
    starts = run["offsets"].tolist()
    ends = [*starts[1:], len(run["features"])]
    return [set(run["features"][start:end].tolist()) for start, end in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("ngrams", [1, 2, 3])
def test_features_equal_a_literal_enumeration(ngrams: int) -> None:
    ranker = MEB(buckets=5_000, width=2, ngrams=ngrams)
    lists = [
        RankingList.from_texts("red red shoes for men", ["red red red shoes", "blue", "big blue sofa"]),
        RankingList.from_texts("sofa", ["sofa", "red sofa"]),
    ]
    batch = ranker.collate(lists)
    got = rows(batch)
    pairs = [(one.query, item) for one in lists for item in one.items]
    for number, (query, item) in enumerate(pairs):
        expected = literal_groups(ranker, query, item)
        assert len(expected) == ranker.groups
        assert [got[group * len(pairs) + number] for group in range(ranker.groups)] == expected


def test_scores_equal_a_literal_sum() -> None:
    ranker = MEB(buckets=5_000, width=4, hidden=8)
    one = RankingList.from_texts("red shoes", ["red boots for men", "shoes"])
    scores = ranker(ranker.collate([one]))[0]
    for score, item in zip(scores, one.items, strict=True):
        groups = literal_groups(ranker, one.query, item)
        sums = [ranker.table.weight[sorted(group)].sum(0) for group in groups]
        torch.testing.assert_close(score, ranker.network(torch.cat(sums))[0])


def test_hashes_are_the_same_everywhere() -> None:
    assert word_hash("größe") % 2**64 == 16832822397561338100
    assert combined(np.array([word_hash("größe")]), 7).view(np.uint64).tolist() == [12698762315928978650]
    spread = combined(np.arange(10_000), 7).view(np.uint64) % np.uint64(100)
    assert np.bincount(spread.astype(np.int64)).min() > 60
    one, two = np.array([1], dtype=np.int64), np.array([2], dtype=np.int64)
    assert combined(one, two) != combined(two, one)


def test_texts_without_words_and_cut_texts() -> None:
    ranker = MEB(buckets=100, max_query_words=2, max_item_words=3)
    batch = ranker.collate([RankingList.from_texts("?!", ["!", "..."])])
    scores = ranker(batch)
    assert len(batch.runs[0]["features"]) == 0
    torch.testing.assert_close(scores[0, 0], scores[0, 1])
    cut = ranker.collate([RankingList.from_texts("a b c", ["a b c", "a b c d", "a b c e"])])
    assert (cut.truncated_queries, cut.truncated_items) == (1, 2)
    scores = ranker(cut)
    torch.testing.assert_close(scores[0, 1:], scores[0, :1].expand(2))
