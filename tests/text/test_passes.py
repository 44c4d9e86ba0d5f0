from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from crossjem_pl.text import (
    PassOrder,
    distinct_rows,
    leading_items,
    length_runs,
    passes,
    plan_passes,
    token_union,
)
from tests.text.test_ragged import ragged


def random_items(seed: int) -> list[tuple[int, ...]]:
    """Up to 120 items of 1 to 6 tokens; some repeat, some share their beginnings."""
    random = np.random.default_rng(seed)
    vocabulary = int(random.choice([8, 60, 300]))
    items = [
        tuple(random.integers(0, vocabulary, random.integers(1, 7)).tolist())
        for _ in range(random.integers(1, 100))
    ]
    return items + [items[i] for i in random.integers(0, len(items), random.integers(0, 20))]


def planned(items: list[tuple[int, ...]], max_items: int, max_union: int, order: PassOrder) -> list[int]:
    """The pass of every item, by way of the distinct ones."""
    chosen, member = distinct_rows(ragged(items))
    assert [items[i] for i in chosen] == sorted(set(items))
    return plan_passes(ragged(items).take(chosen), max_items, max_union, order)[member].tolist()


def greedy(items: list[tuple[int, ...]], max_items: int, max_union: int) -> dict[tuple[int, ...], int]:
    """The pass of each distinct item: in sorted order, a new pass where the next item does not fit."""
    number, inside, union = 0, 0, set[int]()
    plan = {}
    for item in sorted(set(items)):
        if inside == max_items or len(union | set(item)) > max_union:
            number, inside, union = number + 1, 0, set()
        plan[item] = number
        inside, union = inside + 1, union | set(item)
    return plan


LIMITS = [(100, 400), (10, 400), (100, 12), (7, 9), (1, 6)]


def by_overlap(items: list[tuple[int, ...]], max_items: int, max_union: int) -> dict[tuple[int, ...], int]:
    """The pass of each distinct item: each pass begins with the rarest and takes what adds the fewest tokens."""
    if len(set(items)) <= max_items and len(set().union(*items)) <= max_union:
        return dict.fromkeys(items, 0)
    left = sorted(set(items))
    holding = Counter(token for item in left for token in set(item))
    plan: dict[tuple[int, ...], int] = {}
    number = 0
    while left:
        chosen = min(left, key=lambda item: sum(holding[t] for t in set(item)) / len(set(item)))
        inside, union = 0, set[int]()
        while inside < max_items and len(union | set(chosen)) <= max_union:
            plan[chosen] = number
            inside, union = inside + 1, union | set(chosen)
            left.remove(chosen)
            if not left:
                break
            chosen = min(left, key=lambda item: (len(set(item) - union), -len(set(item))))
        number += 1
    return plan


@pytest.mark.parametrize("order", ["sorted", "overlap"])
@pytest.mark.parametrize(("max_items", "max_union"), LIMITS)
def test_is_the_greedy_plan_within_the_limits(max_items: int, max_union: int, order: PassOrder) -> None:
    for seed in range(12):
        items = random_items(seed)
        plan = planned(items, max_items, max_union, order)
        expected = (greedy if order == "sorted" else by_overlap)(items, max_items, max_union)
        assert plan == [expected[item] for item in items]
        for number in range(max(plan) + 1):
            members = {item for item, own in zip(items, plan, strict=True) if own == number}
            assert 1 <= len(members) <= max_items
            assert len(set().union(*members)) <= max_union
        shuffled = np.random.default_rng(seed).permutation(len(items)).tolist()
        permuted = planned([items[i] for i in shuffled], max_items, max_union, order)
        assert permuted == [plan[i] for i in shuffled], "the order of the items does not matter"


def test_overlap_needs_fewer_union_tokens_than_sorted() -> None:
    random = np.random.default_rng(0)
    topics = [random.choice(500, 12, replace=False) for _ in range(6)]
    items = [tuple(random.choice(topics[i % 6], 5, replace=False).tolist()) for i in range(240)]

    def tokens(order: PassOrder) -> int:
        plan = np.array(planned(items, 40, 60, order))
        return len(token_union(ragged(items), plan, int(plan.max()) + 1).tokens.values)

    assert tokens("overlap") < 0.6 * tokens("sorted")


@pytest.mark.parametrize("order", ["sorted", "overlap"])
def test_items_with_equal_tokens_share_a_pass_and_count_once(order: PassOrder) -> None:
    assert planned([(1, 2), (3,), (1, 2), (4,), (3,), (5, 5), (1, 2)], 2, 10, order)[::2] == [0, 0, 0, 0]
    assert planned([(9, 8)] * 700, 100, 2, order) == [0] * 700


@pytest.mark.parametrize("seed", range(20))
def test_leading_items_is_the_longest_prefix_that_fits(seed: int) -> None:
    items = random_items(seed)
    packed = ragged(items)
    for max_items, max_union in LIMITS:
        fits = leading_items(packed, max_items, max_union)
        assert 1 <= fits <= min(max_items, len(items))
        assert len(set().union(*items[:fits])) <= max_union
        if fits < min(max_items, len(items)):
            assert len(set().union(*items[: fits + 1])) > max_union


def test_an_item_larger_than_a_pass_is_an_error() -> None:
    items = ragged([(1, 2, 3, 2), (1,)])
    with pytest.raises(ValueError, match=r"3 distinct tokens, more than max_union_tokens=2.*max_item_tokens"):
        leading_items(items, 10, 2)
    with pytest.raises(ValueError, match="3 distinct tokens, more than max_union_tokens=2"):
        plan_passes(items, 10, 2)
    with pytest.raises(ValueError, match="3 distinct tokens, more than max_union_tokens=2"):
        plan_passes(items, 10, 2, "overlap")
    assert leading_items(items, 10, 3) == 2


def padded(lengths: np.ndarray, runs: list[np.ndarray]) -> int:
    return sum(len(run) * int(lengths[run].max()) for run in runs)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("cost", [1, 30, 10**9])
def test_every_row_is_in_one_run_and_every_cut_pays(seed: int, cost: int) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 200, random.integers(1, 40))
    runs = length_runs(lengths, cost)
    assert sorted(np.concatenate(runs).tolist()) == list(range(len(lengths)))
    for longer, shorter in pairwise(runs):
        assert lengths[shorter].max() < lengths[longer].min()
    whole = len(lengths) * int(lengths.max())
    assert padded(lengths, runs) <= whole - cost * (len(runs) - 1)
    if cost == 10**9:
        assert len(runs) == 1


def check_union(rows: list[list[int]], group_of: list[int], groups: int) -> None:
    found = token_union(
        ragged(rows),
        np.array(group_of, dtype=np.int64),
        groups,
    )
    expected = [
        sorted({t for row, g in zip(rows, group_of, strict=True) if g == group for t in row})
        for group in range(groups)
    ]
    assert [found.tokens.row(i).tolist() for i in range(groups)] == expected
    assert found.occurrence.tolist() == [
        expected[g].index(t) for row, g in zip(rows, group_of, strict=True) for t in row
    ]
    pairs = [
        (i, expected[g].index(token), row.index(token))
        for i, (row, g) in enumerate(zip(rows, group_of, strict=True))
        for token in sorted(set(row))
    ]
    columns = (found.members.row_of, found.members.values, found.first)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == pairs


@pytest.mark.parametrize("table", [0, 1 << 22])
@pytest.mark.parametrize("seed", range(60))
def test_unions_agree_with_python_sets(seed: int, table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_TABLE", table)
    random = np.random.default_rng(seed)
    groups = int(random.integers(1, 6))
    count = int(random.integers(1, 25))
    vocabulary = int(random.choice([3, 40, 50_000]))
    rows = [random.integers(0, vocabulary, random.integers(1, 9)).tolist() for _ in range(count)]
    check_union(rows, random.integers(0, groups, count).tolist(), groups)


def test_groups_without_items_are_empty() -> None:
    check_union([[5, 5, 2], [2]], [2, 2], 4)


def test_no_items_have_no_union() -> None:
    check_union([], [], 3)
