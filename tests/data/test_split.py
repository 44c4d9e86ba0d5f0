"""Splits share no query, keep groups together and times in order."""

from __future__ import annotations

import csv
import json
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


def test_by_query_every_list_is_in_one_part_and_spellings_stay_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    write_pairs(source, [(query, "one item", 1, 0) for query, *_ in rows])
    capsys.readouterr()
    assert main(["split", str(source), str(tmp_path / "d"), "--dev", "0.2"]) == 0
    assert "dev.parquet: 8 lists; 8 of them with" in capsys.readouterr().out, "lists are counted, not queries"


def test_by_group_groups_that_share_a_query_stay_together(tmp_path: Path) -> None:
    rows = [(f"query {n}", "item", 1, n // 2) for n in range(20)] + [("query 0", "other", 0, 9)]
    source = write_pairs(tmp_path / "pairs.csv", rows)
    assert main(["split", str(source), str(tmp_path / "out"), "--by", "group", "--column", "session"]) == 0
    of = {query: name for name, queries in parts(tmp_path / "out").items() for query in queries}
    assert len(of) == 20
    assert all(of[f"query {n}"] == of[f"query {n + 1}"] for n in range(0, 20, 2))
    assert of["query 0"] == of["query 18"]


def test_by_item_queries_that_share_a_relevant_item_stay_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(f"query {n}", f"Item {n // 4}" if n % 2 else f"item  {n // 4}", 1, 0) for n in range(80)]
    rows += [(f"query {n}", "shown everywhere", 0, 0) for n in (0, *range(80))]
    source = write_pairs(tmp_path / "pairs.csv", rows)
    assert main(["split", str(source), str(tmp_path / "a")]) == 0
    out = capsys.readouterr().out
    assert "test.parquet: 8 lists; " in out
    assert "with a relevant item that is relevant in train too" in out
    for order in (rows, rows[::-1]):
        write_pairs(source, order)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        assert main(["split", str(source), str(folder), "--by", "item"]) == 0
        assert capsys.readouterr().out.splitlines()[1:] == [
            "train.parquet: 64 lists", "dev.parquet: 8 lists", "test.parquet: 8 lists",
            "exact repeats of an item inside its list, merged: 1", "columns not carried: session",
        ]  # fmt: skip
        found = {
            name: {int(query.split()[1]) // 4 for query in queries} for name, queries in parts(folder).items()
        }
        assert sum(map(len, found.values())) == 20, "no relevant item in two parts"
    together = [(f"query {n}", f"item {n + k}", 1, 0) for n in range(80) for k in (0, 1)]
    assert main(["split", str(write_pairs(source, together)), str(tmp_path / "c"), "--by", "item"]) == 2
    assert "80 distinct queries, 1 part by item that must stay together" in capsys.readouterr().err


def test_columns_of_any_name_and_lists_of_queries(tmp_path: Path) -> None:
    source = tmp_path / "log.csv"
    with source.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("keyword", "title", "shop"), *((f"q {n}", "x", n // 2) for n in range(20))]
        )
    own = ["--query-column", "keyword", "--item-column", "title"]
    assert main(["split", str(source), str(tmp_path / "a"), *own]) == 0
    assert main(["split", str(source), str(tmp_path / "b"), *own, "--by", "group", "--column", "shop"]) == 0
    assert sum(map(len, parts(tmp_path / "b").values())) == 20
    rows = [{"query": [f"q {n}", f"paraphrase {n}"], "positive": "p", "negative": "n"} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["split", str(tmp_path / "rows.jsonl"), str(tmp_path / "c")]) == 0
    assert sum(map(len, parts(tmp_path / "c").values())) == 40


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
