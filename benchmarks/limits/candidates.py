"""Accuracy and time against the number of candidates, and against the number of passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import pandas as pd

from benchmarks.limits.extended import Extended, cut
from benchmarks.limits.passes import Limits, limits_of, with_items_per_pass
from benchmarks.limits.scoring import METRICS, Scored, per_query, score_in_turn
from benchmarks.tables.measures import Cell, Difference, accuracy, differences
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM

__all__ = ["OWN", "by_items", "by_passes", "passes_work"]

OWN = "its own"
"""The limits that a model comes with."""

_WARMUP = 2
"""Lists that come first, once more than the others, and are not counted."""

Advance = Callable[[int], object]


def by_items(
    rerankers: Mapping[str, Reranker], lists: Sequence[Extended], sizes: Sequence[int], advance: Advance
) -> list[dict[str, Any]]:
    """One row per number of items and model, the models in their order, the first the baseline.

    A row: `model`, `items`, `milliseconds` (median), for each of `METRICS` its mean with interval, and `against`, the
    same metrics' differences to the baseline (None for the baseline itself).

    Args:
        rerankers: name -> model.
        lists: of max(sizes) items.
        sizes: numbers of items, ascending.
        advance: told the number of items after each list of each model.
    """
    score_in_turn(rerankers, [cut(one.ranking_list, sizes[0]) for one in lists[:_WARMUP]], lambda _: None)
    rows = []
    for size in sizes:
        shorter = [cut(one.ranking_list, size) for one in lists]
        found = _measured(shorter, score_in_turn(rerankers, shorter, advance), next(iter(rerankers)))
        rows += [{"model": name, "items": size, **row} for name, row in found.items()]
    return rows


def by_passes(
    rerankers: Mapping[str, Reranker],
    lists: Sequence[Extended],
    size: int,
    numbers: Sequence[int],
    advance: Advance,
) -> list[dict[str, Any]]:
    """One row per CROSS-JEM model and number of items a pass, on lists of `size` items; its own limits come first.

    A row: as in `by_items`, `limits` ("its own" or the number), `items_per_pass`, `union_tokens`, `passes` (mean), and
    `needed`, which is above `union_tokens` where the limit of the union could not be raised to it. `against` is the
    model with its own limits.

    Args:
        rerankers: name -> model; those that are no CROSS-JEM are passed over.
        lists: of at least `size` items.
        size: their number of items.
        numbers: of items a pass.
        advance: told the number of items after each list of each variant.
    """
    longest = [cut(one.ranking_list, size) for one in lists]
    rows = []
    for name, ranker in _joint(rerankers).items():
        variants = {OWN: ranker}
        variants |= {f"{number}": with_items_per_pass(ranker, number, longest) for number in numbers}
        behind = rerankers[name]
        scoring = {
            label: Reranker(variant, behind.device, behind.precision) for label, variant in variants.items()
        }
        found = _measured(longest, score_in_turn(scoring, longest, advance), OWN)
        for label, variant in variants.items():
            limits = limits_of(variant, longest)
            rows.append({"model": name, "limits": label, **_described(limits), **found[label]})
    return rows


def passes_work(rerankers: Mapping[str, Reranker], numbers: Sequence[int]) -> int:
    """How often `by_passes` scores every list."""
    return len(_joint(rerankers)) * (1 + len(numbers))


def _joint(rerankers: Mapping[str, Reranker]) -> dict[str, CrossJEM]:
    return {name: one.ranker for name, one in rerankers.items() if isinstance(one.ranker, CrossJEM)}


def _measured(
    lists: Sequence[RankingList], scored: Mapping[str, Scored], baseline: str
) -> dict[str, dict[str, Any]]:
    frames: dict[str, list[pd.DataFrame]] = {
        name: [per_query(lists, one.scores)] for name, one in scored.items()
    }
    cells = {name: accuracy(found) for name, found in frames.items()}
    against = {metric: differences(frames, baseline, metric) for metric in METRICS}
    return {
        name: {
            **{metric: _interval(cells[name][metric]) for metric in METRICS},
            "milliseconds": float(median(one.milliseconds)),
            "against": {metric: _compared(against[metric].get(name)) for metric in METRICS},
        }
        for name, one in scored.items()
    }


def _interval(cell: Cell) -> dict[str, float | None]:
    return {"mean": cell.mean, "low": cell.low, "high": cell.high}


def _compared(difference: Difference | None) -> dict[str, float] | None:
    return None if difference is None else asdict(difference)


def _described(limits: Limits) -> dict[str, Any]:
    return {
        "items_per_pass": limits.items,
        "union_tokens": limits.union_tokens,
        "needed": limits.needed,
        "passes": limits.passes,
    }
