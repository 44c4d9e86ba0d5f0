"""Teacher scores that are joined to lists as they pass by, and `convert` to shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from crossjem_pl.cli import main
from crossjem_pl.data.convert import convert
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.data.teacher import join_scores, merge_scores, write_scores
from crossjem_pl.lists import RankingList
from tests.conftest import example_lists

LISTS = example_lists(6, seed=7)
Rows = list[tuple[str, str, float]]


def rows(lists: Sequence[RankingList]) -> Rows:
    numbered = enumerate((one.query_id, item) for one in lists for item in one.item_ids)
    return [(query, item, number / 1000) for number, (query, item) in numbered]


def test_the_merge_equals_the_join_in_memory(tmp_path: Path) -> None:
    whole = tmp_path / "scores.parquet"
    write_scores(rows(LISTS), whole, {})
    expected = join_scores(LISTS, whole)
    assert list(merge_scores(LISTS, whole)) == expected
    turned = [row for one in LISTS for row in reversed([r for r in rows(LISTS) if r[0] == one.query_id])]
    write_scores(turned, tmp_path / "turned.parquet", {})
    assert list(merge_scores(LISTS, tmp_path / "turned.parquet")) == expected, "items in any order"
    cut = len(LISTS[0]) + len(LISTS[1])
    write_scores(rows(LISTS)[:cut], tmp_path / "parts" / "0.parquet", {})
    write_scores(rows(LISTS)[cut:], tmp_path / "parts" / "1.parquet", {})
    assert list(merge_scores(LISTS, tmp_path / "parts")) == expected


def test_scores_that_do_not_fit_are_named(tmp_path: Path) -> None:
    good = rows(LISTS)
    first = LISTS[0]
    n = len(first)
    for name, changed, named in (
        (
            "order",
            good[n:] + good[:n],
            f"row 1, field 'query_id': expected the scores of list '{first.query_id}'",
        ),
        ("short", good[: -len(LISTS[-1])], f"the scores end before list '{LISTS[-1].query_id}'"),
        ("long", [*good, ("q-more", "d0", 0.5)], f"row {len(good) + 1}, .*lists end before query 'q-more'"),
        ("missing", good[1:], f"list '{first.query_id}', item '{first.item_ids[0]}' has no teacher score"),
        ("twice", [good[0], *good], "row 2, field 'item_id': query .* is scored twice"),
        (
            "stranger",
            [(first.query_id, "dx", 0.1), *good],
            "row 1, field 'item_id': list .* has no item 'dx'",
        ),
        (
            "nan",
            [(*good[0][:2], float("nan")), *good[1:]],
            "row 1, field 'score': expected a finite number, got float nan",
        ),
    ):
        path = tmp_path / f"{name}.parquet"
        write_scores(changed, path, {})
        with pytest.raises(ValueError, match=rf"{name}\.parquet.*{named}"):
            list(merge_scores(LISTS, path))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        merge_scores(LISTS, tmp_path / "nowhere")


def test_convert_writes_shards_with_the_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lists([replace(one, scores=None) for one in LISTS], tmp_path / "lists.jsonl")
    scores = tmp_path / "scores.parquet"
    write_scores(rows(LISTS), scores, {})
    command = ["convert", str(tmp_path / "lists.jsonl"), str(tmp_path / "train"), "--shard-size", "4"]
    assert main([*command, "--teacher-scores", str(scores)]) == 0
    assert "6 lists" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "train").glob("*.parquet")) == [
        "000000.parquet",
        "000001.parquet",
    ]
    assert list(ShardSource("train").read(tmp_path)) == join_scores(LISTS, scores)
    assert main(command) == 2
    assert "the folder has shards already" in capsys.readouterr().err
    convert(tmp_path / "train", tmp_path / "back.parquet", scores_field=None)
    assert list(read_lists(tmp_path / "back.parquet")) == [replace(one, scores=None) for one in LISTS]


def test_shards_are_canonical_and_no_source_is_overwritten(tmp_path: Path) -> None:
    write_lists(LISTS, tmp_path / "lists.jsonl")
    with pytest.raises(ValueError, match="shards are in the canonical format, not in 'run'"):
        convert(tmp_path / "lists.jsonl", tmp_path / "out", to_format="run", shard_size=4)
    convert(tmp_path / "lists.jsonl", tmp_path / "train", shard_size=4)
    with pytest.raises(ValueError, match="the target is one of the files to read"):
        convert(tmp_path / "train", tmp_path / "train", shard_size=2)
