"""fit, validate, test and predict from the command line, and what a run's folder holds."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonargparse._common
import pandas as pd
import pytest
import torch
import yaml
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from crossjem_pl.cli import main
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.trec import read_run
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers.base import allow_only
from crossjem_pl.training import AverageWithStart
from crossjem_pl.training.run_folder import locked
from tests.conftest import example_lists, root

CONFIG = """
trainer: {{accelerator: cpu, max_epochs: 2, default_root_dir: {folder}/run, enable_progress_bar: false,
  enable_model_summary: false, log_every_n_steps: 1}}
model:
  ranker:
    class_path: crossjem_pl.rankers.CrossJEM
    init_args: {{encoder: {encoder}, max_query_tokens: 16, max_item_tokens: 16, max_union_tokens: 128}}
  loss: {{class_path: crossjem_pl.losses.RankingProbabilityLoss}}
  metrics: [RR@10, AP@10, nDCG@5]
data: {{root: {folder}, train: train.jsonl, val: val.jsonl.gz, n_items: 4, batch_size: 4}}
"""


@pytest.fixture(scope="module")
def project(tiny_models_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with lists and a configuration, trained once."""
    folder = tmp_path_factory.mktemp("project")
    write_lists(example_lists(16, seed=1), folder / "train.jsonl")
    write_lists(example_lists(7, seed=2), folder / "val.jsonl.gz")
    encoder = tiny_models_folder / "bert"
    (folder / "config.yaml").write_text(CONFIG.format(folder=folder, encoder=encoder))
    assert main(["fit", "-c", str(folder / "config.yaml")]) == 0
    return folder


def run(command: str, project: Path, folder: Path, *options: str) -> int:
    """The status of a training's command with the project's configuration and another run folder."""
    try:
        return main(
            [command, "-c", str(project / "config.yaml"), "--trainer.default_root_dir", str(folder), *options]
        )
    except SystemExit as stopped:
        return int(stopped.code or 0)


ONE_EPOCH = ("--trainer.max_epochs", "1")


def test_a_run_folder_holds_everything(project: Path) -> None:
    run = project / "run"
    files = "config.yaml metrics.csv val.trec val.qrels val_lists.parquet summary.json val_metrics.json val_metrics.md"
    files += " model/model.safetensors model/config.json model/tokenizer.json checkpoints/last.ckpt"
    assert not [name for name in files.split() if not (run / name).is_file()]
    again = yaml.safe_load((run / "config.yaml").read_text())
    assert again["data"]["n_items"] == 4
    rows = pd.read_csv(run / "metrics.csv")
    assert {"train/loss", "val/RR@10", "train/items_left_out", "train/truncated_items"} <= set(rows.columns)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["ranker"] == "crossjem"
    assert summary["trained_lists"] == 32
    assert summary["train_seconds"] > 0
    assert summary["parameters"] > 1000


def test_a_logger_writes_beside_metrics_csv(project: Path, tmp_path: Path) -> None:
    logger = ["--trainer.logger", "TensorBoardLogger", "--trainer.logger.save_dir", str(tmp_path)]
    assert run("fit", project, tmp_path, *ONE_EPOCH, *logger) == 0
    assert (tmp_path / "metrics.csv").is_file()
    (events,) = tmp_path.rglob("events.out.tfevents.*")
    assert b"train/loss" in events.read_bytes()


def test_the_exported_model_gives_the_scores_of_the_run(project: Path) -> None:
    assert_model_gave_the_run(project, project / "run")


def test_a_model_is_tested_without_a_configuration(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lists = str(project / "val.jsonl.gz")
    model = shutil.copytree(project / "run", tmp_path / "run") / "model"
    trained = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert main(["test", str(model), lists, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["metrics"]["RR@10"] == pytest.approx(trained["split_metrics"]["val"]["RR@10"], abs=5e-5)
    assert found["run"] == str(tmp_path / "run"), "beside the training"
    after = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert after["split_metrics"].pop("test")["RR@10"] == pytest.approx(found["metrics"]["RR@10"], abs=5e-5)
    assert after == trained
    assert main(["test", "bm25", lists]) == 0
    assert "runs/test/bm25" in capsys.readouterr().out
    assert main(["compare", "runs/test/bm25", "run", "--split", "test"]) == 0
    unlabelled = tmp_path / "bare.jsonl"
    unlabelled.write_text('{"query": "red", "items": ["blue", "shoes"]}\n')
    assert main(["test", str(model), str(unlabelled), "--out", "bare"]) == 2
    assert "no labels" in capsys.readouterr().err


def test_fractional_grades_are_measured_and_compared(tmp_path: Path) -> None:
    labelled = ((one, tuple(0.5 * (n % 4) for n in range(len(one)))) for one in example_lists(9, seed=3))
    write_lists((replace(one, labels=labels) for one, labels in labelled), tmp_path / "lists.jsonl")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    for out in (a, b):
        assert main(["test", "bm25", str(tmp_path / "lists.jsonl"), "--out", out]) == 0
    assert not (tmp_path / "a" / "test.qrels").exists(), "qrels hold whole numbers alone"
    assert main(["compare", a, b, "--split", "test", "--out", str(tmp_path / "c")]) == 0
    assert "2 systems on 9 queries" in (tmp_path / "c" / "compare.md").read_text()


@pytest.mark.parametrize(
    ("callback", "option"),
    [
        ("lightning.pytorch.callbacks.EMAWeightAveraging", "decay"),
        ("crossjem_pl.training.AverageWithStart", "share"),
    ],
)
def test_averaged_weights_are_what_is_validated_and_exported(
    project: Path, tmp_path: Path, callback: str, option: str
) -> None:
    averaging = [f"--trainer.callbacks+={callback}", f"--trainer.callbacks.{option}", "0.5"]
    assert run("fit", project, tmp_path, "--model.lr", "1e-2", *averaging) == 0
    assert_model_gave_the_run(project, tmp_path)


def test_the_average_with_the_start_leaves_training_alone(project: Path, tmp_path: Path) -> None:
    averaging = [
        "--trainer.callbacks+=crossjem_pl.training.AverageWithStart",
        "--trainer.callbacks.share",
        "0.25",
    ]
    for name, options in {"plain": [], "averaged": averaging}.items():
        assert run("fit", project, tmp_path / name, "--model.lr", "1e-2", *ONE_EPOCH, *options) == 0
    config = yaml.safe_load((tmp_path / "plain" / "config.yaml").read_text())
    assert "AverageWithStart" in str(yaml.safe_load((tmp_path / "averaged" / "config.yaml").read_text()))
    assert "AverageWithStart" not in str(config)

    def weights(name: str) -> dict[str, torch.Tensor]:
        checkpoint = torch.load(tmp_path / name / "checkpoints" / "last.ckpt", weights_only=True)
        return {key: value for key, value in checkpoint["state_dict"].items() if key.startswith("ranker.")}

    plain, trained = weights("plain"), weights("averaged")
    for key, value in plain.items():
        torch.testing.assert_close(trained[key], value, rtol=0, atol=0)
    models = [Reranker(tmp_path / name / "model").ranker.state_dict() for name in ("plain", "averaged")]
    assert any(not torch.equal(value, models[0][key]) for key, value in models[1].items())


def test_a_share_is_in_range() -> None:
    with pytest.raises(ValueError, match=r"share.*got 0"):
        AverageWithStart(0.0)


def assert_model_gave_the_run(project: Path, folder: Path) -> None:
    reranker = Reranker.from_pretrained(folder / "model")
    run = read_run(folder / "val.trec")
    lists = list(read_lists(project / "val.jsonl.gz"))
    for one, scores in zip(lists, reranker.score(lists), strict=True):
        assert dict(zip(one.item_ids, scores.tolist(), strict=True)) == pytest.approx(
            run[one.query_id], abs=1e-5
        )


def test_predict_writes_a_run(project: Path, tmp_path: Path) -> None:
    options = ["--data.predict", "train.jsonl", "--model.weights", str(project / "run" / "model")]
    assert run("predict", project, tmp_path, *options) == 0
    assert len(read_run(tmp_path / "predict.trec")) == 16


def test_a_second_fit_sets_the_first_aside(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the second does not write, such as the run of a test, is not left beside what it does write."""
    weights = ["--model.weights", str(tmp_path / "model")]
    assert run("fit", project, tmp_path, *ONE_EPOCH) == 0
    assert run("test", project, tmp_path, *weights) == 0
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    assert run("fit", project, tmp_path, *ONE_EPOCH, *weights) == 2
    assert "is in the folder of this run" in capsys.readouterr().err
    mixed = "{class_path: MixedSource, init_args: {sources: [absent.jsonl]}}"
    for mistake in (
        ["--data.train", "absent.jsonl"],
        ["--data.val", mixed],
        ["--data.teacher_scores", "absent.parquet"],
        ["--trainer.accelerator", "absent"],
    ):
        assert run("fit", project, tmp_path, *ONE_EPOCH, *mistake) == 2
        assert "absent" in capsys.readouterr().err
    assert (tmp_path / "model").exists()
    assert run("fit", project, tmp_path, *ONE_EPOCH) == 0
    assert (
        f"{tmp_path} holds an earlier run, which is in {tmp_path / 'earlier-1'} now"
        in capsys.readouterr().err
    )
    assert (tmp_path / "earlier-1" / "model" / "model.safetensors").read_bytes() == before
    assert (tmp_path / "earlier-1" / "test.trec").exists()
    assert not (tmp_path / "test.trec").exists()
    assert set(json.loads((tmp_path / "summary.json").read_text())["split_metrics"]) == {"val"}
    assert run("fit", project, tmp_path, "--ckpt_path", "last", "--trainer.max_epochs", "2") == 0
    assert (tmp_path / "metrics-1.csv").exists()
    assert not (tmp_path / "earlier-2").exists()


def test_two_runs_do_not_share_a_folder(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = multiprocessing.Pipe()

    def hold() -> None:
        with locked(tmp_path):
            there.send("held")
            time.sleep(600)

    process = multiprocessing.get_context("fork").Process(target=hold)
    process.start()
    assert here.recv() == "held"
    assert run("validate", project, tmp_path) == 2
    assert main(["test", str(project / "run" / "model"), "x", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count(f"a run of process {process.pid} on ") == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_zero_only, "rank", 1)
        assert run("validate", project, tmp_path) == 0, "only the first process of a run takes the lock"
    process.kill()
    process.join()
    assert run("validate", project, tmp_path) == 0, "the lock of a dead process is none"


def test_stages_say_what_they_read(
    project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [f"--trainer.default_root_dir={tmp_path}", "--model.ranker.init_args.encoder"]
    encoder = yaml.safe_load((project / "config.yaml").read_text())["model"]["ranker"]["init_args"]["encoder"]
    assert main(["test", "-c", str(project / "config.yaml"), *options, encoder]) == 0
    told = [record.getMessage() for record in caplog.records]
    assert f"val lists: {project / 'val.jsonl.gz'} (data.val: there is no data.test)" in told
    assert main(["test", "-c", "own-lists", f"--data.root={tmp_path}", *options, encoder]) == 2
    assert str(tmp_path / "test.parquet") in capsys.readouterr().err, "nothing is simulated in its place"


def test_bm25_is_evaluated_and_cannot_be_fitted(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlay = ["-c", str(root() / "experiments" / "rankers" / "bm25.yaml")]
    assert run("validate", project, tmp_path, *overlay) == 0
    assert len(read_run(tmp_path / "val.trec")) == 7
    capsys.readouterr()
    assert run("fit", project, tmp_path, *overlay) == 2
    assert "nothing to train" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--model.lrr", "3"], "lrr"),
        (["--model.ranker.init_args.encodr", "x"], "encodr"),
        (["-c", "/no/such/config.yaml"], "/no/such/config.yaml"),
        (["--data.train", "/no/such/lists.jsonl"], "/no/such/lists.jsonl"),
        (["--data.train", "wrong.jsonl"], "itemz"),
        (["--data.train", "broken.jsonl"], "line 2"),
        (["--data.n_items", "1"], "n_items"),
        (["--model.targets", "gains"], "gains"),
        (["--trainer.max_epochs", "many"], "max_epochs"),
    ],
)
def test_a_mistake_is_one_screen_that_names_it(
    options: list[str], named: str, project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = '{"query_id": "1", "query": "red shoes", "item_ids": ["a"], "items": ["shoes"], "labels": [1]}\n'
    (project / "wrong.jsonl").write_text(row.replace('"items"', '"itemz"'))
    (project / "broken.jsonl").write_text(row + row[:40] + "\n")
    assert run("fit", project, tmp_path, *options) == 2
    error = capsys.readouterr().err
    assert named in error
    assert "Traceback" not in error
    assert len(error.splitlines()) < 25


def test_a_file_of_lists_is_never_read_as_a_configuration(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"query_id": "1", "query": "red shoes", "item_ids": ["a"], "items": ["shoes"], "labels": [1]}
    (tmp_path / "one.jsonl").write_text(json.dumps(row))
    (tmp_path / "wrong.jsonl").write_text(json.dumps({**row, "query": ""}))
    monkeypatch.chdir(tmp_path)
    for file, status in (("one.jsonl", 0), ("wrong.jsonl", 2)):
        assert run("validate", project, tmp_path / "run", "--data.root", ".", "--data.val", file) == status
    error = capsys.readouterr().err
    assert all(named in error for named in ("wrong.jsonl", "line 1", "query"))


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module whose import is noticed; what `--allow-classes` set is undone."""
    (tmp_path / "stranger.py").write_text("from crossjem_pl.losses import ListNet as Loss\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = jsonargparse._common.parsing_settings
    monkeypatch.setattr(jsonargparse._common, "parsing_settings", dict(settings))
    yield
    allow_only(None)
    sys.modules.pop("stranger", None)


@pytest.mark.parametrize(
    ("named", "value"),
    [
        ("model.loss", {"class_path": "stranger.Loss"}),
        ("model.metrics", ["stranger:RR@10"]),
        ("trainer.callbacks", [{"class_path": "stranger.Loss"}]),
        ("data.train", {"class_path": "stranger.Loss"}),
        ("model.loss", {"class_path": "torch.hub.load"}),
        ("model.loss", {"class_path": "torch.os.system"}),
    ],
)
def test_a_configuration_imports_only_what_is_allowed(
    named: str, value: Any, project: Path, tmp_path: Path, stranger: None, capsys: pytest.CaptureFixture[str]
) -> None:
    part, field = named.split(".")
    (tmp_path / "more.yaml").write_text(yaml.safe_dump({part: {field: value}}))
    more = ["-c", str(tmp_path / "more.yaml"), "--allow-classes"]
    assert run("fit", project, tmp_path / "run", *ONE_EPOCH, *more) == 2
    error = capsys.readouterr().err
    assert (value["class_path"] if isinstance(value, dict) else "stranger") in error
    assert "allowed" in error or "--allow-classes does not allow" in error
    assert "stranger" not in sys.modules


def test_a_named_prefix_is_allowed(project: Path, tmp_path: Path, stranger: None) -> None:
    options = ["--model.loss", "stranger.Loss", "--allow-classes=stranger,other"]
    assert run("fit", project, tmp_path / "run", *ONE_EPOCH, *options) == 0
    assert "stranger" in sys.modules


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"\xff\xfe", ""), (b"model:\n  lr: 1\n data: 1", ", line 3"), (b"a: " + b"[" * 3000, ""), (None, "")],
)
def test_a_damaged_configuration_is_named(
    content: bytes | None, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "damaged.yaml"
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    assert main(["fit", "-c", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}{line}: ")
    assert len(error.splitlines()) == 1
