"""A metric by a property of the lists, and the calibration of scores: figures of a report, as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crossjem_pl.evaluation.significance import bootstrap_interval

__all__ = ["break_down", "calibrate", "calibration_error", "word_overlap"]


def break_down(values: Mapping[str, float], per_query: pd.DataFrame, *, most: int = 5) -> pd.DataFrame:
    """Splits the queries into up to `most` groups of about equal size by a property.

    Queries with one value stay together, so groups may be uneven, and fewer where there are fewer values.

    Args:
        values: query id -> the property, rounded to two decimals; queries of `per_query` that it lacks are left out.
        per_query: index query id, one column of metric values per system.
        most: groups.

    Returns:
        By ascending values, index (`group`, `system`): the system's `mean` with its interval's ends `low` and `high`,
        and the number of `queries`.

    Raises:
        ValueError: if no query of `per_query` has a value.
    """
    numbers = pd.Series(values, dtype=float).round(2).reindex(per_query.index).dropna()
    if numbers.empty:
        raise ValueError("no judged query has a value of the property")
    distinct = np.unique(numbers)
    cuts = np.quantile(numbers, np.arange(1, most) / most, method="lower")
    ends = np.unique(np.append(cuts, distinct[-1])) if len(distinct) > most else distinct
    form = "{:,.0f}" if (numbers == numbers.round()).all() else "{:.2f}"
    groups = {}
    # a group ends with the value at its cut
    for _, inside in numbers.groupby(np.searchsorted(ends, numbers)):
        label = "–".join(dict.fromkeys(form.format(value) for value in (inside.min(), inside.max())))
        rows = per_query.loc[inside.index]
        low, high = bootstrap_interval(rows)
        figures = {"mean": rows.mean(), "low": low, "high": high, "queries": len(rows)}
        groups[label] = pd.DataFrame(figures, index=per_query.columns)
    return pd.concat(groups, names=["group", "system"])


def word_overlap(items: Sequence[str]) -> float:
    """Words of all items over distinct words: 1 where nothing is shared. White space separates words, case is ignored.

    Raises:
        ValueError: if the items hold no word.
    """
    words = [word for item in items for word in item.casefold().split()]
    if not words:
        raise ValueError("the items hold no word")
    return len(words) / len(set(words))


def calibrate(probabilities: NDArray[np.float64], relevant: NDArray[Any], bins: int = 10) -> pd.DataFrame:
    """Calibration in bins of equal mass (Nguyen and O'Connor, EMNLP 2015); torchmetrics has bins of equal width only.

    Equal probabilities share a bin, so there may be fewer bins and uneven ones.

    Args:
        probabilities: [items], in [0, 1].
        relevant: [items], 0 or 1.
        bins: at most.

    Returns:
        A row for each bin, ascending: mean `predicted` probability, `observed` share of relevant items, `items`.
    """
    frame = pd.DataFrame({"predicted": probabilities, "observed": relevant}).sort_values("predicted")
    marks = frame["predicted"].to_numpy()[np.arange(bins) * len(frame) // bins]
    found = frame.groupby(np.searchsorted(np.unique(marks), frame["predicted"], side="right"))
    return found.mean().assign(items=found.size()).reset_index(drop=True)


def calibration_error(bins: pd.DataFrame) -> float:
    """Expected calibration error: sum over bins of n_b / n * |predicted_b - observed_b|."""
    return float(np.average((bins["predicted"] - bins["observed"]).abs(), weights=bins["items"]))
