from __future__ import annotations

from collections import Counter

import pytest
import torch

from crossjem_pl.data.batches import ItemSampler
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, CrossJEM, QueryHead
from tests.conftest import example_lists


@pytest.fixture(scope="module")
def ranker(tiny_bert: str) -> CrossJEM:
    """Passes of at most 7 items and 12 distinct tokens: the limit of example lists is mostly the tokens."""
    return CrossJEM(
        tiny_bert,
        QueryHead(),
        max_query_tokens=8,
        max_item_tokens=8,
        max_items_per_pass=7,
        max_union_tokens=12,
    ).eval()


def rows(one: RankingList) -> set[tuple[object, ...]]:
    assert one.labels is not None
    assert one.scores is not None
    return set(zip(one.item_ids, one.items, one.labels, one.scores, strict=True))


@pytest.mark.parametrize("n_items", [2, 4, 6, None])
def test_draws_within_the_limits_and_keeps_a_positive(ranker: CrossJEM, n_items: int | None) -> None:
    sampler = ItemSampler(n_items, seed=3)
    shortened = 0
    for index, one in enumerate(example_lists(40, seed=1, most_items=12)):
        for epoch in range(3):
            drawn, left_out = sampler.draw(one, ranker, epoch, index)
            assert rows(drawn) <= rows(one), "ids, texts, labels and scores stay together"
            assert (drawn.query_id, drawn.query) == (one.query_id, one.query)
            assert len(drawn) + left_out == min(n_items or len(one), len(one))
            assert drawn.labels is not None
            assert max(drawn.labels) == 1.0
            shortened += left_out > 0
            passes = ranker.passes([drawn])
            assert set(passes.pass_of_row.tolist()) == {0}, "one pass"
            assert len(set(passes.rows.values.tolist())) <= 12
            assert len(drawn) <= 7
    assert shortened > 0 or n_items == 2


def test_leaves_out_no_more_than_it_must(ranker: CrossJEM) -> None:
    for index, one in enumerate(example_lists(30, seed=2, most_items=12)):
        drawn, left_out = ItemSampler(None, 0).draw(one, ranker, 0, index)
        if left_out:
            order = ItemSampler(None, 0).draw(one, BM25(), 0, index)[
                0
            ]  # the same draw for a ranker without limits
            assert order.item_ids[: len(drawn)] == drawn.item_ids
            one_more = order.select(range(len(drawn) + 1))
            assert ranker.passes([one_more]).pass_of_row.max() > 0


def test_is_a_pure_function_of_seed_epoch_and_index() -> None:
    one = example_lists(1, seed=4, most_items=40)[0]
    assert len(one) > 20

    def draw(seed: int, epoch: int, index: int) -> tuple[str, ...]:
        return ItemSampler(8, seed).draw(one, BM25(), epoch, index)[0].item_ids

    expected = draw(1, 2, 3)
    torch.manual_seed(99)
    assert draw(1, 2, 3) == expected
    sampler = ItemSampler(8, 1)
    for other in ((0, 3), (5, 0), (2, 2)):
        sampler.draw(one, BM25(), *other)
    assert sampler.draw(one, BM25(), 2, 3)[0].item_ids == expected, "earlier draws leave no trace"
    others = {draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4), draw(1, 3, 2)}
    assert len(others | {expected}) == 5


def test_every_item_and_every_positive_has_its_turn() -> None:
    texts = [f"item {i}" for i in range(10)]
    one = RankingList.from_texts("query", texts)
    one = RankingList(one.query_id, one.query, one.item_ids, one.items, (0, 2, 0, 0, 1, 0, 0, 0, 3, 0))
    sampler = ItemSampler(4, seed=0)
    first: Counter[str] = Counter()
    drawn: Counter[str] = Counter()
    for epoch in range(600):
        ids = sampler.draw(one, BM25(), epoch, 0)[0].item_ids
        assert len(set(ids)) == 4
        first[ids[0]] += 1
        drawn.update(ids)
    assert set(first) == {"1", "4", "8"}, "the kept positive is drawn at random"
    assert min(first.values()) > 150
    negatives = [drawn[item] for item in ("0", "2", "3", "5", "6", "7", "9")]
    assert min(negatives) > 0.8 * max(negatives)


@pytest.mark.parametrize("labels", [None, (0.0,) * 6])
def test_lists_without_a_positive_are_drawn_too(labels: tuple[float, ...] | None) -> None:
    one = RankingList("q", "query", tuple("abcdef"), tuple(f"item {c}" for c in "abcdef"), labels)
    seen = {ItemSampler(3, 0).draw(one, BM25(), epoch, 0)[0].item_ids for epoch in range(30)}
    assert {len(ids) for ids in seen} == {3}
    assert len(seen) > 10
