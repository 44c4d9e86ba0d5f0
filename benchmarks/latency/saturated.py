"""Several queries at a time: the most pairs a second that a contender reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.latency.contenders import Contender
from crossjem_pl.data.simulator import simulate
from crossjem_pl.lists import RankingList

__all__ = ["Throughput", "batch_sizes", "saturate", "saturated_lists"]


@dataclass(frozen=True)
class Throughput:
    """The best of a contender over the batch sizes tried.

    Args:
        items: of each list.
        name: of the contender.
        queries: lists of the fastest batch.
        pairs_per_second: of that batch, texts in to sorted items out.
        tried: queries a batch -> pairs a second.
    """

    items: int
    name: str
    queries: int
    pairs_per_second: float
    tried: dict[int, float]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def batch_sizes(items: int, most_pairs: int) -> list[int]:
    """1, 4, 16, 64 and 256 queries a batch, as far as `most_pairs` allows; one query always."""
    return [1] + [queries for queries in (4, 16, 64, 256) if queries * items <= most_pairs]


def saturated_lists(items: int, queries: int, rounds: int) -> list[list[RankingList]]:
    """The batches that `saturate` measures, the one that is not counted first."""
    lists = list(simulate(queries * (rounds + 1), items, seed=2, split="test"))
    return [lists[first : first + queries] for first in range(0, len(lists), queries)]


def saturate(
    contenders: Sequence[Contender], items: int, most_pairs: int, rounds: int, longest: float = float("inf")
) -> list[Throughput]:
    """Every contender's best batch; medians of `rounds` batches, after one that is not counted.

    The contenders take turns on every batch.

    Args:
        contenders: all of them.
        items: of every list.
        most_pairs: see `batch_sizes`.
        rounds: counted batches.
        longest: seconds; a batch that would take a contender longer, at the pace of the last, is not tried.
    """
    tried: dict[str, dict[int, float]] = {one.name: {} for one in contenders}
    for queries in batch_sizes(items, most_pairs):
        contenders = [
            one
            for one in contenders
            if not tried[one.name] or queries * items / list(tried[one.name].values())[-1] <= longest
        ]
        times: dict[str, list[float]] = {one.name: [] for one in contenders}
        for number, lists in enumerate(saturated_lists(items, queries, rounds)):
            for contender in contenders:
                contender.prepare(lists)
                elapsed = contender.milliseconds(lists)
                if number:
                    times[contender.name].append(elapsed)
        for name, values in times.items():
            tried[name][queries] = 1000 * queries * items / float(np.median(values))
    best = {name: max(found, key=lambda queries: found[queries]) for name, found in tried.items()}
    return [Throughput(items, name, best[name], found[best[name]], found) for name, found in tried.items()]
