"""Means with intervals and differences with p values, of one frame of metric values per query and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from crossjem_pl.evaluation.significance import bootstrap_interval, holm, randomisation_test

Frames = Mapping[str, Sequence[pd.DataFrame]]
"""System -> one frame for each seed: index query, columns metrics."""


def mean_cells(frames: Sequence[pd.DataFrame]) -> dict[str, dict[str, Any]]:
    """Column -> `mean` over queries and seeds, `low` and `high` of its 95% bootstrap interval over queries, `seeds`.

    Raises:
        ValueError: for frames of different queries; so in `differences`.
    """
    values = _mean(frames, frames[0].index)
    low, high = bootstrap_interval(values)
    return {
        str(name): {
            "mean": float(values[name].mean()),
            "low": float(low[i]),
            "high": float(high[i]),
            "seeds": [float(frame[name].mean()) for frame in frames],
        }
        for i, name in enumerate(values.columns)
    }


def differences(frames: Frames, baseline: str, metric: str) -> dict[str, dict[str, float]]:
    """Every other system minus the baseline on one metric, per query, seeds averaged first.

    Returns:
        System -> `mean`, `low`, `high` (95% bootstrap interval) and `p` of the paired randomisation test,
        Holm-corrected over the systems.
    """
    others = [name for name in frames if name != baseline]
    if not others or baseline not in frames:
        return {}
    queries = frames[baseline][0].index
    values = pd.DataFrame({name: _mean(own, queries)[metric] for name, own in frames.items()})
    columns = values[others].sub(values[baseline], axis=0)
    low, high = bootstrap_interval(columns)
    figures = {"mean": columns.mean(), "low": low, "high": high, "p": holm(randomisation_test(columns))}
    found: dict[str, dict[str, float]] = pd.DataFrame(figures, index=others).to_dict(orient="index")  # type: ignore[assignment]
    return found


def _mean(frames: Sequence[pd.DataFrame], queries: pd.Index) -> pd.DataFrame:
    """The mean of frames that all have these queries."""
    if not all(frame.index.equals(queries) for frame in frames):
        raise ValueError(
            "there are runs over different queries: take another --runs where the data has changed"
        )
    return sum(frames[1:], frames[0]) / len(frames)
