from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from crossjem_pl.text import Ragged


def random_rows(seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 50, random.integers(0, 7)).tolist() for _ in range(random.integers(1, 12))]


def ragged(rows: Iterable[Sequence[int]]) -> Ragged:
    return Ragged.from_rows(rows)


@pytest.mark.parametrize("seed", range(30))
def test_agrees_with_plain_lists(seed: int) -> None:
    rows = random_rows(seed)
    packed = ragged(rows)
    assert packed.values.dtype == packed.lengths.dtype == np.int64
    assert packed.values.tolist() == [value for row in rows for value in row]
    assert packed.lengths.tolist() == [len(row) for row in rows]
    assert packed.starts.tolist() == [sum(len(r) for r in rows[:i]) for i in range(len(rows))]
    assert packed.row_of.tolist() == [i for i, row in enumerate(rows) for _ in row]
    assert packed.position_of.tolist() == [p for row in rows for p in range(len(row))]
    assert [packed.row(i).tolist() for i in range(len(rows))] == rows
    longest = max(len(row) for row in rows)
    assert packed.padded(-1).tolist() == [row + [-1] * (longest - len(row)) for row in rows]


def test_no_rows() -> None:
    packed = ragged([])
    assert packed.values.dtype == np.int64
    assert packed.values.shape == packed.lengths.shape == packed.row_of.shape == (0,)
    assert packed.padded(0).shape == (0, 0)


def test_rows_are_sorted_by_the_keys_of_their_values() -> None:
    rows = Ragged.from_rows([[0, 1, 2], [], [2, 2, 0]])
    out = rows.sorted_by(np.array([5, 9, 1]))
    assert [out.row(i).tolist() for i in range(3)] == [[2, 0, 1], [], [2, 2, 0]]


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_taken_joined_and_cut(seed: int) -> None:
    rows = random_rows(seed)
    packed = ragged(rows)
    index = np.random.default_rng(seed).integers(0, len(rows), 2 * len(rows))
    taken = packed.take(index)
    assert [taken.row(i).tolist() for i in range(len(index))] == [rows[i] for i in index]
    both = Ragged.joined([packed, taken])
    assert both.lengths.tolist() == packed.lengths.tolist() + taken.lengths.tolist()
    assert both.values.tolist() == packed.values.tolist() + taken.values.tolist()
    for limit in (1, 3, 99):
        cut, longer = packed.cut(limit)
        assert [cut.row(i).tolist() for i in range(len(rows))] == [row[:limit] for row in rows]
        assert longer == sum(len(row) > limit for row in rows)
