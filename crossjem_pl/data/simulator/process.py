"""The generative process: query intent, wording, candidate keywords, teacher scores and clicks."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from crossjem_pl.data.simulator.clicks import click_probability
from crossjem_pl.data.simulator.intents import SPLITS, Draw, Intent, Split, draw_query_intent, split_of
from crossjem_pl.data.simulator.retrieval import retrieve
from crossjem_pl.data.simulator.wording import misspell, word_query
from crossjem_pl.data.simulator.world import World, build_world, uniforms
from crossjem_pl.lists import RankingList

__all__ = ["simulate"]

TEACHER_NOISE = 0.04
QUERY_MISSPELLING_SHARE = 0.15


def simulate(
    n_lists: int, n_items: int = 100, seed: int = 0, start: int = 0, split: Split = "train"
) -> Iterator[RankingList]:
    """Lists `start` to `start + n_lists - 1` of a split of a simulated sponsored-search log.

    List i is a pure function of (`seed`, `split`, i, `n_items`): any slice can be made alone and in parallel.
    Its query depends on (`seed`, `split`, i) only. Splits share no query intent, so they share no query.

    Args:
        n_lists: number of lists, 0 or more.
        n_items: N, the number of different keywords in each list, at least 1.
        seed: non-negative integer; fixes brands, places and every draw.
        start: index of the first list, 0 or more.
        split: "train", "dev" or "test".

    Yields:
        Lists with query id "<split>-<index>", N item ids that are hashes of the keywords (one keyword has one
        id everywhere), labels (N floats, 1.0 for a click and 0.0 for none) and scores (N floats in [0, 1], 4
        decimals: the true graded relevance with a little noise, as a teacher would give).

    Raises:
        ValueError: at the call, naming the argument, for a value out of range.
    """
    for name, value, least in (
        ("n_lists", n_lists, 0),
        ("n_items", n_items, 1),
        ("seed", seed, 0),
        ("start", start, 0),
    ):
        if value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    if split not in SPLITS:
        raise ValueError(f"split: expected one of {SPLITS}, got {split!r}")
    return _lists(build_world(seed), range(start, start + n_lists), n_items, seed, split)


def _lists(world: World, indices: range, n_items: int, seed: int, split: Split) -> Iterator[RankingList]:
    for index in indices:
        yield _list(world, index, n_items, uniforms(seed, index, SPLITS.index(split) + 1).__next__, split)


def _list(world: World, index: int, n_items: int, draw: Draw, split: Split) -> RankingList:
    intent = _intent(world, draw, split)
    query = word_query(world, intent, draw)
    if draw() < QUERY_MISSPELLING_SHARE:
        query = misspell(world, query, draw)
    candidates = retrieve(world, intent, n_items, draw)
    return RankingList(
        query_id=f"{split}-{index}",
        query=query,
        item_ids=tuple(_item_id(c.text) for c in candidates),
        items=tuple(c.text for c in candidates),
        labels=tuple(float(draw() < click_probability(c.relevance)) for c in candidates),
        scores=tuple(_teacher(c.relevance, draw) for c in candidates),
    )


def _intent(world: World, draw: Draw, split: Split) -> Intent:
    while True:
        intent = draw_query_intent(world, draw)
        if split_of(world, intent) == split:
            return intent


def _teacher(relevance: float, draw: Draw) -> float:
    """Relevance with triangular noise of half-width `TEACHER_NOISE`, clipped to [0, 1]."""
    noisy = relevance + TEACHER_NOISE * (draw() + draw() - 1.0)
    return round(min(1.0, max(0.0, noisy)), 4)


def _item_id(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()
