from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from crossjem_pl.text import length_runs


def padded(lengths: np.ndarray, runs: list[np.ndarray]) -> int:
    return sum(len(run) * int(lengths[run].max()) for run in runs)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("cost", [1, 30, 10**9])
def test_every_row_is_in_one_run_and_every_cut_pays(seed: int, cost: int) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 200, random.integers(1, 40))
    runs = length_runs(lengths, cost)
    assert sorted(np.concatenate(runs).tolist()) == list(range(len(lengths)))
    for longer, shorter in pairwise(runs):
        assert lengths[shorter].max() < lengths[longer].min()
    whole = len(lengths) * int(lengths.max())
    assert padded(lengths, runs) <= whole - cost * (len(runs) - 1)
    if cost == 10**9:
        assert len(runs) == 1


def test_without_a_cost_nothing_is_padded_that_two_runs_could_spare() -> None:
    assert [run.tolist() for run in length_runs(np.array([9, 2, 9, 2, 5]), 1)] == [[0, 2], [4], [1, 3]]
    assert [run.tolist() for run in length_runs(np.array([7, 7, 7]), 1)] == [[0, 1, 2]]


def test_a_cut_below_the_cost_is_not_made() -> None:
    lengths = np.array([100, 60, 61])  # one cut spares 40 + 39 tokens
    assert len(length_runs(lengths, 78)) == 2
    assert len(length_runs(lengths, 79)) == 1
