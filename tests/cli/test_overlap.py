"""`crossjem overlap` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossjem_pl.cli import main
from crossjem_pl.cli import overlap as command
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.overlap import OverlapReport
from crossjem_pl.data.simulator import simulate


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("overlap") / "lists.parquet"
    write_lists(simulate(9, 20), path)
    return str(path)


def test_tables_and_files(
    lists: str, tiny_bert: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "overlap"
    options = ["--encoder", tiny_bert, "--items", "5", "10", "500", "--limit", "7", "--out", str(out)]
    assert main(["overlap", lists, *options]) == 0
    printed = capsys.readouterr().out
    for words in ("7 lists", "498.38", "94.60", "paper's estimate", "No list has 500 items", "joint pass"):
        assert words in printed
    found = json.loads((out / "overlap.json").read_text(encoding="utf-8"))
    assert found["lists"] == 7
    assert {row["items"] for row in found["rows"]} == {5, 10, None}
    assert {row["max_item_tokens"] for row in found["rows"]} == {12, 16, 32}
    assert found["verdict"] in printed
    markdown = (out / "overlap.md").read_text(encoding="utf-8")
    assert found["verdict"] in markdown
    assert "| 32 |" in markdown
    assert "(overlap.png)" in markdown
    assert (out / "overlap.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_rest_is_written(
    lists: str,
    tiny_bert: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def no_drawing(report: OverlapReport, path: Path) -> None:
        raise AssertionError("nothing is drawn without matplotlib")

    monkeypatch.setattr(command, "available", lambda: False)
    monkeypatch.setattr(command, "_draw", no_drawing)
    assert main(["overlap", lists, "--encoder", tiny_bert, "--out", str(tmp_path)]) == 0
    assert {file.name for file in tmp_path.iterdir()} == {"overlap.json", "overlap.md"}
    assert "crossjem_pl[plots]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--limit", "0"], "--limit"),
        (["--items", "0"], "items must be at least 1"),
        (["--max-union-tokens", "20"], "max_union_tokens=20"),
    ],
)
def test_mistakes_are_named(
    options: list[str],
    named: str,
    lists: str,
    tiny_bert: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert main(["overlap", lists, "--encoder", tiny_bert, "--out", str(out), *options]) == 2
    assert named in capsys.readouterr().err
    assert not out.exists()
