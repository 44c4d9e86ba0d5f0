"""Is a difference between two systems more than luck of the queries? Tests and intervals of scipy.stats.

The values are those of one metric per query, [queries] or [queries, comparisons]: a column is one comparison, and its
result does not depend on the other columns. Results are 0-d arrays or [comparisons]. All functions raise `ValueError`
for no queries and for values that are not finite. scipy is imported when something is tested.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["bootstrap_interval", "equivalence_test", "holm", "randomisation_test", "t_test"]

FloatArray = NDArray[np.float64]

_BATCH_VALUES = 1 << 22
"""Random numbers held at once: 32 MiB of float64."""


def randomisation_test(differences: ArrayLike, *, samples: int = 20_000, seed: int = 0) -> FloatArray:
    """Fisher's paired randomisation test, two-sided: p-values.

    Under the null hypothesis each query's difference is as likely to have the other sign. The p-value is the share of
    sign patterns whose |mean| is at least the observed one: of all 2^n patterns of the n differences that are not 0
    where these are at most `samples`, else (1 + hits) / (1 + samples) of random patterns on each side (Smucker, Allan
    and Carterette, CIKM 2007; Phipson and Smyth 2010). See `scipy.stats.permutation_test`.
    """
    from scipy.stats import permutation_test

    columns, shape = _columns(differences)
    result = np.ones(columns.shape[1])
    for i, column in enumerate(columns.T):
        changed = column[column != 0]  # a zero is the same with either sign
        if len(changed) > 1:
            result[i] = permutation_test(
                (changed,),
                np.sum,
                permutation_type="samples",
                vectorized=True,
                n_resamples=samples,
                batch=max(1, _BATCH_VALUES // len(changed)),
                rng=seed,
            ).pvalue
    return result.reshape(shape)


def t_test(differences: ArrayLike) -> FloatArray:
    """Paired t-test, two-sided: p-values; 1 where t has no value."""
    columns, shape = _columns(differences)
    return _one_sample(columns, 0.0, "two-sided").reshape(shape)


def equivalence_test(differences: ArrayLike, margin: float) -> FloatArray:
    """Two one-sided t-tests (TOST, Schuirmann 1987) of |mean| < margin: p-values.

    A large p of a test for a difference does not show that two systems are level; a small p of this one does.

    Raises:
        ValueError: for a margin not above 0.
    """
    if not margin > 0:
        raise ValueError(f"the margin must be above 0, got {margin}")
    columns, shape = _columns(differences)
    above, below = _one_sample(columns, -margin, "greater"), _one_sample(columns, margin, "less")
    return np.maximum(above, below).reshape(shape)


def holm(p_values: ArrayLike) -> FloatArray:
    """Holm's step-down correction: adjusted p-values [tests], in the order given.

    The i-th smallest of m becomes max over j <= i of min(1, (m - j + 1) p_(j)) (Holm 1979): comparing it with 0.05
    holds the chance of any false finding among the m below 5%, whatever the dependence between the tests.

    Raises:
        ValueError: if `p_values` is not a vector of numbers in [0, 1].
    """
    values = np.asarray(p_values, dtype=np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"expected a vector of p-values in [0, 1], got {p_values!r}")
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)).clip(max=1.0)
    return adjusted


def bootstrap_interval(
    values: ArrayLike, *, level: float = 0.95, samples: int = 10_000, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Percentile bootstrap interval (low, high) of the mean over queries (Efron 1979).

    For a paired difference pass the differences. All columns share the `samples` resamples of the queries.
    """
    from scipy.stats import bootstrap

    columns, shape = _columns(values)
    if len(columns) == 1:
        return columns[0].reshape(shape), columns[0].reshape(shape)
    low, high = bootstrap(
        (columns,),
        np.mean,
        axis=0,
        method="percentile",
        confidence_level=level,
        n_resamples=samples,
        batch=max(1, _BATCH_VALUES // columns.size),
        rng=seed,
    ).confidence_interval
    return np.reshape(low, shape), np.reshape(high, shape)


def _one_sample(columns: FloatArray, mean: float, alternative: str) -> FloatArray:
    """p of t-tests per column; 1 where t has no value: for one query, or where all differences equal `mean`."""
    from scipy.stats import ttest_1samp

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # differences that do not vary
        p = ttest_1samp(columns, mean, axis=0, alternative=alternative).pvalue
    return np.nan_to_num(p, nan=1.0)


def _columns(values: ArrayLike) -> tuple[FloatArray, tuple[Any, ...]]:
    """The values as [queries, columns], and the shape of a result per column."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"expected values [queries] or [queries, comparisons], got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"value of query {int(np.argwhere(~np.isfinite(array))[0][0])} is not finite")
    return array.reshape(len(array), -1), array.shape[1:]
