"""The generative process: query intent, text, candidate keywords, teacher scores, clicks; and sessions of users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from crossjem_pl.data.simulator.intents import SPLITS, Draw, Split, draw_query_intent, split_of
from crossjem_pl.data.simulator.keywords import misspell, retrieve, write
from crossjem_pl.data.simulator.world import World, build_world, uniforms
from crossjem_pl.lists import RankingList

__all__ = ["Session", "click_probability", "quick_back_probability", "simulate", "simulate_sessions"]

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


def quick_back_probability(relevance: float) -> float:
    """P(quick-back | click, r) = 0.05 + 0.75 (1 - r)."""
    return 0.05 + 0.75 * (1.0 - relevance)


class Session(NamedTuple):
    """One impression of a list: which of its N items were clicked, and from which of these the user came back at once.
    A click without a quick-back is a "good click"."""

    query_id: str
    clicks: tuple[bool, ...]
    quick_backs: tuple[bool, ...]


def simulate_sessions(lists: Iterable[RankingList], sessions: int = 1, seed: int = 0) -> Iterator[Session]:
    """Shows each list `sessions` times to users who examine every item of it.

    The scores of the lists are taken as true relevance. To show only what a ranker puts on top, cut the lists
    first (`RankingList.select`). The outcome of a session depends on `seed`, the query id and the session's
    number, not on the other lists.

    Args:
        lists: lists with scores in [0, 1].
        sessions: impressions of each list, at least 1.
        seed: non-negative integer.

    Yields:
        `sessions` sessions for each list, in order.

    Raises:
        ValueError: a negative seed or fewer than 1 session; a list without scores or with a score outside [0, 1]
            (names the list), when the iteration reaches it.
    """
    if seed < 0 or sessions < 1:
        raise ValueError(f"sessions must be at least 1 and seed at least 0, got {sessions} and {seed}")
    for ranking_list in lists:
        scores = ranking_list.scores
        if scores is None or min(scores) < 0 or max(scores) > 1:
            raise ValueError(f"list {ranking_list.query_id!r}, field 'scores': sessions need them in [0, 1]")
        key = int.from_bytes(blake2b(ranking_list.query_id.encode(), digest_size=8).digest(), "big")
        for number in range(sessions):
            stream = uniforms(seed, key, number)
            clicks = tuple(next(stream) < click_probability(score) for score in scores)
            back = tuple(next(stream) < quick_back_probability(score) for score in scores)
            quick = tuple(click and b for click, b in zip(clicks, back, strict=True))
            yield Session(ranking_list.query_id, clicks, quick)
