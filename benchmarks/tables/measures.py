"""What a part of a table measures, from the run folders of its systems: one function per kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from crossjem_pl.data.formats import read_lists
from crossjem_pl.evaluation.classification import accuracies_at_recall, auc_roc
from crossjem_pl.evaluation.measures import evaluate_run
from crossjem_pl.evaluation.run_folder import StoredRun, read_stored_run
from crossjem_pl.evaluation.significance import bootstrap_interval, holm, randomisation_test

__all__ = ["Cell", "Difference", "accuracy", "differences", "filtering", "per_query"]

POOLED = ("AUC", "positive accuracy", "negative accuracy", "overall accuracy")
"""Columns that are figures of all (query, item) pairs together: no value per query."""


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
    frames = []
    for folder in folders:
        stored = read_stored_run(folder, split)
        if stored.qrels is None:
            raise ValueError(f"{folder} has no {split}.qrels: the lists have no whole-numbered labels")
        frames.append(evaluate_run(stored.scores, stored.qrels, list(metrics)).per_query)
    return frames


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


def filtering(folders: Sequence[Path], split: str, columns: Sequence[str]) -> dict[str, Cell]:
    """Ranking metrics and the pooled figures of filtering (AUC, accuracies at 80% of each query's positives)."""
    ranking = [name for name in columns if name not in POOLED]
    cells = accuracy(per_query(folders, split, ranking)) if ranking else {}
    found = [_pooled(read_stored_run(folder, split)) for folder in folders]
    for name in (name for name in columns if name in POOLED):
        seeds = tuple(figures[name] for figures in found)
        cells[name] = Cell(float(np.mean(seeds)), None, None, seeds)
    return cells


def _pooled(run: StoredRun) -> dict[str, float]:
    """AUC of all pairs, and the accuracies where each query keeps 80% of its positives (Table 7).

    Raises:
        ValueError: if the run folder does not hold the lists.
    """
    if run.lists is None:
        raise ValueError(f"{run.path} has no {run.split}_lists.parquet")
    lists = [one for one in read_lists(run.lists) if one.query_id in run.scores]
    shape = len(lists), max(len(one) for one in lists)
    scores, labels, mask = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape, dtype=torch.bool)
    for i, one in enumerate(lists):
        scores[i, : len(one)] = torch.tensor([run.scores[one.query_id][item] for item in one.item_ids])
        labels[i, : len(one)] = torch.tensor(one.labels)
        mask[i, : len(one)] = True
    kept = accuracies_at_recall(scores, labels, mask, keep=0.8)
    return {
        "AUC": float(auc_roc(scores, labels, mask)),
        "positive accuracy": kept.pooled("positive"),
        "negative accuracy": kept.pooled("negative"),
        "overall accuracy": kept.pooled("overall"),
    }
