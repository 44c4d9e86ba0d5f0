"""Measures a sweep: every system on lists of one size after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.latency.contenders import OwnRanker
from benchmarks.latency.turns import WARMUP, take_turns
from benchmarks.measuring.work import shape_of
from benchmarks.scaling.cost import Exponent, Tokens, count_tokens, fit_exponent, joint_cost, pointwise_cost
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import MonoBERT
from crossjem_pl.rankers.neural import NeuralRanker

__all__ = ["Point", "exponents", "sweep"]


@dataclass(frozen=True)
class Point:
    """One system at one size.

    Args:
        name: of the system.
        size: what is varied: items, or words in the pool.
        milliseconds: median latency, texts in to sorted items out.
        gflop: 10^9 operations of the model a list, by formula, padding included.
        paper_cost: of section 5.2, in squared tokens times layers; joint systems as one pass.
        tokens: items, query, item and union tokens.
    """

    name: str
    size: int
    milliseconds: float
    gflop: float
    paper_cost: float
    tokens: Tokens

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "compression": self.tokens.compression}


def sweep(
    contenders: Sequence[OwnRanker],
    lists_of: Mapping[int, Sequence[RankingList]],
    advance: Callable[[], object] = lambda: None,
) -> tuple[list[Point], dict[str, dict[str, list[float]]]]:
    """Points of every size and system, and the milliseconds of every round.

    Args:
        contenders: the systems; they take turns on every list.
        lists_of: size -> its lists, of which the first `WARMUP` are not counted.
        advance: called after every measurement.
    """
    points, times = [], {}
    for size, lists in lists_of.items():
        found = take_turns(contenders, lists, WARMUP, advance)
        times[str(size)] = found
        for one in contenders:
            ranker = one.reranker.ranker
            assert isinstance(ranker, NeuralRanker)
            tokens = count_tokens(ranker, lists[WARMUP:])
            layers = shape_of(ranker.encoder_config).layers
            cost = pointwise_cost if isinstance(ranker, MonoBERT) else joint_cost
            works = [work.flops for ranking_list in lists[WARMUP:] if (work := one.work([ranking_list]))]
            points.append(
                Point(
                    one.name,
                    size,
                    float(np.median(found[one.name])),
                    float(np.median(works)) / 1e9,
                    cost(tokens, layers),
                    tokens,
                )
            )
    return points, times


def exponents(points: Sequence[Point], against: Callable[[Point], float]) -> dict[str, dict[str, Exponent]]:
    """System -> `measured`, `flops`, `paper` -> the exponent over `against`."""
    out = {}
    for name in dict.fromkeys(point.name for point in points):
        own = [point for point in points if point.name == name]
        sizes = [against(point) for point in own]
        out[name] = {
            "measured": fit_exponent(sizes, [point.milliseconds for point in own]),
            "flops": fit_exponent(sizes, [point.gflop for point in own]),
            "paper": fit_exponent(sizes, [point.paper_cost for point in own]),
        }
    return out
