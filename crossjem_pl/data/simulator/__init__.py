"""A simulated sponsored-search log: queries, keywords, graded relevance, clicks (docs/simulator.md)."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from crossjem_pl.data.simulator.intents import SPLITS, Draw, Split, draw_query_intent, split_of
from crossjem_pl.data.simulator.keywords import misspell, retrieve, write
from crossjem_pl.data.simulator.world import World, build_world, uniforms
from crossjem_pl.lists import RankingList

__all__ = ["SPLITS", "Split", "click_probability", "simulate"]

TEACHER_NOISE = 0.04
QUERY_MISSPELLING_SHARE = 0.15
NOISE_CLICKS, ATTENTION = 0.005, 0.75


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
        Lists with query id "<split>-<index>", N item ids (hashes of the keywords), labels (N floats, 1.0 for a click)
        and scores (N floats in [0, 1], 4 decimals: the true graded relevance with a little noise, as of a teacher).

    Raises:
        ValueError: at the call, naming the argument, for a value out of range.
    """
    least = {"n_lists": 0, "n_items": 1, "seed": 0, "start": 0}
    for (name, minimum), value in zip(least.items(), (n_lists, n_items, seed, start), strict=True):
        if value < minimum:
            raise ValueError(f"{name}: expected at least {minimum}, got {value}")
    if split not in SPLITS:
        raise ValueError(f"split: expected one of {SPLITS}, got {split!r}")
    world = build_world(seed)
    return (
        _list(world, index, n_items, uniforms(seed, index, SPLITS.index(split) + 1).__next__, split)
        for index in range(start, start + n_lists)
    )


def _list(world: World, index: int, n_items: int, draw: Draw, split: Split) -> RankingList:
    intent = draw_query_intent(world, draw)
    while split_of(world, intent) != split:
        intent = draw_query_intent(world, draw)
    query = write(world, intent, draw)
    if draw() < QUERY_MISSPELLING_SHARE:
        query = misspell(world, query, draw)
    texts, relevances = zip(*retrieve(world, intent, n_items, draw), strict=True)
    return RankingList(
        query_id=f"{split}-{index}",
        query=query,
        item_ids=tuple(blake2b(text.encode(), digest_size=8).hexdigest() for text in texts),
        items=texts,
        labels=tuple(float(draw() < click_probability(relevance)) for relevance in relevances),
        scores=tuple(
            round(min(1.0, max(0.0, relevance + TEACHER_NOISE * (draw() + draw() - 1.0))), 4)
            for relevance in relevances
        ),
    )


def click_probability(relevance: float) -> float:
    """P(click | r) = e + (1 - e) a r^4, noise e = 0.005, attention a = 0.75; position plays no part."""
    square = relevance * relevance
    return NOISE_CLICKS + (1.0 - NOISE_CLICKS) * ATTENTION * square * square
