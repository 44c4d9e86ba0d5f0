from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from crossjem_pl.data.batches import ItemSampler, ListBatch, ListLoader, collate_lists
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM
from tests.conftest import example_lists

LISTS = example_lists(23, seed=2)


@pytest.fixture(scope="module")
def ranker(tiny_bert: str) -> CrossJEM:
    return CrossJEM(
        tiny_bert, max_query_tokens=8, max_item_tokens=8, max_items_per_pass=5, max_union_tokens=14
    ).eval()


def loader(
    ranker: CrossJEM, lists: list[RankingList] = LISTS, batch_size: int = 4, **options: object
) -> ListLoader:
    defaults: dict[str, Any] = {"sampler": ItemSampler(4, seed=5), "shuffle": True, "seed": 5}
    return ListLoader(lists, ranker, batch_size, **{**defaults, **options})


def contents(batch: ListBatch) -> tuple[object, ...]:
    assert isinstance(batch.labels, torch.Tensor)
    inputs = {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in vars(batch.inputs).items()}
    return batch.query_ids, batch.item_ids, batch.labels.tolist(), batch.items_left_out, inputs


def epoch(one: ListLoader, number: int) -> list[tuple[object, ...]]:
    one.set_epoch(number)
    return [contents(batch) for batch in one]


# --- one batch ---------------------------------------------------------------------------------------------


def test_labels_and_scores_are_padded_with_zeros(ranker: CrossJEM) -> None:
    batch = collate_lists(LISTS[:5], ranker, 3)
    assert batch.items_left_out == 3
    for field in ("labels", "scores"):
        numbers = getattr(batch, field)
        assert numbers.dtype == torch.float32
        assert numbers.shape == batch.inputs.item_mask.shape
        assert not numbers[~batch.inputs.item_mask].any()
        for row, one in zip(numbers, LISTS[:5], strict=True):
            torch.testing.assert_close(row[: len(one)], torch.tensor(getattr(one, field)))
    assert batch.query_ids == [one.query_id for one in LISTS[:5]]
    assert batch.item_ids == [one.item_ids for one in LISTS[:5]]


@pytest.mark.parametrize("field", ["labels", "scores"])
def test_numbers_are_for_all_lists_of_a_batch_or_for_none(ranker: CrossJEM, field: str) -> None:
    absent: dict[str, Any] = {field: None}
    without = [replace(one, **absent) for one in LISTS[:3]]
    assert getattr(collate_lists(without, ranker), field) is None
    with pytest.raises(
        ValueError, match=f"list '{LISTS[1].query_id}' has no {field}, others of its batch have"
    ):
        collate_lists([LISTS[0], without[1], LISTS[2]], ranker)
    with pytest.raises(ValueError, match=f"list '{LISTS[0].query_id}' has no {field}"):
        collate_lists([without[0], LISTS[1]], ranker)


def test_a_batch_moves_as_a_whole(ranker: CrossJEM) -> None:
    batch = collate_lists(LISTS[:2], ranker).to("meta")
    assert batch.labels is not None
    assert batch.labels.device.type == batch.inputs.item_mask.device.type == "meta"
    assert batch.item_ids == [one.item_ids for one in LISTS[:2]]


# --- the order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_order_and_draws_are_a_function_of_seed_and_epoch(ranker: CrossJEM, num_workers: int) -> None:
    one = loader(ranker, num_workers=num_workers)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, second = epoch(one, 0), epoch(one, 1)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is left alone"
    assert len(first) == len(second) == len(one) == 6
    assert first != second
    fresh = loader(ranker)
    assert epoch(fresh, 1) == second, "no matter what ran before or which process tokenised"
    assert epoch(fresh, 0) == first
    assert epoch(loader(ranker, seed=6), 0) != first
    queries = [query for batch in first for query in batch[0]]  # type: ignore[attr-defined]
    assert sorted(queries) == sorted(one.query_id for one in LISTS)
    assert queries != [one.query_id for one in LISTS]
    assert sum(batch[3] for batch in first) > 0, "some draws did not fit one pass"  # type: ignore[misc]


def test_evaluation_keeps_the_order_and_all_items(ranker: CrossJEM) -> None:
    one = loader(ranker, sampler=None, shuffle=False, batch_size=5)
    batches = list(one)
    assert [len(batch.query_ids) for batch in batches] == [5, 5, 5, 5, 3]
    assert [query for batch in batches for query in batch.query_ids] == [one.query_id for one in LISTS]
    assert [ids for batch in batches for ids in batch.item_ids] == [one.item_ids for one in LISTS]
    assert all(batch.items_left_out == 0 for batch in batches)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("count", "world_size"), [(23, 1), (23, 2), (23, 4), (24, 4), (3, 4), (1, 3)])
def test_ranks_cover_all_lists_in_equally_many_steps(
    ranker: CrossJEM, count: int, world_size: int, shuffle: bool
) -> None:
    lists = LISTS[:count]
    ranks = [
        loader(ranker, lists, rank=r, world_size=world_size, shuffle=shuffle, sampler=None)
        for r in range(world_size)
    ]
    seen = [[batch.query_ids for batch in one] for one in ranks]
    assert len({len(one) for one in ranks} | {len(batches) for batches in seen}) == 1
    sizes = {tuple(len(batch) for batch in batches) for batches in seen}
    assert len(sizes) == 1, "every rank has as many lists in every step"
    together = [query for batches in seen for batch in batches for query in batch]
    assert set(together) == {one.query_id for one in lists}
    assert len(together) == -(-count // world_size) * world_size, "no more repeats than fill up the last step"
    if count >= world_size:
        assert max(together.count(query) for query in together) <= 2


# --- resuming ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_workers", "seen"), [*((0, seen) for seen in range(7)), (2, 0), (2, 1), (2, 4)])
def test_resumes_with_exactly_the_batches_that_are_left(
    ranker: CrossJEM, num_workers: int, seen: int
) -> None:
    whole = loader(ranker)
    expected, following = epoch(whole, 3), epoch(whole, 4)
    interrupted = loader(ranker, num_workers=num_workers)
    interrupted.set_epoch(3)
    batches = iter(interrupted)
    before = [contents(next(batches)) for _ in range(seen)]
    state = interrupted.state_dict()
    assert state == {"handed_out": seen}, "what workers have prepared is not handed out"
    assert before == expected[:seen]

    resumed = loader(ranker, num_workers=num_workers)
    resumed.load_state_dict(state)
    if seen == len(expected):  # the epoch was over: the next one is whole
        assert epoch(resumed, 4) == following
        return
    assert epoch(resumed, 3) == expected[seen:]
    assert resumed.state_dict() == {"handed_out": 6}
    assert epoch(resumed, 4) == following, "and only the interrupted epoch is shortened"


def test_a_run_may_be_interrupted_twice_in_an_epoch(ranker: CrossJEM) -> None:
    expected = epoch(loader(ranker), 0)
    state = {"handed_out": 2}
    second = loader(ranker)
    second.load_state_dict(state)
    batches = iter(second)
    assert [contents(next(batches)) for _ in range(3)] == expected[2:5]
    third = loader(ranker)
    third.load_state_dict(second.state_dict())
    assert epoch(third, 0) == expected[5:]


def test_an_error_in_a_worker_names_the_list(ranker: CrossJEM) -> None:
    broken = RankingList("q-broken", "red", ("a", "b"), ("blue", "\u200b\u200d"), (1.0, 0.0), (0.5, 0.5))
    for num_workers in (0, 1):
        with pytest.raises(ValueError, match=r"'q-broken'.*'items'.*no tokens"):
            list(loader(ranker, [broken], num_workers=num_workers))
