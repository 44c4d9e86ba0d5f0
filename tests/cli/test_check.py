"""`crossjem check` and `overlap` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.lists import RankingList
from tests.cli.conftest import Ran


def test_sound_lists_pass_strictly(tiny_bert: str, tmp_path: Path, crossjem: Callable[..., Ran]) -> None:
    train, test = (tmp_path / f"{name}.parquet" for name in ("train", "test"))
    write_lists(simulate(4, 100), train)
    write_lists(simulate(4, 100, split="test"), test)
    command = ("check", train, "--test", test, "--encoder", tiny_bert, "--max-item-tokens", 90)
    status, out, _ = crossjem(*command, "--max-query-tokens", 90, "--strict")
    assert status == 0
    assert "0 errors, 0 warnings" in out
    found = json.loads(crossjem(*command, "--max-query-tokens", 90, "--json").out)
    assert [file["role"] for file in found["files"]] == ["train", "test"]
    assert found["files"][0]["figures"]["lists"] == 4
    assert found["files"][1]["figures"]["rows"] == 4


def test_mistakes_are_shown_and_fail_only_strictly(
    tiny_bert: str, tmp_path: Path, crossjem: Callable[..., Ran]
) -> None:
    path = tmp_path / "lists.jsonl"
    lists = [
        RankingList("q1", "red [bold]shoe[/bold]", ("a", "b"), ("shoe", "lamp"), (0.0, 0.0)),
        RankingList("q2", "Red [BOLD]shoe[/bold]", ("a", "b"), ("shoe", "lamp"), (0.0, 1.0)),
    ]
    write_lists(lists, path)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"query_id": "q3", "query": "red", "item_ids": ["a"], "items": [" "]}\n')
    status, printed, _ = crossjem("check", path, "--encoder", tiny_bert)
    assert status == 0
    for words in ("no-positive", "repeated-query", "[BOLD]", "malformed-row", "line 3", "1 error,"):
        assert words in printed
    assert crossjem("check", path, "--encoder", tiny_bert, "--strict").status == 1
    status, _, error = crossjem("check", tmp_path / "none.jsonl", "--encoder", tiny_bert)
    assert status == 2
    assert "none.jsonl" in error


def test_the_limits_of_a_configuration(tiny_bert: str, tmp_path: Path, crossjem: Callable[..., Ran]) -> None:
    """What the run would cut is what is counted; an option goes first."""
    write_lists(simulate(4, 20), tmp_path / "train.parquet")
    ranker = {"class_path": "crossjem_pl.rankers.CrossJEM"}
    ranker["init_args"] = {
        "encoder": tiny_bert,
        "max_query_tokens": 2,
        "max_item_tokens": 3,
        "max_union_tokens": 64,
    }  # type: ignore[assignment]
    model = {"ranker": ranker, "loss": {"class_path": "crossjem_pl.losses.ListNet"}}
    (tmp_path / "run.yaml").write_text(json.dumps({"model": model}))
    command = ("check", tmp_path / "train.parquet", "-c", tmp_path / "run.yaml")
    for more, limits in (([], (2, 3)), (["--max-item-tokens", "5"], (2, 5))):
        figures = json.loads(crossjem(*command, "--json", *more).out)["files"][0]["figures"]
        assert (figures["queries"]["limit"], figures["item_texts"]["limit"]) == limits
        assert figures["item_texts"]["cut_texts"] > 0
    status, _, error = crossjem(*command, "-c", "rankers/bm25")
    assert status == 2
    assert "bm25 ranker has no limits in tokens" in error


def test_overlap_prints_tables_and_names_mistakes(
    tiny_bert: str, tmp_path: Path, crossjem: Callable[..., Ran]
) -> None:
    write_lists(simulate(9, 20), tmp_path / "lists.parquet")
    command = ("overlap", tmp_path / "lists.parquet", "--encoder", tiny_bert)
    options = ("--items", 5, 10, 500, "--limit", 7)
    printed = crossjem(*command, *options).out
    for words in ("7 lists", "item limit L", "union by list", "joint pass"):
        assert words in printed
    found = json.loads(crossjem(*command, *options, "--json").out)
    assert found["lists"] == 7
    assert {row["items"] for row in found["rows"]} == {5, 10, None}
    assert {row["max_item_tokens"] for row in found["rows"]} == {12, 16, 32}
    assert found["verdict"] in printed
    for mistake, named in (
        (("--limit", 0), "--limit"),
        (("--items", 0), "must be at least 1"),
        (("--max-union-tokens", 20), "max_union_tokens=20"),
    ):
        status, _, error = crossjem(*command, *mistake)
        assert status == 2
        assert named in error
