"""Teacher scores: the file and its provenance, the join in memory, and the merge into lists that stream."""

from __future__ import annotations

import logging
import math
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
from crossjem_pl.data.teacher import join_scores, merge_scores, read_provenance, read_scores, write_scores
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
    with pytest.raises(ValueError, match=r"no scores to write to .*none\.parquet"):
        write(tmp_path / "none.parquet", [])
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
        ([("q", "d", "high")], "row 1, field 'score': expected a number, got str"),
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


def test_scores_are_joined_by_ids_whatever_the_order(tmp_path: Path) -> None:
    rows = all_rows()
    path = write(tmp_path / "scores.parquet", [*rows[::-1], ("another query", "d0", 0.5)])
    scores = {(query, item): score for query, item, score in rows}
    for before, after in zip(LISTS, join_scores(LISTS, path), strict=True):
        expected = tuple(scores[before.query_id, item] for item in before.item_ids)
        assert after == replace(before, scores=expected)
    with pytest.raises(
        ValueError, match=r"not one item has a teacher score, the first is query 'q3-0', item 'd0'"
    ):
        join_scores(example_lists(2, seed=3), path, allow_missing=True)


def test_items_without_a_finite_score_are_counted_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = [*LISTS, RankingList.from_texts("not scored", ["a", "b", "c"], "gone")]
    rows = all_rows()
    bad = {4: None, 5: math.nan, 8: math.inf}
    damaged = [(q, item, bad.get(i, score)) for i, (q, item, score) in enumerate(rows) if i != 2]
    path = write(tmp_path / "scores.parquet", damaged)  # type: ignore[arg-type]
    query, item, _ = rows[2]
    first = f"query '{query}', item '{item}'"
    with pytest.raises(
        ValueError, match=rf"7 items have no finite teacher score, the first is {first}; .*allow"
    ):
        join_scores(lists, path)

    left_out = {rows[i][:2] for i in (2, *bad)}
    with caplog.at_level(logging.WARNING):
        joined = join_scores(lists, path, allow_missing=True)
    assert "left out 7 items without a finite teacher score" in caplog.text
    assert "so 1 lists" in caplog.text
    assert [one.query_id for one in joined] == [one.query_id for one in LISTS]
    scores = {(query, item): score for query, item, score in rows}
    for before, after in zip(LISTS, joined, strict=True):
        kept = [i for i, item in enumerate(before.item_ids) if (before.query_id, item) not in left_out]
        expected = before.select(kept)
        assert after == replace(expected, scores=tuple(scores[before.query_id, i] for i in expected.item_ids))


def test_the_merge_equals_the_join_in_memory(tmp_path: Path) -> None:
    rows = all_rows()
    expected = join_scores(LISTS, write(tmp_path / "scores.parquet", rows))
    assert list(merge_scores(LISTS, tmp_path / "scores.parquet")) == expected
    turned = [row for one in LISTS for row in reversed([r for r in rows if r[0] == one.query_id])]
    assert list(merge_scores(LISTS, write(tmp_path / "turned.parquet", turned))) == expected, (
        "items in any order"
    )
    cut = len(LISTS[0]) + len(LISTS[1])
    write(tmp_path / "parts" / "0.parquet", rows[:cut])
    write(tmp_path / "parts" / "1.parquet", rows[cut:])
    assert list(merge_scores(LISTS, tmp_path / "parts")) == expected


GOOD = all_rows()
FIRST, LAST = LISTS[0], LISTS[-1]
N = len(FIRST)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (GOOD[N:] + GOOD[:N], f"row 1, field 'query_id': expected the scores of list '{FIRST.query_id}'"),
        (GOOD[: -len(LAST)], f"the scores end before list '{LAST.query_id}'"),
        ([*GOOD, ("q-more", "d0", 0.5)], f"row {len(GOOD) + 1}, .*lists end before query 'q-more'"),
        (GOOD[1:], f"list '{FIRST.query_id}', item '{FIRST.item_ids[0]}' has no teacher score"),
        ([GOOD[0], *GOOD], "row 2, field 'item_id': query .* is scored twice"),
        ([(FIRST.query_id, "dx", 0.1), *GOOD], "row 1, field 'item_id': list .* has no item 'dx'"),
        ([(*GOOD[0][:2], math.nan), *GOOD[1:]], "row 1, field 'score': expected a finite number"),
    ],
)
def test_scores_that_do_not_fit_are_named(tmp_path: Path, rows: Rows, named: str) -> None:
    with pytest.raises(ValueError, match=rf"scores\.parquet.*{named}"):
        list(merge_scores(LISTS, write(tmp_path / "scores.parquet", rows)))


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
    assert list(ShardSource("train").read(tmp_path)) == join_scores(LISTS, scores)
    assert main(command) == 2
    assert "the folder has shards already" in capsys.readouterr().err
    convert(tmp_path / "train", tmp_path / "back.parquet")
    assert list(read_lists(tmp_path / "back.parquet")) == join_scores(LISTS, scores)
    with pytest.raises(ValueError, match="shards are in the canonical format, not in 'run'"):
        convert(tmp_path / "lists.jsonl", tmp_path / "out", to_format="run", shard_size=4)
    with pytest.raises(ValueError, match="the target is one of the files to read"):
        convert(tmp_path / "train", tmp_path / "train", shard_size=2)
