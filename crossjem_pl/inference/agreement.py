"""How far two models' rankings of the same lists agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import kendalltau
from torch import Tensor

__all__ = ["Agreement", "agreement"]


@dataclass(frozen=True)
class Agreement:
    """Two sets of scores of the same lists.

    Args:
        difference: the greatest difference of two scores of the same item.
        tau: Kendall's tau-b, mean over the lists where it is defined; 1 if it is defined on none and the
            scores are equal up to a shift, else NaN.
        top10: share of the ten best items that are the same, mean over the lists.
    """

    difference: float
    tau: float
    top10: float


def agreement(first: Sequence[Tensor], second: Sequence[Tensor]) -> Agreement:
    """Agreement of two models' scores, float [items] for each list.

    Raises:
        ValueError: if there are no lists.
    """
    if not first:
        raise ValueError("no lists to compare the rankings of")
    pairs = [(a.double().numpy(), b.double().numpy()) for a, b in zip(first, second, strict=True)]
    taus = [float(kendalltau(a, b).statistic) for a, b in pairs if np.ptp(a) > 0 and np.ptp(b) > 0]
    flat = all(np.ptp(a) == np.ptp(b) == 0 for a, b in pairs)
    return Agreement(
        difference=max(float(np.abs(a - b).max()) for a, b in pairs),
        tau=float(np.mean(taus)) if taus else (1.0 if flat else math.nan),
        top10=float(np.mean([_shared_top(a, b) for a, b in pairs])),
    )


def _shared_top(a: np.ndarray, b: np.ndarray, k: int = 10) -> float:
    k = min(k, len(a))
    best = [set(np.argsort(-scores, kind="stable")[:k].tolist()) for scores in (a, b)]
    return len(best[0] & best[1]) / k
