"""A metric by a property of the lists, and the calibration of scores: figures of a report, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from crossjem_pl.evaluation.charts import Estimate
from crossjem_pl.evaluation.significance import bootstrap_interval

__all__ = ["Breakdown", "Bucket", "Calibration", "break_down", "calibrate", "word_overlap"]


@dataclass(frozen=True)
class Bucket:
    """Some of the lists: the values of the property, how many lists, and each system's mean with its interval."""

    label: str
    queries: int
    means: dict[str, Estimate]


@dataclass(frozen=True)
class Breakdown:
    """A metric in every bucket of a property.

    Args:
        property: by which the lists are grouped, as an axis is labelled.
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
    distinct = np.unique(numbers)
    cuts = (
        np.quantile(numbers, np.arange(1, most) / most, method="lower") if len(distinct) > most else distinct
    )
    ends = np.unique(np.append(cuts, distinct[-1]))  # a bucket ends with the value at its cut
    form = "{:,.0f}" if (numbers == np.round(numbers)).all() else "{:.2f}"
    buckets, low = [], -np.inf
    for end in ends:
        inside = (numbers > low) & (numbers <= end)
        rows = per_query.loc[known[inside]].to_numpy(dtype=np.float64)
        estimates = zip(
            per_query.columns, rows.mean(axis=0), *bootstrap_interval(rows, seed=seed), strict=True
        )
        means = {str(name): Estimate(*map(float, figures)) for name, *figures in estimates}
        labels = dict.fromkeys(form.format(value) for value in (numbers[inside].min(), end))
        buckets.append(Bucket("–".join(labels), int(inside.sum()), means))
        low = end
    return Breakdown(property_name, metric, tuple(buckets), len(per_query) - len(known))


def word_overlap(items: Sequence[str]) -> float:
    """Words of all items over distinct words: 1 where nothing is shared. White space separates words, case is ignored.

    Raises:
        ValueError: if the items hold no word.
    """
    words = [word for item in items for word in item.casefold().split()]
    if not words:
        raise ValueError("the items hold no word")
    return len(words) / len(set(words))


@dataclass(frozen=True)
class Calibration:
    """Items in bins of about equal size by their predicted probability, ascending.

    Args:
        predicted: mean predicted probability, float64 [bins].
        observed: share of relevant items, float64 [bins].
        items: int64 [bins].
    """

    predicted: NDArray[np.float64]
    observed: NDArray[np.float64]
    items: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: sum over bins of n_b / n * |predicted_b - observed_b|."""
        return float(np.average(np.abs(self.predicted - self.observed), weights=self.items))


def calibrate(probabilities: ArrayLike, relevant: ArrayLike, bins: int = 10) -> Calibration:
    """Calibration in bins of equal mass (Nguyen and O'Connor, EMNLP 2015); torchmetrics has bins of equal width only.

    Equal probabilities share a bin, so there may be fewer bins and uneven ones.

    Args:
        probabilities: [items], in [0, 1].
        relevant: [items], 0 or 1.
        bins: at most.

    Raises:
        ValueError: for no items, unequal lengths, or a probability outside [0, 1].
    """
    values, truth = np.asarray(probabilities, dtype=np.float64), np.asarray(relevant, dtype=np.float64)
    if values.ndim != 1 or values.shape != truth.shape or not values.size:
        raise ValueError(f"expected two vectors of one length, got {values.shape} and {truth.shape}")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a probability is outside [0, 1]")
    order = np.argsort(values, kind="stable")
    values, truth = values[order], truth[order]
    marks = np.arange(bins) * len(values) // bins
    starts = np.unique(np.searchsorted(values, values[marks], side="left"))
    items = np.diff(np.append(starts, len(values)))
    return Calibration(np.add.reduceat(values, starts) / items, np.add.reduceat(truth, starts) / items, items)
