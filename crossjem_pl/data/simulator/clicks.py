"""Click model: which keywords users click, and whether they come back quickly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from crossjem_pl.data.simulator.world import uniforms
from crossjem_pl.lists import RankingList

__all__ = ["Session", "click_probability", "quick_back_probability", "simulate_sessions"]

NOISE_CLICKS = 0.005
ATTENTION = 0.75
QUICK_BACK_FLOOR, QUICK_BACK_SLOPE = 0.05, 0.75


def click_probability(relevance: float) -> float:
    """P(click | r) = e + (1 - e) a r^4, noise e = 0.005, attention a = 0.75; position plays no part."""
    square = relevance * relevance
    return NOISE_CLICKS + (1.0 - NOISE_CLICKS) * ATTENTION * square * square


def quick_back_probability(relevance: float) -> float:
    """P(quick-back | click, r) = 0.05 + 0.75 (1 - r)."""
    return QUICK_BACK_FLOOR + QUICK_BACK_SLOPE * (1.0 - relevance)


@dataclass(frozen=True, slots=True)
class Session:
    """One impression of a list: which of its N items were clicked, and from which the user came back.

    Args:
        query_id: the list's.
        clicks: N booleans.
        quick_backs: N booleans, True where a click ended at once. A click without it is a "good click".
    """

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
        ValueError: for a negative seed or fewer than 1 session (at the call); for a list without scores or
            with a score outside [0, 1] (names the list and the position, when the iteration reaches it).
    """
    if seed < 0:
        raise ValueError(f"seed: expected a non-negative integer, got {seed}")
    if sessions < 1:
        raise ValueError(f"sessions: expected at least 1, got {sessions}")
    return _sessions(lists, sessions, seed)


def _sessions(lists: Iterable[RankingList], sessions: int, seed: int) -> Iterator[Session]:
    for ranking in lists:
        scores = _relevances(ranking)
        key = int.from_bytes(blake2b(ranking.query_id.encode(), digest_size=8).digest(), "big")
        for number in range(sessions):
            stream = uniforms(seed, key, number)
            clicks = tuple(next(stream) < click_probability(score) for score in scores)
            back = tuple(next(stream) < quick_back_probability(score) for score in scores)
            yield Session(ranking.query_id, clicks, tuple(c and b for c, b in zip(clicks, back, strict=True)))


def _relevances(ranking: RankingList) -> tuple[float, ...]:
    if ranking.scores is None:
        raise ValueError(f"list {ranking.query_id!r}, field 'scores': sessions need them, the list has none")
    for i, score in enumerate(ranking.scores):
        if not 0.0 <= score <= 1.0:
            raise ValueError(
                f"list {ranking.query_id!r}, field 'scores', position {i}: {score} is outside [0, 1]"
            )
    return ranking.scores
