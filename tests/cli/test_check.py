"""`crossjem check` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossjem_pl.cli import main
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.lists import RankingList


def test_sound_lists_pass_strictly(
    tiny_bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lists(simulate(4, 100), tmp_path / "train.parquet")
    write_lists(simulate(4, 100, split="test"), tmp_path / "test.parquet")
    out = tmp_path / "new" / "check.json"
    command = ["check", str(tmp_path / "train.parquet"), "--test", str(tmp_path / "test.parquet")]
    assert main([*command, "--encoder", tiny_bert, "--max-item-tokens", "90", "--max-query-tokens", "90",
                 "--json", str(out), "--strict"]) == 0  # fmt: skip
    printed = capsys.readouterr().out
    assert "0 errors, 0 warnings" in printed
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [file["role"] for file in found["files"]] == ["train", "test"]
    assert found["files"][0]["figures"]["lists"] == 4
    assert found["files"][1]["figures"]["rows"] == 4


def test_mistakes_are_shown_and_fail_only_strictly(
    tiny_bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lists.jsonl"
    lists = [
        RankingList("q1", "red [bold]shoe[/bold]", ("a", "b"), ("shoe", "lamp"), (0.0, 0.0)),
        RankingList("q2", "Red [BOLD]shoe[/bold]", ("a", "b"), ("shoe", "lamp"), (0.0, 1.0)),
    ]
    write_lists(lists, path)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"query_id": "q3", "query": "red", "item_ids": ["a"], "items": [" "]}\n')
    command = ["check", str(path), "--encoder", tiny_bert]
    assert main(command) == 0
    printed = capsys.readouterr().out
    for words in ("no-positive", "repeated-query", "[BOLD]", "malformed-row", "line 3", "1 error,"):
        assert words in printed
    with pytest.raises(SystemExit, match="1"):
        main([*command, "--strict"])
    assert main(["check", str(tmp_path / "none.jsonl"), "--encoder", tiny_bert]) == 2
    assert "none.jsonl" in capsys.readouterr().err
