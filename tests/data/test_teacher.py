"""Teacher scores: the file and its provenance, and the join."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossjem_pl.cli import main
from crossjem_pl.data.convert import convert
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.data.teacher import join_scores, read_provenance, read_scores, write_scores
from crossjem_pl.lists import RankingList
from tests.conftest import example_lists

LISTS = example_lists(6, seed=7)
Rows = list[tuple[str, str, float]]


def all_rows(lists: Sequence[RankingList] = LISTS) -> Rows:
    """A score for every pair, another one for each."""
    pairs = [(one.query_id, item) for one in lists for item in one.item_ids]
    return [(query, item, (number + 1) / 1000) for number, (query, item) in enumerate(pairs)]


def write(path: Path, rows: Rows) -> Path:
    write_scores(rows, path, {"model": "teacher", "lists": 3})
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rows = all_rows()
    path = write(tmp_path / "new" / "scores.parquet", rows)
    assert read_scores(path) == {(query, item): score for query, item, score in rows}
    assert read_provenance(path) == {"model": "teacher", "lists": 3}
    schema = [("query_id", pa.string()), ("item_id", pa.string()), ("score", pa.float64())]
    assert pq.read_schema(path).equals(pa.schema(schema))
    assert list(path.parent.iterdir()) == [path], "nothing half-written is left"
    write(path, rows[:3])
    assert len(read_scores(path)) == 3
    write(tmp_path / "empty.parquet", [])
    assert read_provenance(tmp_path / "empty.parquet") == {"model": "teacher", "lists": 3}
    with pytest.raises(ValueError, match=r"empty\.parquet: the file has no rows"):
        read_scores(tmp_path / "empty.parquet")
    with pytest.raises(FileNotFoundError, match=r"none\.parquet; write them with: crossjem teach"):
        read_scores(tmp_path / "none.parquet")


def table(path: Path, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_files_from_elsewhere(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", score=[1, 0], extra=["x", "y"], item_id=[7, 8], query_id=[1, 1])
    assert read_scores(path) == {("1", "7"): 1.0, ("1", "8"): 0.0}, "integer ids are texts"
    assert read_provenance(path) == {}
    path.write_text("query_id,item_id,score\nq,d,0.5\n")
    with pytest.raises(ValueError, match=r"a\.parquet: unreadable Parquet data"):
        read_scores(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("q", "d", "high")], "row 1, field 'score': expected a finite number, got 'high'"),
        ([("q", "d", 0.5), (None, "e", 0.5)], "row 2, field 'query_id': is null"),
        ([("q", None, 0.5)], "row 1, field 'item_id': is null"),
        ([("q", "d", 0.1), ("r", "d", 0.2), ("q", "d", 0.1)], "row 3, .*query 'q', item 'd' is scored twice"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, rows: list[tuple[object, ...]], message: str) -> None:
    queries, items, scores = map(list, zip(*rows, strict=True))
    path = table(tmp_path / "scores.parquet", query_id=queries, item_id=items, score=scores)
    with pytest.raises(ValueError, match=r"scores\.parquet, " + message):
        read_scores(path)
    with pytest.raises(ValueError, match=r"row 1, field 'item_id': is missing \(found: query_id, score\)"):
        read_scores(table(path, query_id=queries, score=scores))


@pytest.mark.parametrize("order", ["as the lists", "reversed", "shuffled", "in a folder"])
def test_scores_are_joined_by_ids_whatever_the_order(tmp_path: Path, order: str) -> None:
    rows = all_rows()
    scores = {(query, item): score for query, item, score in rows}
    expected = [replace(one, scores=tuple(scores[one.query_id, i] for i in one.item_ids)) for one in LISTS]
    if order == "shuffled":
        random.Random(0).shuffle(rows)
    path = write(tmp_path / "a" / "0.parquet", rows[::-1] if order == "reversed" else rows[:7])
    write(tmp_path / "a" / "1.parquet", rows[7:])
    if order != "reversed":
        path = path.parent
    assert list(join_scores(iter(LISTS), path, exact=True)) == expected
    assert list(join_scores(LISTS[3:5], path)) == expected[3:5], "scores of other lists are no mistake"
    with pytest.raises(
        ValueError, match="not one item has a teacher score, the first is query 'q3-0', item 'd0'"
    ):
        list(join_scores(example_lists(2, seed=3), path, allow_missing=True))


def test_items_without_a_finite_score_are_counted_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = [*LISTS, RankingList.from_texts("not scored", ["a", "b", "c"], "gone")]
    rows = all_rows()
    bad = {4: None, 5: math.nan, 8: math.inf}
    damaged = [(q, item, bad.get(i, score)) for i, (q, item, score) in enumerate(rows) if i != 2]
    path = write(tmp_path / "scores.parquet", damaged)  # type: ignore[arg-type]
    query, item, _ = rows[2]
    with pytest.raises(
        ValueError, match=f"list '{query}', item '{item}' has no finite teacher score; .*allow"
    ):
        list(join_scores(lists, path))

    left_out = {rows[i][:2] for i in (2, *bad)}
    with caplog.at_level(logging.WARNING):
        joined = list(join_scores(lists, path, allow_missing=True))
    assert "left out 7 items without a finite teacher score" in caplog.text
    assert "so 1 lists" in caplog.text
    assert [one.query_id for one in joined] == [one.query_id for one in LISTS]
    scores = {(query, item): score for query, item, score in rows}
    for before, after in zip(LISTS, joined, strict=True):
        kept = [i for i, item in enumerate(before.item_ids) if (before.query_id, item) not in left_out]
        expected = before.select(kept)
        assert after == replace(expected, scores=tuple(scores[before.query_id, i] for i in expected.item_ids))


GOOD = all_rows()
FIRST, LAST = LISTS[0], LISTS[-1]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (
            GOOD[: -len(LAST)],
            f"list '{LAST.query_id}', item '{LAST.item_ids[0]}' has no finite teacher score",
        ),
        ([*GOOD, ("q-more", "d0", 0.5)], "there are scores of query 'q-more', but no such list"),
        ([("q-more", "d0", 0.5), *GOOD], "there are scores of query 'q-more', but no such list"),
        (
            [*GOOD, GOOD[0]],
            f"scores of query '{FIRST.query_id}', but no such list or a list that has its scores",
        ),
        ([GOOD[0], *GOOD], "row 2, field 'item_id': query .* is scored twice"),
        ([(FIRST.query_id, "dx", 0.1), *GOOD], f"list '{FIRST.query_id}' has no item 'dx', which is scored"),
        ([(*GOOD[0][:2], math.nan), *GOOD[1:]], f"item '{FIRST.item_ids[0]}' has no finite teacher score"),
    ],
)
def test_scores_that_do_not_fit_are_named(tmp_path: Path, rows: Rows, named: str) -> None:
    with pytest.raises(ValueError, match=rf"scores\.parquet.*{named}"):
        list(join_scores(LISTS, write(tmp_path / "scores.parquet", rows), exact=True))


def test_convert_writes_shards_with_the_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lists([replace(one, scores=None) for one in LISTS], tmp_path / "lists.jsonl")
    scores = write(tmp_path / "scores.parquet", GOOD)
    command = ["convert", str(tmp_path / "lists.jsonl"), str(tmp_path / "train"), "--shard-size", "4"]
    assert main([*command, "--teacher-scores", str(scores)]) == 0
    assert "6 lists" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "train").glob("0*")) == [
        "000000.parquet",
        "000001.parquet",
    ]
    assert list(ShardSource("train").read(tmp_path)) == list(join_scores(LISTS, scores))
    assert main(command) == 2
    assert "the folder has shards already" in capsys.readouterr().err
    convert(tmp_path / "train", tmp_path / "back.parquet")
    assert list(read_lists(tmp_path / "back.parquet")) == list(join_scores(LISTS, scores))
    with pytest.raises(ValueError, match="shards are in the canonical format, not in 'run'"):
        convert(tmp_path / "lists.jsonl", tmp_path / "out", to_format="run", shard_size=4)
    with pytest.raises(ValueError, match="the target is one of the files to read"):
        convert(tmp_path / "train", tmp_path / "train", shard_size=2)
