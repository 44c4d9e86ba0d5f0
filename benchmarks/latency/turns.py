"""One query at a time: the contenders take turns on every list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.latency.contenders import Contender
from crossjem_pl.data.simulator import simulate
from crossjem_pl.lists import RankingList

__all__ = ["WARMUP", "measured_lists", "take_turns"]

WARMUP = 2
"""Rounds that come first and are not counted."""


def measured_lists(items: int, rounds: int, warmup: int = WARMUP) -> list[RankingList]:
    """Simulated lists of `items` keywords, the same for every contender and every run."""
    return list(simulate(rounds + warmup, items, seed=1, split="test"))


def take_turns(
    contenders: Sequence[Contender],
    lists: Iterable[RankingList],
    warmup: int = WARMUP,
    advance: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Milliseconds of every counted round by contender.

    On each list every contender is timed once, beginning with another one each time: a machine whose speed drifts
    slows all of them alike, and ratios can be taken list by list.
    """
    times: dict[str, list[float]] = {one.name: [] for one in contenders}
    for number, ranking_list in enumerate(lists):
        first = number % len(contenders)
        for contender in [*contenders[first:], *contenders[:first]]:
            contender.prepare([ranking_list])
            elapsed = contender.milliseconds([ranking_list])
            if number >= warmup:
                times[contender.name].append(elapsed)
            advance()
    return times
