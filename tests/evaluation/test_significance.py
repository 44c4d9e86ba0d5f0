"""Tests, corrections and intervals against brute force, scipy and their statistical promises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from crossjem_pl.evaluation.significance import (
    bootstrap_interval,
    equivalence_test,
    holm,
    randomisation_test,
    t_test,
)


def test_exact_randomisation_counts_all_sign_patterns() -> None:
    differences = np.array([0.5, 0.0, -0.1, 0.3, 0.3, 0.2, 0.0])
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((1, -1), repeat=7)]
    expected = np.mean(np.array(sums) >= abs(differences.sum()) - 1e-12)
    assert float(randomisation_test(differences)) == pytest.approx(expected)
    assert 0.05 < expected < 0.5


def test_sampled_randomisation_is_near_the_exact_one() -> None:
    # 24 equal differences, 17 of them positive: the sign-flip p-value is the two-sided sign test's
    differences = np.array([0.25] * 17 + [-0.25] * 7)
    expected = stats.binomtest(17, 24).pvalue
    found = float(randomisation_test(differences))
    assert found == pytest.approx(expected, rel=0.1)
    assert found == float(randomisation_test(differences))
    assert found != float(randomisation_test(differences, seed=1))


def test_columns_do_not_influence_each_other() -> None:
    columns = np.random.default_rng(1).normal(0.05, 0.3, (60, 3))
    columns[5:, 1] = 0.0  # this one is counted exactly, the others are sampled
    together = randomisation_test(columns, samples=5_000)
    alone = [float(randomisation_test(columns[:, i], samples=5_000)) for i in range(3)]
    assert together == pytest.approx(alone, abs=1e-3)
    low, high = bootstrap_interval(columns, samples=2_000)
    one_low, one_high = bootstrap_interval(columns[:, 2], samples=2_000)
    assert (low[2], high[2]) == pytest.approx((float(one_low), float(one_high)))


def test_t_test_is_scipys_and_knows_constant_differences() -> None:
    a, b = np.random.default_rng(3).random((2, 40))
    assert float(t_test(a - b)) == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert t_test(np.array([[0.0, 0.5], [0.0, 0.5]])).tolist() == [1.0, 0.0]
    assert float(t_test([0.3])) == 1.0
    assert float(randomisation_test(np.zeros(30))) == 1.0


def test_level_means_inside_the_margin() -> None:
    differences = np.random.default_rng(5).normal(0.0, 0.1, (400, 1)) + np.array([[0.0, 0.02, 0.5]])
    found = equivalence_test(differences, 0.02)
    low, high = bootstrap_interval(differences, level=0.9)
    assert (found < 0.05).tolist() == ((low > -0.02) & (high < 0.02)).tolist() == [True, False, False]
    assert equivalence_test([[0.0, 0.3], [0.0, 0.3]], 0.1).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="margin"):
        equivalence_test([0.1, 0.2], 0.0)


def test_holm_by_hand() -> None:
    # sorted .005 .01 .03 .04 times 4 3 2 1 is .02 .03 .06 .04, made monotone: .02 .03 .06 .06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([]).tolist() == []


def test_bootstrap_interval_is_about_two_standard_errors_wide() -> None:
    values = np.random.default_rng(4).normal(0.5, 0.2, (60, 300))
    low, high = bootstrap_interval(values, samples=1_000)
    assert 0.90 < np.mean((low <= 0.5) & (high >= 0.5)) < 0.98
    half = 1.96 * values[:, 0].std(ddof=1) / np.sqrt(60)
    assert high[0] - low[0] == pytest.approx(2 * half, rel=0.15)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="shape"):
        randomisation_test([])
    with pytest.raises(ValueError, match="query 1 is not finite"):
        t_test([0.0, np.nan])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        holm([0.5, np.nan])
