"""A metric by a property of the lists: the lists in a few buckets, a mean and an interval in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crossjem_pl.evaluation.significance import bootstrap_interval

__all__ = ["Breakdown", "Bucket", "break_down", "word_overlap"]


@dataclass(frozen=True)
class Bucket:
    """Some of the lists.

    Args:
        label: the values of the property that are in it.
        queries: how many lists.
        means: of each system, and the ends of its 95% bootstrap interval.
    """

    label: str
    queries: int
    means: dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Breakdown:
    """A metric in every bucket of a property.

    Args:
        property: what the lists are told apart by, as an axis is labelled.
        metric: its name.
        buckets: by ascending values.
        left_out: judged queries whose property is not known.
    """

    property: str
    metric: str
    buckets: tuple[Bucket, ...]
    left_out: int


def break_down(
    property_name: str,
    values: Mapping[str, float],
    per_query: pd.DataFrame,
    metric: str,
    *,
    most: int = 5,
    seed: int = 0,
) -> Breakdown:
    """Splits the queries into up to `most` buckets of about equal size by a property.

    Queries with one value stay together, so buckets may be uneven, and fewer where there are fewer values.

    Args:
        property_name: for the headings.
        values: query id -> the property; queries of `per_query` that it lacks are counted and left out.
        per_query: index query id, one column of metric values per system.
        metric: name of that metric.
        most: buckets.
        seed: of the bootstrap.

    Raises:
        ValueError: if no query of `per_query` has a value.
    """
    known = per_query.index[[query in values for query in per_query.index]]
    if known.empty:
        raise ValueError(f"no judged query has a value of {property_name!r}")
    numbers = np.array([values[str(query)] for query in known], dtype=np.float64)
    whole = bool((numbers == np.round(numbers)).all())
    found = []
    for low, high in _ranges(numbers, most):
        inside = (numbers >= low) & (numbers <= high)
        rows = per_query.loc[known[inside]].to_numpy(dtype=np.float64)
        lows, highs = bootstrap_interval(rows, seed=seed)
        means = {
            str(system): (float(rows[:, i].mean()), float(lows[i]), float(highs[i]))
            for i, system in enumerate(per_query.columns)
        }
        found.append(Bucket(_label(low, high, whole), int(inside.sum()), means))
    return Breakdown(property_name, metric, tuple(found), len(per_query) - len(known))


def word_overlap(items: Sequence[str]) -> float:
    """Words of all items over distinct words: 1 where nothing is shared. White space parts words, case is ignored.

    Raises:
        ValueError: if the items hold no word.
    """
    words = [word for item in items for word in item.casefold().split()]
    if not words:
        raise ValueError("the items hold no word")
    return len(words) / len(set(words))


def _ranges(numbers: NDArray[np.float64], most: int) -> list[tuple[float, float]]:
    """Smallest and largest value of each bucket."""
    distinct = np.unique(numbers)
    if len(distinct) <= most:
        return [(float(value), float(value)) for value in distinct]
    cuts = np.quantile(numbers, np.arange(1, most) / most, method="lower")
    # a bucket ends with the value at its cut; equal cuts are one
    ends = np.unique(np.concatenate([cuts, distinct[-1:]]))
    ranges, low = [], distinct[0]
    for end in ends:
        ranges.append((float(low), float(end)))
        low = distinct[min(np.searchsorted(distinct, end, side="right"), len(distinct) - 1)]
    return ranges


def _label(low: float, high: float, whole: bool) -> str:
    if whole:
        return f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"
    return f"{low:.2f}" if low == high else f"{low:.2f}–{high:.2f}"
