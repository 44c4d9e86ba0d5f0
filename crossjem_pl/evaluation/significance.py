"""Is a difference between two systems more than luck of the queries? Pure functions on arrays.

The values are those of one metric per query. A column is one comparison: every function takes `[queries]` or
`[queries, comparisons]` and works on all columns with the same random numbers, so that a result does not
depend on what else is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = ["WinTieLoss", "bootstrap_interval", "holm", "randomisation_test", "t_test", "win_tie_loss"]

FloatArray = NDArray[np.float64]

_EXACT_QUERIES = 20
"""Up to so many queries with a difference, all 2^n sign patterns are counted (about a million sums)."""
_CHUNK_VALUES = 1 << 22
"""Random numbers held at once: 32 MiB of float64."""


@dataclass(frozen=True, slots=True)
class WinTieLoss:
    """On how many queries a system is better than, equal to and worse than the other."""

    wins: int
    ties: int
    losses: int


def randomisation_test(differences: ArrayLike, *, samples: int = 100_000, seed: int = 0) -> FloatArray:
    """Fisher's paired randomisation test, two-sided.

    Under the null hypothesis each query's difference is as likely to have the other sign. The p-value is the
    share of sign patterns whose |mean| is at least the observed one: all 2^n patterns when at most 20
    differences are not 0, else (1 + hits) / (1 + samples) over random patterns (Smucker, Allan and
    Carterette, CIKM 2007; the added one keeps a sampled p-value above 0: Phipson and Smyth 2010).

    Args:
        differences: [queries] or [queries, comparisons].
        samples: random patterns where the count is not exact.
        seed: of the random patterns.

    Returns:
        p-values: a 0-d array or [comparisons].

    Raises:
        ValueError: for no queries, values that are not finite, or `samples` below 1.
    """
    columns, shape = _columns(differences, samples)
    observed = np.abs(columns.sum(axis=0))
    # sums of the same numbers in another order differ in the last bits
    least = observed - 1e-10 * np.abs(columns).sum(axis=0)
    result = np.ones(columns.shape[1])
    sampled = np.count_nonzero(columns, axis=0) > _EXACT_QUERIES
    for column in np.flatnonzero(~sampled):
        sums = np.zeros(1)
        for difference in columns[columns[:, column] != 0, column]:
            sums = np.concatenate((sums + difference, sums - difference))
        result[column] = np.mean(np.abs(sums) >= least[column])
    if sampled.any():
        chosen = columns[:, sampled]
        hits = np.zeros(chosen.shape[1])
        rng = np.random.default_rng(seed)
        for size in _chunks(samples, len(chosen)):
            bits = np.unpackbits(rng.integers(256, size=(size, -(-len(chosen) // 8)), dtype=np.uint8), axis=1)
            # the sum of s_i d_i with s_i = 2 b_i - 1
            sums = 2 * (bits[:, : len(chosen)].astype(np.float64) @ chosen) - chosen.sum(axis=0)
            hits += (np.abs(sums) >= least[sampled]).sum(axis=0)
        result[sampled] = (1 + hits) / (1 + samples)
    return result.reshape(shape)


def t_test(differences: ArrayLike) -> FloatArray:
    """Paired t-test, two-sided: p-values, a 0-d array or [comparisons].

    Where the differences do not vary, t has no scale: p is 1 if they are all 0 or there is one query, else 0.

    Raises:
        ValueError: for no queries or values that are not finite.
    """
    columns, shape = _columns(differences)
    result = np.where((columns == 0).all(axis=0) | (len(columns) == 1), 1.0, 0.0)
    varies = np.ptp(columns, axis=0) > 1e-12
    if varies.any():
        result[varies] = stats.ttest_1samp(columns[:, varies], 0.0, axis=0).pvalue
    return result.reshape(shape)


def holm(p_values: ArrayLike) -> FloatArray:
    """Holm's step-down correction: adjusted p-values [tests], in the order given.

    The i-th smallest of m becomes max over j <= i of min(1, (m - j + 1) p_(j)) (Holm 1979): comparing it with
    0.05 holds the chance of any false finding among the m below 5%, whatever the dependence between the
    tests.

    Raises:
        ValueError: if `p_values` is not a vector of numbers in [0, 1].
    """
    values = np.asarray(p_values, dtype=np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"expected a vector of p-values in [0, 1], got {p_values!r}")
    order = np.argsort(values, kind="stable")
    factors = np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * factors))
    return adjusted


def bootstrap_interval(
    values: ArrayLike, *, level: float = 0.95, samples: int = 10_000, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Percentile bootstrap interval of the mean over queries (Efron 1979): (low, high).

    For a paired difference pass the differences.

    Args:
        values: [queries] or [queries, columns].
        level: of the interval, inside (0, 1).
        samples: resamples of the queries.
        seed: of the resamples.

    Returns:
        Two 0-d arrays or two [columns].

    Raises:
        ValueError: for no queries, values that are not finite, `samples` below 1, or a level outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be inside (0, 1), got {level}")
    columns, shape = _columns(values, samples)
    queries = len(columns)
    rng = np.random.default_rng(seed)
    means = []
    for size in _chunks(samples, queries):
        drawn = rng.integers(queries, size=(size, queries)) + queries * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * queries).reshape(size, queries)
        means.append(counts.astype(np.float64) @ columns / queries)
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low.reshape(shape), high.reshape(shape)


def win_tie_loss(differences: ArrayLike, *, tolerance: float = 1e-9) -> WinTieLoss:
    """Counts the differences [queries] above, within and below `tolerance` of 0.

    Raises:
        ValueError: for no queries, values that are not finite, or more than one dimension.
    """
    columns, shape = _columns(differences)
    if shape:
        raise ValueError(f"expected [queries], got {columns.shape}")
    wins, losses = int((columns > tolerance).sum()), int((columns < -tolerance).sum())
    return WinTieLoss(wins, columns.size - wins - losses, losses)


def _columns(values: ArrayLike, samples: int = 1) -> tuple[FloatArray, tuple[Any, ...]]:
    """The values as [queries, columns], and the shape of a result per column."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"expected values [queries] or [queries, comparisons], got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"value of query {int(np.argwhere(~np.isfinite(array))[0][0])} is not finite")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    return array.reshape(len(array), -1), array.shape[1:]


def _chunks(samples: int, queries: int) -> list[int]:
    """Sizes of the chunks that add up to `samples`."""
    size = max(1, min(samples, _CHUNK_VALUES // queries))
    full, rest = divmod(samples, size)
    return [size] * full + [rest] * (rest > 0)
