"""`crossjem overlap` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossjem_pl.cli import main
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.simulator import simulate


def test_tables_and_mistakes(tiny_bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lists(simulate(9, 20), tmp_path / "lists.parquet")
    command = ["overlap", str(tmp_path / "lists.parquet"), "--encoder", tiny_bert]
    command_of_seven = [*command, "--items", "5", "10", "500", "--limit", "7"]
    assert main(command_of_seven) == 0
    printed = capsys.readouterr().out
    for words in ("7 lists", "item limit L", "union by list", "joint pass"):
        assert words in printed
    assert main([*command_of_seven, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lists"] == 7
    assert {row["items"] for row in found["rows"]} == {5, 10, None}
    assert {row["max_item_tokens"] for row in found["rows"]} == {12, 16, 32}
    assert found["verdict"] in printed
    for options, named in (
        (["--limit", "0"], "--limit"),
        (["--items", "0"], "must be at least 1"),
        (["--max-union-tokens", "20"], "max_union_tokens=20"),
    ):
        assert main([*command, *options]) == 2
        assert named in capsys.readouterr().err
