"""Loaders of lists in memory and of lists that stream: one batch, every list once, the order, exact resume."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from crossjem_pl.data.batches import BatchLoader, ItemSampler, ListBatch, ListLoader, collate_lists
from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.streaming import ShardIndex, StreamingLoader
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, CrossJEM
from tests.conftest import example_lists

LISTS = example_lists(53, seed=3)
IDS = [one.query_id for one in LISTS]
STEPS = 14

Make = Callable[..., BatchLoader]


@pytest.fixture(scope="module")
def ranker(tiny_bert: str) -> CrossJEM:
    limits: dict[str, Any] = {"max_items_per_pass": 5, "max_union_tokens": 14}
    return CrossJEM(tiny_bert, max_query_tokens=8, max_item_tokens=8, **limits).eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Shards of 20 lists in row groups of 4."""
    base = tmp_path_factory.mktemp("shards")

    def folder(count: int) -> Path:
        path = base / str(count)
        if not path.exists():
            write_shards(LISTS[:count], path, lists_per_shard=20, row_group=4)
        return path

    return folder


@pytest.fixture(params=["memory", "stream"])
def make(request: pytest.FixtureRequest, folders: Callable[[int], Path], ranker: CrossJEM) -> Make:
    """A loader of the first lists, in memory or from shards."""

    def loader(count: int = 53, batch_size: int = 4, buffer: int = 10, **options: Any) -> BatchLoader:
        settings: dict[str, Any] = {"sampler": ItemSampler(4, seed=5), "shuffle": True, "seed": 5, **options}
        model = settings.pop("ranker", ranker)
        if request.param == "memory":
            return ListLoader(LISTS[:count], model, batch_size, **settings)
        return StreamingLoader(ShardIndex(folders(count), buffer=buffer), model, batch_size, **settings)

    return loader


def plain(value: Any) -> Any:
    """The value with lists in place of tensors."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    parts = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    return value if parts is None else {name: plain(part) for name, part in parts.items()}


def contents(batch: ListBatch) -> tuple[Any, ...]:
    assert isinstance(batch.labels, torch.Tensor)
    assert isinstance(batch.scores, torch.Tensor)
    numbers = batch.labels.tolist(), batch.scores.tolist(), batch.items_left_out
    return batch.query_ids, batch.item_ids, numbers, plain(batch.inputs)


def epoch(loader: BatchLoader, number: int = 0) -> list[tuple[Any, ...]]:
    loader.set_epoch(number)
    return [contents(batch) for batch in loader]


def queries(loader: BatchLoader, number: int = 0) -> list[str]:
    return [query for batch in epoch(loader, number) for query in batch[0]]


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
    moved = batch.to("meta")
    assert moved.labels is not None
    assert moved.labels.device.type == moved.inputs.item_mask.device.type == "meta"


@pytest.mark.parametrize("field", ["labels", "scores"])
def test_numbers_are_for_all_lists_of_a_batch_or_for_none(ranker: CrossJEM, field: str) -> None:
    absent: dict[str, Any] = {field: None}
    without = [replace(one, **absent) for one in LISTS[:3]]
    assert getattr(collate_lists(without, ranker), field) is None
    for lists, named in (([LISTS[0], without[1], LISTS[2]], LISTS[1]), ([without[0], LISTS[1]], LISTS[0])):
        with pytest.raises(
            ValueError, match=f"list '{named.query_id}' has no {field}, others of its batch have"
        ):
            collate_lists(lists, ranker)


def test_an_error_in_a_worker_names_the_list(ranker: CrossJEM) -> None:
    broken = RankingList("q-broken", "red", ("a", "b"), ("blue", "\u200b\u200d"), (1.0, 0.0), (0.5, 0.5))
    for num_workers in (0, 1):
        with pytest.raises(ValueError, match=r"'q-broken'.*'items'.*no tokens"):
            list(ListLoader([broken], ranker, 1, num_workers=num_workers))


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("buffer", [1, 10, 4096])
@pytest.mark.parametrize(("count", "world_size"), [(53, 1), (53, 3), (24, 4), (3, 4)])
def test_ranks_cover_all_lists_in_equally_many_steps(
    make: Make, count: int, world_size: int, buffer: int, shuffle: bool
) -> None:
    options: dict[str, Any] = {
        "ranker": BM25(),
        "sampler": None,
        "world_size": world_size,
        "shuffle": shuffle,
    }
    ranks = [make(count, buffer=buffer, rank=rank, **options) for rank in range(world_size)]
    seen = [[batch.query_ids for batch in loader] for loader in ranks]
    share = math.ceil(count / world_size)
    assert {len(loader) for loader in ranks} == {len(batches) for batches in seen} == {math.ceil(share / 4)}
    assert len({tuple(map(len, batches)) for batches in seen}) == 1, "as many lists in every step"
    together = [query for batches in seen for batch in batches for query in batch]
    assert set(together) == set(IDS[:count])
    assert len(together) == share * world_size, "no more repeats than fill up the last step"
    if count >= world_size:
        assert max(together.count(query) for query in together) <= 2
    if world_size == 1 and not shuffle:
        assert together == IDS[:count], "evaluation keeps the stored order"


def test_a_streamed_list_is_what_the_reader_reads(folders: Callable[[int], Path], ranker: CrossJEM) -> None:
    """Same lists, tensors and draws as in memory, batch for batch, where the order is the stored one."""
    options: dict[str, Any] = {"sampler": ItemSampler(4, seed=5), "seed": 5}
    streamed = StreamingLoader(ShardIndex(folders(53), buffer=10), ranker, 4, **options)
    in_memory = ListLoader(list(read_lists(folders(53))), ranker, 4, **options)
    for number in (0, 1):
        assert epoch(streamed, number) == epoch(in_memory, number)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_order_and_draws_are_a_function_of_seed_and_epoch(make: Make, num_workers: int) -> None:
    loader = make(num_workers=num_workers)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, second = epoch(loader, 0), epoch(loader, 1)
    assert torch.equal(torch.get_rng_state(), state), "the global generator is left alone"
    assert len(first) == len(second) == len(loader) == STEPS
    assert first != second
    fresh = make()
    assert epoch(fresh, 1) == second, "no matter what ran before or which process tokenised"
    assert epoch(fresh, 0) == first
    assert epoch(make(seed=6), 0) != first
    assert queries(make(batch_size=7)) == queries(make()), "the batch size only cuts"
    assert sorted(queries(make())) == sorted(IDS)
    assert queries(make()) != IDS
    assert sum(batch[2][2] for batch in first) > 0, "some draws did not fit one pass"


@pytest.mark.parametrize(("num_workers", "seen"), [(0, 0), (0, 5), (0, 13), (0, 14), (2, 9)])
def test_resumes_with_exactly_the_batches_that_are_left(make: Make, num_workers: int, seen: int) -> None:
    expected, following = epoch(make(), 3), epoch(make(), 4)
    interrupted = make(num_workers=num_workers)
    interrupted.set_epoch(3)
    batches = iter(interrupted)
    before = [contents(next(batches)) for _ in range(seen)]
    state = interrupted.state_dict()
    assert state["handed_out"] == seen, "what workers have prepared is not handed out"
    assert before == expected[:seen]

    resumed = make(num_workers=num_workers)
    resumed.load_state_dict(state)
    if seen < STEPS:  # else the epoch was over, and the next one is whole
        assert epoch(resumed, 3) == expected[seen:]
        assert resumed.state_dict()["handed_out"] == STEPS
    assert epoch(resumed, 4) == following, "only the interrupted epoch is shortened"


def test_workers_may_change_between_the_runs_and_a_run_be_interrupted_twice(make: Make) -> None:
    expected = epoch(make(rank=1, world_size=2))
    seen: list[tuple[Any, ...]] = []
    state: dict[str, Any] = {}
    for num_workers, count in ((2, 2), (0, 3), (1, 2)):
        loader = make(rank=1, world_size=2, num_workers=num_workers)
        loader.load_state_dict(state)
        batches = iter(loader)
        seen += [contents(next(batches)) for _ in range(count)]
        state = loader.state_dict()
    assert seen == expected
    assert state["handed_out"] == len(loader)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"batch_size": 8}, "batch_size was 4 and is 8"),
        ({"seed": 6}, "seed was 5 and is 6"),
        ({"world_size": 2}, "world_size was 1 and is 2"),
        ({"sampler": ItemSampler(3, seed=5)}, "n_items was 4 and is 3"),
        ({"count": 24}, "lists was 53 and is 24"),
    ],
)
def test_a_position_of_other_batches_is_refused(make: Make, change: dict[str, Any], named: str) -> None:
    state, changed = {**make().state_dict(), "handed_out": 3}, make(**change)
    with pytest.raises(ValueError, match=f"in the middle of an epoch of other batches: {named}"):
        changed.load_state_dict(state)
    changed.load_state_dict({**state, "handed_out": STEPS})  # between epochs nothing is lost
    with pytest.raises(ValueError, match="lists was None"):
        make().load_state_dict({"handed_out": 3})


@pytest.mark.parametrize("kind", ["memory", "stream"])
def test_a_position_in_lists_of_other_content_is_refused(kind: str, tmp_path: Path) -> None:
    states = []
    for label in (0.0, 1.0):
        lists = [*LISTS[:-1], replace(LISTS[-1], labels=(label,) * len(LISTS[-1]))]
        write_shards(lists, tmp_path / str(label) / "train", lists_per_shard=20)
        streams = StreamingLoader(ShardIndex(tmp_path / str(label) / "train"), BM25(), 4, shuffle=True)
        loader = ListLoader(lists, BM25(), 4, shuffle=True) if kind == "memory" else streams
        states.append((loader, {**loader.state_dict(), "handed_out": 3}))
    (first, state), (second, _) = states
    first.load_state_dict(state)
    with pytest.raises(ValueError, match="content was"):
        second.load_state_dict(state)
