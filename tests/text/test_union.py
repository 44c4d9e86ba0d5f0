from __future__ import annotations

import numpy as np
import pytest

from crossjem_pl.text import Ragged, passes, token_union


def check(rows: list[list[int]], group_of: list[int], groups: int) -> None:
    found = token_union(
        Ragged.from_rows(rows),
        np.array(group_of, dtype=np.int64),
        groups,
    )
    expected = [
        sorted({t for row, g in zip(rows, group_of, strict=True) if g == group for t in row})
        for group in range(groups)
    ]
    assert [found.tokens.row(i).tolist() for i in range(groups)] == expected
    assert found.occurrence.tolist() == [
        expected[g].index(t) for row, g in zip(rows, group_of, strict=True) for t in row
    ]
    pairs = [
        (i, expected[g].index(token), row.index(token))
        for i, (row, g) in enumerate(zip(rows, group_of, strict=True))
        for token in sorted(set(row))
    ]
    columns = (found.members.row_of, found.members.values, found.first)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == pairs


@pytest.mark.parametrize("table", [0, 1 << 22])
@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_python_sets(seed: int, table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_TABLE", table)
    random = np.random.default_rng(seed)
    groups = int(random.integers(1, 6))
    count = int(random.integers(1, 25))
    vocabulary = int(random.choice([3, 40, 50_000]))
    rows = [random.integers(0, vocabulary, random.integers(1, 9)).tolist() for _ in range(count)]
    check(rows, random.integers(0, groups, count).tolist(), groups)


def test_groups_without_items_are_empty() -> None:
    check([[5, 5, 2], [2]], [2, 2], 4)


def test_no_items() -> None:
    check([], [], 3)
