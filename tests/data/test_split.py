"""Splits share no query, keep groups together and times in order."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from crossjem_pl.cli import main
from crossjem_pl.data.formats import read_lists

PARTS = ("train", "dev", "test")


def write_pairs(path: Path, rows: Sequence[Sequence[object]], column: str = "session") -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("query", "item", "label", column), *rows])
    return path


def parts(folder: Path) -> dict[str, set[str]]:
    return {name: {one.query for one in read_lists(folder / f"{name}.parquet")} for name in PARTS}


def test_by_query_every_list_is_in_one_part_and_spellings_stay_together(tmp_path: Path) -> None:
    rows = [
        (spelling, f"{n} item", n % 2, 0) for n in range(20) for spelling in (f"Query {n}", f"query  {n}")
    ]
    source = write_pairs(tmp_path / "pairs.csv", rows)
    for folder, order in (("a", rows), ("b", rows[::-1])):
        write_pairs(source, order)
        assert main(["split", str(source), str(tmp_path / folder), "--dev", "0.2"]) == 0
    found = parts(tmp_path / "a")
    assert found == parts(tmp_path / "b"), "the order of the rows plays no part"
    assert [len(found[name]) for name in PARTS] == [28, 8, 4]
    assert sorted(query for part in found.values() for query in part) == sorted({row[0] for row in rows})
    folded = [{" ".join(query.lower().split()) for query in part} for part in found.values()]
    assert sum(map(len, folded)) == 20, "no query in two parts"
    assert main(["split", str(source), str(tmp_path / "c"), "--dev", "0.2", "--seed", "1"]) == 0
    assert parts(tmp_path / "c") != found


def test_by_group_groups_that_share_a_query_stay_together(tmp_path: Path) -> None:
    rows = [(f"query {n}", "item", 1, n // 2) for n in range(20)] + [("query 0", "other", 0, 9)]
    source = write_pairs(tmp_path / "pairs.csv", rows)
    assert main(["split", str(source), str(tmp_path / "out"), "--by", "group", "--column", "session"]) == 0
    of = {query: name for name, queries in parts(tmp_path / "out").items() for query in queries}
    assert len(of) == 20
    assert all(of[f"query {n}"] == of[f"query {n + 1}"] for n in range(0, 20, 2))
    assert of["query 0"] == of["query 18"]


@pytest.mark.parametrize("time", ["2026-11-{:02d}", "2026-11-{:02d}T09:30+01:00", "{}.5"])
def test_by_time_the_latest_are_test(time: str, tmp_path: Path) -> None:
    rows = [(f"query {n}", "item", 1, time.format(n)) for n in range(1, 21)]
    rows.append(("query 1", "later", 0, time.format(21)))
    source = write_pairs(tmp_path / "pairs.csv", rows[::-1], "day")
    assert main(["split", str(source), str(tmp_path / "out"), "--by", "time", "--column", "day"]) == 0
    found = parts(tmp_path / "out")
    assert found["test"] == {"query 1", "query 20"}, "a query that comes back is as late as its last row"
    assert found["dev"] == {"query 18", "query 19"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--dev", "0.5", "--test", "0.5"], "shares"),
        (["--by", "time"], "column"),
        (["--by", "time", "--column", "item"], "line 2, field 'item'"),
        (["--by", "group", "--column", "shop"], "line 2, field 'shop'"),
        (["--by", "group", "--column", "label"], "too few"),
        ([], "exists"),
    ],
)
def test_mistakes(options: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_pairs(tmp_path / "pairs.csv", [(f"query {n}", "item", n % 2, 0) for n in range(9)])
    if named == "exists":
        (tmp_path / "dev.parquet").touch()
    assert main(["split", str(source), str(tmp_path), *options]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "train.parquet").exists()
