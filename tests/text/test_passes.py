from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from crossjem_pl.text import PassOrder, Ragged, leading_items, plan_passes, token_union


def random_items(seed: int) -> list[tuple[int, ...]]:
    """Up to 120 items of 1 to 6 tokens; some repeat, some share their beginnings."""
    random = np.random.default_rng(seed)
    vocabulary = int(random.choice([8, 60, 300]))
    items = [
        tuple(random.integers(0, vocabulary, random.integers(1, 7)).tolist())
        for _ in range(random.integers(1, 100))
    ]
    return items + [items[i] for i in random.integers(0, len(items), random.integers(0, 20))]


def ragged(items: list[tuple[int, ...]]) -> Ragged:
    return Ragged.from_rows([np.array(item, dtype=np.int64) for item in items])


def greedy(
    items: list[tuple[int, ...]], max_items: int, max_union: int, order: PassOrder
) -> dict[tuple[int, ...], int]:
    """The pass of each distinct item: sorted or as given, a new pass where the next item does not fit."""
    distinct = list(dict.fromkeys(items))
    if len(items) <= max_items and len(set().union(*items)) <= max_union:
        return dict.fromkeys(distinct, 0)
    number, inside, union = 0, 0, set[int]()
    plan = {}
    for item in sorted(distinct) if order == "sorted" else distinct:
        if inside == max_items or len(union | set(item)) > max_union:
            number, inside, union = number + 1, 0, set()
        plan[item] = number
        inside, union = inside + 1, union | set(item)
    return plan


LIMITS = [(100, 400), (10, 400), (100, 12), (7, 9), (1, 6)]


@pytest.mark.parametrize("order", ["sorted", "given"])
@pytest.mark.parametrize(("max_items", "max_union"), LIMITS)
def test_is_the_greedy_plan_within_the_limits(max_items: int, max_union: int, order: PassOrder) -> None:
    for seed in range(12):
        items = random_items(seed)
        plan = plan_passes(ragged(items), max_items, max_union, order)
        expected = greedy(items, max_items, max_union, order)
        assert plan.tolist() == [expected[item] for item in items]
        for number in range(int(plan.max()) + 1):
            members = {item for item, own in zip(items, plan, strict=True) if own == number}
            assert 1 <= len(members) <= max_items
            assert len(set().union(*members)) <= max_union


def by_overlap(items: list[tuple[int, ...]], max_items: int, max_union: int) -> dict[tuple[int, ...], int]:
    """The pass of each distinct item: each pass begins with the rarest and takes what adds the fewest tokens."""
    if len(items) <= max_items and len(set().union(*items)) <= max_union:
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


@pytest.mark.parametrize(("max_items", "max_union"), LIMITS)
def test_overlap_takes_the_item_with_the_fewest_new_tokens(max_items: int, max_union: int) -> None:
    for seed in range(12):
        items = random_items(seed)
        plan = plan_passes(ragged(items), max_items, max_union, "overlap")
        expected = by_overlap(items, max_items, max_union)
        assert plan.tolist() == [expected[item] for item in items]
        for number in range(int(plan.max()) + 1):
            members = {item for item, own in zip(items, plan, strict=True) if own == number}
            assert 1 <= len(members) <= max_items
            assert len(set().union(*members)) <= max_union


def test_overlap_needs_fewer_union_tokens_than_sorted() -> None:
    random = np.random.default_rng(0)
    topics = [random.choice(500, 12, replace=False) for _ in range(6)]
    items = [tuple(random.choice(topics[i % 6], 5, replace=False).tolist()) for i in range(240)]

    def tokens(order: PassOrder) -> int:
        plan = plan_passes(ragged(items), 40, 60, order)
        return len(token_union(ragged(items), plan, int(plan.max()) + 1).tokens.values)

    assert tokens("overlap") < 0.6 * tokens("sorted")


@pytest.mark.parametrize("dealt", ["sorted", "overlap"])
@pytest.mark.parametrize(("max_items", "max_union"), LIMITS)
def test_passes_do_not_depend_on_the_order_of_the_items(
    max_items: int, max_union: int, dealt: PassOrder
) -> None:
    for seed in range(6):
        items = random_items(seed)
        order = np.random.default_rng(seed).permutation(len(items))
        plan = plan_passes(ragged(items), max_items, max_union, dealt)
        permuted = plan_passes(ragged([items[i] for i in order]), max_items, max_union, dealt)
        assert permuted.tolist() == plan[order].tolist()


@pytest.mark.parametrize("order", ["sorted", "given"])
def test_items_with_equal_tokens_share_a_pass_and_count_once(order: PassOrder) -> None:
    items = [(1, 2), (3,), (1, 2), (4,), (3,), (5,), (1, 2)]
    plan = plan_passes(ragged(items), 2, 10, order)
    assert plan.tolist() == [0, 0, 0, 1, 0, 1, 0]
    assert plan_passes(ragged([(9, 8)] * 700), 100, 2, order).tolist() == [0] * 700


def test_overlap_keeps_items_with_equal_tokens_in_one_pass() -> None:
    items = [(1, 2), (3,), (1, 2), (4,), (3,), (5, 5), (1, 2)]
    plan = plan_passes(ragged(items), 2, 10, "overlap")
    assert plan[0] == plan[2] == plan[6]
    assert plan[1] == plan[4]
    assert int(plan.max()) == 1
    assert plan_passes(ragged([(9, 8)] * 700), 100, 2, "overlap").tolist() == [0] * 700


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
