"""The papers' tables: their descriptions are complete, and every kind of part runs on a tiny encoder."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.tables import runs
from benchmarks.tables.__main__ import main
from benchmarks.tables.parts import KINDS
from benchmarks.tables.runs import EXPERIMENTS, Runner, read_dataset
from benchmarks.tables.spec import TABLES, read_table
from crossjem_pl.cli import main as cli
from crossjem_pl.data.formats import write_lists
from tests import tiny_models
from tests.conftest import example_lists

SMALL = ["--trainer.max_steps", "2", "--trainer.accelerator", "cpu", "--data.n_items", "4"]


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs the training commands without a process each; the list holds their names."""
    started: list[str] = []

    def run(command: list[str], check: bool) -> SimpleNamespace:
        assert not check
        started.append(command[3])
        return SimpleNamespace(returncode=cli(command[3:]))

    monkeypatch.setattr(subprocess, "run", run)
    return started


@pytest.fixture
def encoder(tmp_path: Path) -> str:
    return str(tiny_models.write_bert(tmp_path / "bert", positions=512))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, seed in (("train", 1), ("dev", 2), ("test", 3)):
        write_lists(example_lists(9, seed=seed), folder / f"{name}.parquet")
    return folder


def runner(tmp_path: Path, dataset: str = "msmarco", data: Path | None = None, **changes: object) -> Runner:
    options: dict[str, object] = {
        "dataset": read_dataset(dataset, data),
        "encoder": None,
        "teacher_encoder": None,
        "scores": None,
        "overlays": [],
        "encoder_options": [],
        "options": [],
        "runs": tmp_path / "runs",
        "smoke": False,
    }
    return Runner(**{**options, **changes})  # type: ignore[arg-type]


def test_the_papers_tables_are_described() -> None:
    assert TABLES == [2, 3, 4, 6, 7, 8, 9, 10, 11]
    with pytest.raises(ValueError, match="no table 5"):
        read_table(5)


@pytest.mark.parametrize("number", TABLES)
def test_descriptions_name_what_exists(number: int) -> None:
    for part in read_table(number).parts:
        assert part.kind in KINDS
        assert read_dataset(part.dataset, None).name == part.dataset
        for system in part.systems:
            for file in system.config:
                assert (EXPERIMENTS / file).is_file(), file
            assert {name for name, _ in system.paper} <= set(part.columns)
        names = [system.name for system in part.systems]
        assert len(set(names)) == len(names)


def test_figures_of_the_paper_are_its_own() -> None:
    """A few cells of the paper, typed here once more."""
    cell = {
        (number, system.name, column): value
        for number in TABLES
        for part in read_table(number).parts
        for system in part.systems
        for column, value in system.paper
    }
    assert cell[2, "CROSS-JEM", "AP@10"] == 53.05
    assert cell[2, "monoBERT", "RR@10"] == 32.47
    assert cell[6, "RPL", "RR@10"] == 35.45
    assert cell[7, "MEB", "Acc@80"] == 84.40
    assert cell[8, "alphabetical", "AP@100"] == 92.76
    assert cell[9, "80", "AUC"] == 99.51
    assert cell[10, "2 layers", "p50 ms"] == 114.3


def test_an_unknown_field_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.tables import spec

    (tmp_path / "table99.yaml").write_text(
        "title: t\nparts: [{caption: c, kind: accuracy, datasett: msmarco}]\n"
    )
    monkeypatch.setattr(spec, "__file__", str(tmp_path / "spec.py"))
    monkeypatch.setattr(spec, "TABLES", [99])
    with pytest.raises(ValueError, match="no field datasett"):
        spec.read_table(99)


def test_missing_data_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["2", "--data", str(tmp_path / "nothing"), "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "train.parquet" in message
    assert "crossjem prepare sodq" in message


def test_the_encoder_is_chosen_per_system(tmp_path: Path) -> None:
    systems = {system.name: system for system in read_table(2).parts[0].systems}

    def options(name: str, encoder: str | None) -> str:
        found = runner(tmp_path, encoder=encoder, encoder_options=["dropout=0"])
        return " ".join(found._arguments(systems[name], 0, None, with_scores=False))

    assert "init_args.encoder distilbert/distilbert-base-uncased" in options("CROSS-JEM", None)
    assert "init_args.encoder mine --model.ranker.init_args.dropout 0" in options("CROSS-JEM", "mine")
    assert "init_args.encoder google-t5/t5-base" in options("RankT5-6L", "mine")
    assert "encoder" not in options("BM25", "mine")
    small = read_table(10).parts[0].systems[0]
    cut = " ".join(runner(tmp_path, encoder="mine")._arguments(small, 0, None))
    assert "init_args.encoder mine --model.ranker.init_args.layers 2" in cut


def test_teacher_student_and_table(
    tmp_path: Path, data: Path, encoder: str, in_this_process: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Table 6 on data: a teacher is trained once, its scores are written once, finished runs are not repeated."""
    common = ["6", "--data", str(data), "--encoder", encoder, "--runs", str(tmp_path / "runs")]
    common += ["--out", str(tmp_path / "out"), "--parts", "1", "--only", "BCE", "RPL"]
    command = [*common, "--seeds", "0", "1", "--options", *SMALL]
    assert main(command) == 0
    assert in_this_process == ["fit", "teach", *["fit"] * 4]
    text = (tmp_path / "out" / "table6.md").read_text()
    rpl = next(line for line in text.splitlines() if line.startswith("| RPL"))
    assert "35.45" in rpl
    assert rpl.count("(") >= 2  # a figure per seed
    assert main(command) == 0
    assert len(in_this_process) == 6
    assert "paper's RR@10" in capsys.readouterr().out


def test_items_per_pass_filtering_and_latency(
    tmp_path: Path, encoder: str, in_this_process: list[str]
) -> None:
    """Tables 9 and 3 as smoke runs: one model, several N; rankers take turns."""
    common = [
        "--smoke",
        "--encoder",
        encoder,
        "--runs",
        str(tmp_path / "runs"),
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(["9", *common, "--only", "10", "100", "--options", *SMALL]) == 0
    assert in_this_process == ["fit", "validate", "validate"]  # two steps stop short of the validation
    text = (tmp_path / "out" / "smoke" / "table9.md").read_text()
    assert "| 10 |" in text
    assert "99.18" in text
    assert main(["3", *common, "--only", "CROSS-JEM", "ANCE", "RankT5-6L"]) == 0
    text = (tmp_path / "out" / "smoke" / "table3.md").read_text()
    assert "Not run: RankT5-6L: needs google-t5/t5-base" in text
    assert "9.80" in text


def test_a_row_without_the_model_that_it_evaluates(tmp_path: Path, encoder: str) -> None:
    systems = ["9", "--smoke", "--encoder", encoder, "--only", "10", "--runs", str(tmp_path)]
    assert main([*systems, "--out", str(tmp_path)]) == 2


def test_side_by_side_and_overlap(
    tmp_path: Path, data: Path, encoder: str, in_this_process: list[str]
) -> None:
    scores = tmp_path / "scores.parquet"
    common = ["--encoder", encoder, "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main(["11", "--data", str(data), *common, "--only", "monoBERT", "--options", *SMALL]) == 0
    assert not scores.exists()
    assert "monobert" in (tmp_path / "out" / "table11.md").read_text()
    assert main(["8", "--data", str(data), "--dataset", "msmarco", *common, "--parts", "2"]) == 0
    assert "498.38" in (tmp_path / "out" / "table8.md").read_text()


def test_a_failed_training_ends_in_its_message(
    tmp_path: Path, data: Path, encoder: str, in_this_process: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["6", "--data", str(data), "--encoder", encoder, "--runs", str(tmp_path / "runs")]
    wrong = ["--out", str(tmp_path), "--scores", str(tmp_path / "absent.parquet")]
    assert main([*command, *wrong, "--options", *SMALL]) == 2
    message = capsys.readouterr().err
    assert "absent.parquet" in message
    assert "this command failed" in message


def test_smoke_data_is_small() -> None:
    assert runs.SMOKE.is_file()
