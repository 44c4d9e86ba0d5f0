"""What a part of a table measures, from the run folders of its systems: one function per kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from crossjem_pl.evaluation.measures import Evaluation, evaluate_run
from crossjem_pl.evaluation.runs import read_run_folder
from crossjem_pl.evaluation.significance import bootstrap_interval, holm, randomisation_test

__all__ = ["Cell", "Difference", "accuracy", "differences", "filtering", "per_query"]


@dataclass(frozen=True)
class Cell:
    """A figure of one system.

    Args:
        mean: over queries and seeds.
        low, high: 95% bootstrap interval over queries of the mean over seeds; None for pooled figures.
        seeds: the mean of every seed.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: tuple[float, ...]


@dataclass(frozen=True)
class Difference:
    """A system minus the baseline, per query, seeds averaged first.

    Args:
        mean, low, high: of the difference, with its 95% bootstrap interval.
        p: of the paired randomisation test, Holm-corrected over the other systems.
    """

    mean: float
    low: float
    high: float
    p: float


def per_query(folders: Sequence[Path], split: str, metrics: Sequence[str]) -> list[pd.DataFrame]:
    """One frame per seed, index query, columns metrics."""
    return [_evaluate(folder, split, metrics).per_query for folder in folders]


def accuracy(frames: Sequence[pd.DataFrame]) -> dict[str, Cell]:
    """Mean and interval of each column of the frames (`per_query`), one frame per seed."""
    mean = np.mean([frame.to_numpy() for frame in frames], axis=0)
    low, high = bootstrap_interval(mean)
    return {
        str(name): Cell(
            float(mean[:, i].mean()),
            float(low[i]),
            float(high[i]),
            tuple(float(frame.iloc[:, i].mean()) for frame in frames),
        )
        for i, name in enumerate(frames[0].columns)
    }


def differences(
    frames: Mapping[str, Sequence[pd.DataFrame]], baseline: str, metric: str
) -> dict[str, Difference]:
    """Every other system against the baseline on one metric."""
    values = {
        name: np.mean([frame[metric].to_numpy() for frame in found], axis=0) for name, found in frames.items()
    }
    others = [name for name in values if name != baseline]
    if not others:
        return {}
    columns = np.stack([values[name] - values[baseline] for name in others], axis=1)
    low, high = bootstrap_interval(columns)
    p = holm(randomisation_test(columns))
    return {
        name: Difference(float(columns[:, i].mean()), float(low[i]), float(high[i]), float(p[i]))
        for i, name in enumerate(others)
    }


def filtering(folders: Sequence[Path], split: str, metrics: Sequence[str]) -> dict[str, Cell]:
    """Ranking metrics per query; of AUC and accuracies the figure of all (query, item) pairs together, as the paper."""
    found = [_evaluate(folder, split, metrics) for folder in folders]
    pooled = set(found[0].pooled)
    ranking = [name for name in found[0].per_query.columns if name not in pooled]
    cells = accuracy([evaluation.per_query[ranking] for evaluation in found]) if ranking else {}
    for name in pooled:
        seeds = tuple(evaluation.pooled[name] for evaluation in found)
        cells[name] = Cell(float(np.mean(seeds)), None, None, seeds)
    return cells


def _evaluate(folder: Path, split: str, metrics: Sequence[str]) -> Evaluation:
    stored = read_run_folder(folder, split, curves=False)
    if stored.qrels is None or stored.scores is None:
        raise ValueError(f"{folder} has no {split}.qrels: the lists have no whole-numbered labels")
    return evaluate_run(stored.scores, stored.qrels, list(metrics))
