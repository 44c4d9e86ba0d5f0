"""The accuracy study: its description is complete, steps follow from measured seconds, and it runs from end to end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from benchmarks.study import pace
from benchmarks.study.__main__ import main
from benchmarks.study.cost import Cost
from benchmarks.study.page import Trained, accuracy_table, cost_table
from benchmarks.study.spec import read_study
from benchmarks.tables.runs import EXPERIMENTS, Runner, read_dataset
from crossjem_pl.cli import main as cli
from crossjem_pl.data.formats import write_lists
from crossjem_pl.rankers import CrossJEM
from tests import tiny_models
from tests.conftest import example_lists

SMALL = ["--trainer.accelerator", "cpu", "--data.n_items", "4", "--data.batch_size", "4"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lists in the layout of debian-titles with teacher scores in them; commands run in this process."""

    def run(command: list[str], check: bool) -> SimpleNamespace:
        assert not check
        return SimpleNamespace(returncode=cli(command[3:]))

    monkeypatch.setattr(subprocess, "run", run)
    data = tmp_path / "data"
    data.mkdir()
    lists = example_lists(8, seed=1)
    write_lists(lists, data / "train.jsonl.gz")
    write_lists(example_lists(6, seed=2), data / "dev.jsonl.gz")
    rows = [
        {"query_id": one.query_id, "item_id": item, "score": 1.0 / (1 + place)}
        for one in lists
        for place, item in enumerate(one.item_ids)
    ]
    pd.DataFrame(rows).to_parquet(data / "scores.parquet")
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    encoder = str(tiny_models.write_bert(folder / "bert", positions=512))
    out = [
        "--data",
        str(folder / "data"),
        "--scores",
        str(folder / "data/scores.parquet"),
        "--encoder",
        encoder,
    ]
    out += ["--runs", str(folder / "runs"), "--out", str(folder / "out"), *more]
    return [*out, "--options", *SMALL]


def test_the_description_names_what_exists() -> None:
    study = read_study()
    for system in (*study.systems, *study.ablation):
        for file in system.config:
            assert (EXPERIMENTS / file).is_file(), file
    assert len(study.ablation) == 32
    assert len({system.name for system in study.ablation}) == 32


def test_every_row_of_the_ablation_is_what_its_name_says(tmp_path: Path) -> None:
    encoder = str(tiny_models.write_bert(tmp_path / "bert", positions=512))
    runner = Runner(read_dataset("debian-titles", None), encoder, None, None, [], [], [], tmp_path, False)
    for system in read_study().ablation:
        ranker = runner.ranker(system)
        assert isinstance(ranker, CrossJEM)
        head, layers, positions, attention, *split = system.name.split(", ")
        assert (ranker.split_layers is not None) == bool(split)
        assert type(ranker.head).__name__.lower() == f"{head}head"
        assert (0 if ranker.item_layers is None else len(ranker.item_layers.layers)) == int(layers.split()[0])
        assert positions == f"{ranker.union_positions} positions"
        assert attention == f"{ranker.union_attention} attention"


def test_equal_time_gives_each_system_the_steps_that_it_has_time_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "benchmarks.study.__main__.seconds_per_step",
        lambda runner, systems: {
            system.name: 2.0 if system.name == "monoBERT" else 1.0 for system in systems
        },
    )
    only = ["--only", "monoBERT", "CROSS-JEM, the paper's", "CROSS-JEM"]
    more = [
        "--parts",
        "lists",
        "time",
        "--minutes",
        "0.1",
        "--items",
        "5",
        "--rounds",
        "2",
        "--more-seeds",
        "1",
    ]
    assert main(arguments(folder, *only, *more)) == 0
    found = json.loads((folder / "out/accuracy.json").read_text())
    assert {name: one["steps"] for name, one in found["time"].items()} == {
        "monoBERT": 3,
        "CROSS-JEM, the paper's": 6,
        "CROSS-JEM": 6,
    }
    assert {one["steps"] for one in found["lists"].values()} == {2}
    assert {one["lists"] for one in found["lists"].values()} == {8}
    seeds = {name: len(one["runs"]) for name, one in found["time"].items()}
    assert seeds["monoBERT"] == 2
    assert sorted(seeds.values()) == [1, 2, 2]
    page = (folder / "out/accuracy.md").read_text()
    assert "Equal lists: 8, each seen once" in page
    assert "Equal training time: 0.1 minutes" in page
    assert (folder / "out/accuracy.png").stat().st_size > 1000
    assert set(found["cost"]) == set(found["time"])


def test_seconds_are_measured_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(
        read_dataset("debian-titles", folder / "data"),
        str(tiny_models.write_bert(folder / "bert", positions=512)),
        None,
        folder / "data/scores.parquet",
        [],
        [],
        SMALL,
        folder / "runs",
        False,
    )
    systems = [system for system in read_study().systems if system.name in ("monoBERT", "CROSS-JEM")]
    found = pace.seconds_per_step(runner, systems, steps=2, rounds=2)
    assert set(found) == {"monoBERT", "CROSS-JEM"}
    assert all(0 < seconds < 60 for seconds in found.values())
    monkeypatch.setattr(pace, "_round", None)  # a second measurement would fail
    assert pace.seconds_per_step(runner, systems) == found


def test_tables_compare_with_the_baseline() -> None:
    def frame(values: list[float]) -> pd.DataFrame:
        return pd.DataFrame({"RR@10": values, "AP@10": values, "nDCG@10": values})

    trained = Trained(
        frames={"a": [frame([0.0, 1.0] * 20)], "b": [frame([1.0, 1.0] * 20), frame([0.5, 1.0] * 20)]},
        steps={"a": 2, "b": 4},
        minutes={"a": 1.0, "b": 1.0},
        lists={"a": 16, "b": 32},
    )
    lines = accuracy_table(trained, "a")
    assert "50.00 [" in lines[2]
    assert "87.50 [" in lines[3]
    assert "(100.00, 75.00)" in lines[3]
    assert "+37.50 [" in lines[3]
    assert lines[3].endswith("| 32 | 1.0 |")
    costs = {"a": {30: Cost((8.0, 8.0), (10.0, 10.0))}, "b": {30: Cost((2.0, 2.0), (5.0, 5.0))}}
    assert "4.0x (2.0x)" in cost_table(costs, "a")[3]


def test_rows_that_do_not_exist_are_a_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(folder, "--only", "nobody")) == 2
    assert "--only names none of 'monoBERT'" in capsys.readouterr().err
    assert main(["--data", str(folder / "nothing")]) == 2
    assert "train.jsonl.gz" in capsys.readouterr().err
