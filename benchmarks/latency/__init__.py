"""Latency and throughput of all rankers and of public cross-encoders, in one run on the same lists."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.latency.contenders import OwnRanker
from benchmarks.latency.turns import measured_lists, take_turns
from crossjem_pl.inference import Reranker

__all__ = ["measure"]


def measure(rerankers: Mapping[str, Reranker], items: int, rounds: int, warm: bool) -> dict[str, list[float]]:
    """Milliseconds of every round by ranker, texts in to sorted items out.

    Args:
        rerankers: by name; they take turns on every list.
        items: of every list.
        rounds: how many simulated lists; two more come first and are not counted.
        warm: whether the token caches know the texts.
    """
    contenders = [OwnRanker(name, reranker, warm) for name, reranker in rerankers.items()]
    return take_turns(contenders, measured_lists(items, rounds), warmup=2)
