"""The papers' tables and the study: their descriptions are complete, and every kind of part runs on a tiny encoder."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.contenders import measured_lists
from benchmarks.tables import pace
from benchmarks.tables.__main__ import KINDS, main
from benchmarks.tables.runs import EXPERIMENTS, Runner
from benchmarks.tables.spec import TABLES, System, read_table
from crossjem_pl.cli import main as cli
from crossjem_pl.data.formats import write_lists
from crossjem_pl.rankers import CrossJEM
from tests.conftest import example_lists

SMALL = ["--trainer.max_steps", "2", "--trainer.accelerator", "cpu", "--data.n_items", "4"]


def runner(dataset: str = "msmarco", **changes: Any) -> Runner:
    given = {"data": None, "encoder": None, "teacher_encoder": None, "scores": None, "options": []}
    given |= {"encoder_options": [], "runs": Path("runs"), "smoke": False}
    return Runner(dataset, argparse.Namespace(**(given | changes)))


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs the training commands without a process each; the list holds their names."""
    started: list[str] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        if "crossjem_pl" not in command:  # git, for the page
            return SimpleNamespace(stdout="")
        started.append(command[3])
        return SimpleNamespace(returncode=cli(command[3:]))

    monkeypatch.setattr(subprocess, "run", run)
    return started


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, seed in (("train", 1), ("dev", 2), ("test", 3)):
        write_lists(example_lists(9, seed=seed), folder / f"{name}.parquet")
        write_lists(example_lists(9, seed=seed), folder / f"{name}.jsonl.gz")
    return folder


def arguments(tmp_path: Path, encoder: str, *more: str) -> list[str]:
    return ["--encoder", encoder, "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), *more]


def test_descriptions_name_what_exists() -> None:
    assert TABLES == ["2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "study"]
    for number in TABLES:
        for part in read_table(number)[1]:
            assert part.kind in KINDS
            assert (EXPERIMENTS / f"{part.dataset}.yaml").is_file()
            for row in part.rows:
                files = (*row.config, *row.on_scores, *row.on_labels)
                assert all((EXPERIMENTS / file).is_file() for file in files), row.name
    with pytest.raises(ValueError, match="no table 1"):
        read_table("1")


def test_missing_data_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["2", "--data", str(tmp_path / "nothing"), "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "train.parquet" in message
    assert "crossjem prepare sodq" in message


def test_the_encoder_is_chosen_per_system() -> None:
    """What it is where none is named, `test_paper_configuration` holds against the papers."""
    systems = {row.name: row for row in (*read_table("2")[1][0].rows, *read_table("10")[1][0].rows)}

    def options(name: str) -> str:
        return " ".join(runner(encoder="mine", encoder_options=["dropout=0"]).arguments(systems[name]))

    assert "init_args.encoder mine --model.ranker.init_args.dropout 0" in options("CROSS-JEM")
    assert "init_args.encoder google-t5/t5-base" in options("RankT5-6L")
    assert "encoder" not in options("BM25")
    assert "init_args.encoder mine --model.ranker.init_args.layers 2" in options("2 layers")
    assert "--model.targets" not in options("INSTRUCTOR* (duplicates)")


def test_teacher_student_and_table(
    tmp_path: Path, data: Path, encoder: str, in_this_process: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Table 6 on data: a teacher is trained once, its scores are written once, finished runs are not repeated."""
    only = ["--data", str(data), "--parts", "1", "--only", "BCE", "RPL", "--seeds", "0", "1"]
    command = ["6", *arguments(tmp_path, encoder, *only), "--options", *SMALL]
    assert main(command) == 0
    assert in_this_process == ["fit", "teach", *["fit"] * 4]
    rows = (tmp_path / "out" / "table6.md").read_text().splitlines()
    rpl = [line for line in rows if line.startswith("| RPL")][-1]
    assert "35.45" in rpl
    assert rpl.count("(") >= 2  # a figure per seed
    assert main(command) == 0
    assert len(in_this_process) == 6
    assert "trained on the labels" in capsys.readouterr().out


def test_rows_are_trained_on_the_labels_as_well(
    tmp_path: Path, data: Path, encoder: str, in_this_process: list[str]
) -> None:
    only = ["--data", str(data), "--parts", "2", "--only", "BM25", "monoBERT", "DPR"]
    assert main(["2", *arguments(tmp_path, encoder, *only), "--options", *SMALL]) == 0
    assert in_this_process == ["fit", "teach", "validate", *["fit"] * 4]
    found = json.loads((tmp_path / "out" / "table2.json").read_text())["parts"][0]["cells"]
    assert {"RR@10", "RR@10, on labels", "parameters"} <= set(found["DPR"])
    assert "RR@10, on labels" not in found["BM25"]
    text = (tmp_path / "out" / "table2.md").read_text()
    assert "| DPR | 4 |" in text  # N, as the configuration has it
    assert "KLDivergence" in text


def test_items_per_pass_filtering_and_latency(
    tmp_path: Path, encoder: str, in_this_process: list[str]
) -> None:
    """Tables 9 and 3 as smoke runs: one model, several N; rankers take turns."""
    common = arguments(tmp_path, encoder, "--smoke")
    assert main(["9", *common, "--only", "N = 10", "CROSS-JEM", "--options", *SMALL]) == 0
    assert in_this_process == ["fit", "validate", "validate"]  # two steps stop short of the validation
    text = (tmp_path / "out" / "smoke" / "table9.md").read_text()
    assert "| N = 10 |" in text
    assert "99.18" in text
    assert main(["3", *common, "--only", "CROSS-JEM", "ANCE", "RankT5-6L"]) == 0
    text = (tmp_path / "out" / "smoke" / "table3.md").read_text()
    assert "Not run: RankT5-6L: needs google-t5/t5-base" in text
    assert "9.8" in text
    assert main(["9", *common, "--only", "N = 10"]) == 2  # the row whose model it evaluates is missing


def test_side_by_side_and_overlap(
    tmp_path: Path, data: Path, encoder: str, in_this_process: list[str]
) -> None:
    common = arguments(tmp_path, encoder, "--data", str(data))
    assert main(["11", *common, "--only", "monoBERT", "--options", *SMALL]) == 0
    assert "monobert" in (tmp_path / "out" / "table11.md").read_text()
    assert main(["8", "--dataset", "msmarco", *common, "--parts", "2"]) == 0
    assert "498.38" in (tmp_path / "out" / "table8.md").read_text()


def test_a_failed_training_ends_in_its_message(
    tmp_path: Path, data: Path, encoder: str, in_this_process: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["--data", str(data), "--scores", str(tmp_path / "absent.parquet"), "--parts", "1"]
    assert main(["6", *arguments(tmp_path, encoder, *wrong), "--options", *SMALL]) == 2
    message = capsys.readouterr().err
    assert "absent.parquet" in message
    assert "this command failed" in message


def test_every_form_of_the_study_is_what_its_name_says(encoder: str) -> None:
    built = runner("debian-titles", encoder=encoder)
    for row in read_table("study")[1][3].rows:
        ranker = built.ranker(row)
        assert isinstance(ranker, CrossJEM)
        head, *rest = row.name.split(", ")
        assert f"{type(ranker.head).__name__.lower()}" == head.replace(" ", "")
        assert ranker.union_attention == ("item" if rest else "full")
        assert (ranker.init_args.get("item_side_layers") or 0) == max(len(rest) - 1, 0)


def test_equal_time_gives_each_system_the_steps_that_it_has_time_for(
    tmp_path: Path, data: Path, encoder: str, in_this_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(_: Runner, systems: list[System]) -> dict[str, float]:
        return {system.name: 2.0 if "monoBERT" in system.name else 1.0 for system in systems}

    monkeypatch.setattr("benchmarks.tables.__main__.seconds_per_step", seconds)
    few = lambda items, rounds: measured_lists(items // 10, rounds)  # noqa: E731
    monkeypatch.setattr("benchmarks.tables.__main__.measured_lists", few)
    names = ["monoBERT", "CROSS-JEM, recommended form"]
    more = ["--parts", "2", "3", "5", "--minutes", "0.1", "--rounds", "1"]
    scores = ["--data", str(data), "--only", *names]
    small = ["--trainer.accelerator", "cpu", "--data.n_items", "4", "--data.batch_size", "4"]
    assert main(["study", *arguments(tmp_path, encoder, *more, *scores), "--options", *small]) == 0
    lists, timed, cost = json.loads((tmp_path / "out/accuracy.json").read_text())["parts"]
    trained_on = [[part["cells"][name]["lists"]["mean"] for name in names] for part in (lists, timed)]
    assert trained_on == [[12, 12], [12, 24]]  # nine lists are three steps of four
    assert set(cost["cells"]) == set(names)
    assert list(cost["cells"]["CROSS-JEM, recommended form"]) == ["30 ms", "100 ms", "700 ms"]
    assert (tmp_path / "out/accuracy.png").stat().st_size > 1000


def test_seconds_are_measured_once(
    tmp_path: Path, data: Path, encoder: str, in_this_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"data": data, "encoder": encoder, "runs": tmp_path / "runs"}
    given["options"] = [*SMALL, "--data.batch_size", "4"]
    found = runner("debian-titles", **given)
    found.teach()
    names = ("monoBERT", "CROSS-JEM, recommended form")
    systems = [row for row in read_table("study")[1][0].rows if row.name in names]
    seconds = pace.seconds_per_step(found, systems, steps=2, rounds=2)
    assert set(seconds) == set(names)
    assert all(0 < value < 60 for value in seconds.values())
    monkeypatch.setattr(pace, "_step_seconds", None)  # a second measurement would fail
    assert pace.seconds_per_step(found, systems) == seconds
