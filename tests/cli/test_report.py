"""`crossjem report` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossjem_pl.cli import main
from tests.evaluation.run_folders import write_run_folder


def test_report_writes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_bert: str) -> None:
    folder = write_run_folder(tmp_path / "run", 1.0, "RankNet", ranker="crossjem")
    out = tmp_path / "out"
    options = ["--metric", "AP@10", "--examples", "1", "--tokenizer", tiny_bert, "--out", str(out)]
    assert main(["report", str(folder), *options]) == 0
    assert f"wrote {out}/report.html, report.md and " in capsys.readouterr().out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "AP@10 by words of the query" in page
    assert "Overlap of the items in tokens" in page
    assert page.count('<section class="example">') == 1
    assert (out / "figures" / "calibration.svg").is_file()


def test_the_table_of_compare_fits_the_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [str(write_run_folder(tmp_path / name, 1.0, None)) for name in ("monobert", "crossjem")]
    for columns in (80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["compare", *folders, "--out", str(tmp_path / "out")]) == 0
        lines = capsys.readouterr().out.splitlines()
        rows = [line for line in lines if line.startswith(("│", "┃"))]
        assert 60 < max(map(len, rows)) <= columns
        text = " ".join(lines)
        for word in ("RR@10", "AP@10", "win/tie/loss", "Parameters", "crossjem", "0/60/0"):
            assert word in text


def test_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, named in (
        (["/no/run"], "/no/run"),
        ([str(empty)], "nothing to report on"),
    ):
        assert main(["report", *arguments, "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert named in error
    assert not (tmp_path / "out").exists()
