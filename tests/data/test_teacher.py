from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossjem_pl.data.teacher import join_scores, read_provenance, read_scores, write_scores
from crossjem_pl.lists import RankingList
from tests.conftest import example_lists

Rows = list[tuple[str, str, float]]


def all_rows(lists: list[RankingList]) -> Rows:
    """A score for every pair, another one for each."""
    pairs = [(one.query_id, item_id) for one in lists for item_id in one.item_ids]
    return [(query, item, (i + 1) / (len(pairs) + 1)) for i, (query, item) in enumerate(pairs)]


def write(path: Path, rows: Rows) -> Path:
    write_scores(rows, path, {"model": "teacher", "lists": 3})
    return path


# --- the file ----------------------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rows = all_rows(example_lists(5, seed=0))
    path = write(tmp_path / "new" / "scores.parquet", rows)
    assert read_scores(path) == {(query, item): score for query, item, score in rows}
    assert read_provenance(path) == {"model": "teacher", "lists": 3}
    schema = [("query_id", pa.string()), ("item_id", pa.string()), ("score", pa.float64())]
    assert pq.read_schema(path).equals(pa.schema(schema))
    assert list(path.parent.iterdir()) == [path], "nothing half-written is left"
    write(path, rows[:3])
    assert len(read_scores(path)) == 3


def test_no_rows_are_an_error_and_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no scores to write to .*scores\.parquet"):
        write(tmp_path / "scores.parquet", [])
    assert not list(tmp_path.iterdir())


def test_a_missing_file_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no teacher scores at .*none\.parquet; write them with: crossjem teach"
    ):
        read_scores(tmp_path / "none.parquet")


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    path.write_text("query_id,item_id,score\nq,d,0.5\n")
    with pytest.raises(ValueError, match=r"scores\.parquet: unreadable Parquet data"):
        read_scores(path)


def table(path: Path, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_files_from_elsewhere(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", score=[1, 0], extra=["x", "y"], item_id=[7, 8], query_id=[1, 1])
    assert read_scores(path) == {("1", "7"): 1.0, ("1", "8"): 0.0}, (
        "integer ids are text, other columns are ignored"
    )
    assert read_provenance(path) == {}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"query_id": ["q"], "score": [0.5]}, r"no column 'item_id'; it has \['query_id', 'score'\]"),
        (
            {"query_id": ["q"], "item_id": ["d"], "score": ["high"]},
            "row 1, field 'score': expected a number, got str",
        ),
        (
            {"query_id": ["q", None], "item_id": ["d", "e"], "score": [0.5, 0.5]},
            "row 2, field 'query_id': is null",
        ),
        ({"query_id": ["q"], "item_id": [None], "score": [0.5]}, "row 1, field 'item_id': is null"),
        (
            {"query_id": ["q", "r", "q"], "item_id": ["d", "d", "d"], "score": [0.1, 0.2, 0.1]},
            "row 3, field 'item_id': query 'q', item 'd' is scored twice",
        ),
    ],
)
def test_bad_files_are_named(tmp_path: Path, columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(ValueError, match=r"scores\.parquet.*" + message):
        read_scores(table(tmp_path / "scores.parquet", **columns))


# --- the join ----------------------------------------------------------------------------------------------


def test_scores_are_joined_by_ids_whatever_the_order(tmp_path: Path) -> None:
    lists = example_lists(6, seed=1)
    rows = all_rows(lists)
    path = write(tmp_path / "scores.parquet", [*rows[::-1], ("another query", "d0", 0.5)])
    scores = {(query, item): score for query, item, score in rows}
    joined = join_scores(lists, path)
    for before, after in zip(lists, joined, strict=True):
        assert after == replace(
            before, scores=tuple(scores[before.query_id, item] for item in before.item_ids)
        )


def damaged(rows: Rows) -> list[tuple[str, str, float | None]]:
    """The third row missing, the fifth without a value, the sixth not a number, the ninth infinite."""
    return [
        (query, item, {4: None, 5: math.nan, 8: math.inf}.get(i, score))
        for i, (query, item, score) in enumerate(rows)
        if i != 2
    ]


def test_items_without_a_finite_score_are_counted(tmp_path: Path) -> None:
    lists = example_lists(4, seed=2)
    rows = all_rows(lists)
    path = write(tmp_path / "scores.parquet", damaged(rows))  # type: ignore[arg-type]
    query, item, _ = rows[2]
    first = f"query '{query}', item '{item}'"
    message = rf"4 items have no finite teacher score, the first is {first}; .*allow_missing_scores"
    with pytest.raises(ValueError, match=message):
        join_scores(lists, path)


def test_items_without_a_finite_score_may_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = [*example_lists(4, seed=2), RankingList.from_texts("not scored", ["a", "b", "c"], "gone")]
    rows = all_rows(lists[:4])
    path = write(tmp_path / "scores.parquet", damaged(rows))  # type: ignore[arg-type]
    left_out = {rows[i][:2] for i in (2, 4, 5, 8)}
    with caplog.at_level(logging.WARNING):
        joined = join_scores(lists, path, allow_missing=True)
    assert "left out 7 items without a finite teacher score" in caplog.text
    assert "so 1 lists" in caplog.text
    assert [one.query_id for one in joined] == [one.query_id for one in lists[:4]]
    scores = {(query, item): score for query, item, score in rows}
    for before, after in zip(lists, joined, strict=False):
        kept = [i for i, item in enumerate(before.item_ids) if (before.query_id, item) not in left_out]
        expected = before.select(kept)
        assert after == replace(
            expected, scores=tuple(scores[before.query_id, item] for item in expected.item_ids)
        )


def test_scores_of_other_lists_altogether_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "scores.parquet", [("another query", "d0", 0.5)])
    with pytest.raises(
        ValueError, match=r"not one item has a teacher score, the first is query 'q3-0', item 'd0'"
    ):
        join_scores(example_lists(2, seed=3), path, allow_missing=True)
