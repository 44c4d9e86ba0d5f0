"""Means with intervals and differences with p values, of one frame of metric values per query and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from crossjem_pl.evaluation.significance import bootstrap_interval, holm, randomisation_test

Frames = Mapping[str, Sequence[pd.DataFrame]]
"""System -> one frame for each seed: index query, columns metrics."""


def mean_cells(frames: Sequence[pd.DataFrame]) -> dict[str, dict[str, Any]]:
    """Column -> `mean` over queries and seeds, `low` and `high` of its 95% bootstrap interval over queries, `seeds`."""
    values = np.mean([frame.to_numpy(dtype=np.float64) for frame in frames], axis=0)
    low, high = bootstrap_interval(values)
    return {
        str(name): {
            "mean": float(values[:, i].mean()),
            "low": float(low[i]),
            "high": float(high[i]),
            "seeds": [float(frame.iloc[:, i].mean()) for frame in frames],
        }
        for i, name in enumerate(frames[0].columns)
    }


def differences(frames: Frames, baseline: str, metric: str) -> dict[str, dict[str, float]]:
    """Every other system minus the baseline on one metric, per query, seeds averaged first.

    Returns:
        System -> `mean`, `low`, `high` (95% bootstrap interval) and `p` of the paired randomisation test,
        Holm-corrected over the systems.
    """
    values = {
        name: np.mean([frame[metric].to_numpy() for frame in own], axis=0) for name, own in frames.items()
    }
    others = [name for name in values if name != baseline]
    if not others or baseline not in values:
        return {}
    columns = np.stack([values[name] - values[baseline] for name in others], axis=1)
    low, high = bootstrap_interval(columns)
    p = holm(randomisation_test(columns))
    means = columns.mean(axis=0)
    return {
        name: {"mean": float(means[i]), "low": float(low[i]), "high": float(high[i]), "p": float(p[i])}
        for i, name in enumerate(others)
    }
