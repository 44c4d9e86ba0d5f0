"""A run from the command line: its checkpoints, its configuration, its optimiser, its progress."""

from __future__ import annotations

import json
import math
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from crossjem_pl.cli import main
from crossjem_pl.data.batches import ListBatch
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.evaluation.runs import read_run_folder
from crossjem_pl.hashing import weights_sha256
from crossjem_pl.rankers.folder import load_ranker
from crossjem_pl.training import RankingModule
from crossjem_pl.training.callbacks import ProgressLines
from crossjem_pl.training.run_folder import AtomicCheckpointIO
from tests.conftest import example_lists

SOURCES: dict[str, Any] = {
    "path": "lists.parquet",
    "ShardSource": {"path": "lists.parquet", "buffer": 4},
    "MixedSource": {
        "sources": [
            "lists.parquet",
            {"class_path": "crossjem_pl.data.FileSource", "init_args": {"path": "lists.parquet", "limit": 2}},
        ]
    },
}


TERMS = [
    {"loss": {"class_path": f"crossjem_pl.losses.{loss}"}, "targets": targets}
    for loss, targets in (("SoftmaxCrossEntropy", "labels"), ("RankingProbabilityLoss", "scores"))
]


@pytest.fixture
def config(tiny_bert: str, tmp_path: Path) -> Path:
    """A configuration of two steps on four lists."""
    write_lists(example_lists(4, seed=5), tmp_path / "lists.parquet")
    limits = {"max_query_tokens": 16, "max_item_tokens": 16, "max_union_tokens": 128}
    ranker = {"class_path": "crossjem_pl.rankers.CrossJEM", "init_args": {"encoder": tiny_bert, **limits}}
    content = {
        "trainer": {
            "accelerator": "cpu",
            "max_epochs": 1,
            "enable_model_summary": False,
            "default_root_dir": str(tmp_path / "run"),
        },
        "model": {"ranker": ranker, "loss": {"class_path": "crossjem_pl.losses.ListNet"}},
        "data": {"root": str(tmp_path), "train": "lists.parquet", "val": "lists.parquet", "batch_size": 2},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "config.yaml"


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_the_saved_configuration_is_read_again(name: str, config: Path, tmp_path: Path) -> None:
    given = SOURCES[name]
    if name != "path":
        given = {"class_path": f"crossjem_pl.data.{name}", "init_args": given}
    loss = {"class_path": "crossjem_pl.losses.Sum", "init_args": {"terms": TERMS}}
    overlay = {"data": {"train": given}, "model": {"loss": loss, "targets": "both"}}
    (tmp_path / "overlay.yaml").write_text(yaml.safe_dump(overlay))
    assert main(["fit", "-c", str(config), "-c", str(tmp_path / "overlay.yaml")]) == 0
    first = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    config, again = tmp_path / "run" / "config.yaml", tmp_path / "again"
    assert main(["fit", "-c", str(config), "--trainer.default_root_dir", str(again)]) == 0
    second = yaml.safe_load((tmp_path / "again" / "config.yaml").read_text())
    assert second.pop("trainer") == {**first.pop("trainer"), "default_root_dir": str(tmp_path / "again")}
    assert second == first
    found = first["data"]["train"]
    if name == "path":
        assert found == given
    else:
        assert found["class_path"] == given["class_path"]
        assert set(found["init_args"]) >= set(given["init_args"])
    assert (tmp_path / "again" / "checkpoints" / "last.ckpt").exists()


def test_an_evaluation_leaves_the_trainings_configuration_and_summary(config: Path, tmp_path: Path) -> None:
    assert main(["fit", "-c", str(config)]) == 0
    written = (tmp_path / "run" / "config.yaml").read_bytes()
    before = json.loads((tmp_path / "run" / "summary.json").read_text())
    options = ["-c", str(config), "--model.weights", str(tmp_path / "run" / "model"), "--data.seed", "7"]
    for stage in ("validate", "test"):
        assert main([stage, *options]) == 0
    after = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (tmp_path / "run" / "config.yaml").read_bytes() == written
    assert set(after.pop("split_metrics")) == {"val", "test"}
    before.pop("split_metrics")
    assert after == before


def test_an_evaluation_of_other_lists_leaves_nothing_of_the_former(config: Path, tmp_path: Path) -> None:
    """Labels that are no grades have no qrels; lists without labels have no metrics either."""
    first = example_lists(3, seed=6)
    others = [replace(one, labels=tuple(label + 0.5 for label in one.labels or ())) for one in first]
    bare = [replace(one, labels=None) for one in first]
    kept = {"test.trec", "test.qrels", "test_lists.parquet", "test_metrics.json", "test_metrics.md"}
    for lists, gone in ((first, set()), (others, {"test.qrels"}), (bare, kept - {"test.trec"})):
        write_lists(lists, tmp_path / "test.parquet")
        assert main(["test", "-c", str(config), "--data.test=test.parquet"]) == 0
        assert {path.name for path in (tmp_path / "run").glob("test*")} == kept - gone
        figures = json.loads((tmp_path / "run" / "summary.json").read_text())["split_metrics"]
        assert ("test" in figures) == (lists is not bare)


def test_a_run_that_resumes_in_another_folder_leaves_its_model_there(config: Path, tmp_path: Path) -> None:
    """However good the model of the first folder was."""
    assert main(["fit", "-c", str(config)]) == 0
    options = ["--ckpt_path", str(tmp_path / "run" / "checkpoints" / "last.ckpt"), "--model.lr=0"]
    options += ["--trainer.max_epochs=2", f"--trainer.default_root_dir={tmp_path / 'other'}"]
    assert main(["fit", "-c", str(config), *options]) == 0
    assert {"model", "val.trec"} <= {path.name for path in (tmp_path / "other").iterdir()}


def test_a_signal_lets_the_gradients_of_a_step_accumulate(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = RankingModule.training_step

    def stopped(self: RankingModule, batch: ListBatch, batch_idx: int) -> torch.Tensor:
        if batch_idx == 0:
            signal.raise_signal(signal.SIGTERM)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(RankingModule, "training_step", stopped)
    options = ["--trainer.accumulate_grad_batches=2", "--data.batch_size=1", "--data.val=null"]
    with pytest.raises(SystemExit):
        main(["fit", "-c", str(config), *options])
    assert "SIGTERM: stopped after step 1; checkpoint" in capsys.readouterr().err


def test_a_training_without_an_end_needs_another_schedule(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--trainer.max_epochs=-1", "--trainer.max_time=00:00:00:01"]
    assert main(["fit", "-c", str(config), *options]) == 2
    assert "their number is not known: set trainer.max_steps" in capsys.readouterr().err


def test_a_sum_of_losses_trains_on_labels_and_scores(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "-c", str(config), "-c", "losses/softmax_ce_rpl"]) == 0
    written = tmp_path / "run" / "config.yaml"
    assert main(["fit", "-c", str(written), "--trainer.default_root_dir", str(tmp_path / "again")]) == 0
    losses = [(tmp_path / name / "metrics.csv").read_text() for name in ("run", "again")]
    assert losses[0] == losses[1]
    write_lists([replace(one, labels=None) for one in example_lists(4, seed=5)], tmp_path / "lists.parquet")
    assert main(["fit", "-c", str(config), "-c", "losses/softmax_ce_rpl"]) == 2
    assert "has no labels, which model.targets='both' asks for" in capsys.readouterr().err


@pytest.mark.parametrize("averaged", [False, True])
def test_runs_carry_the_hash_of_the_model_that_wrote_them(
    config: Path, tmp_path: Path, averaged: bool
) -> None:
    ema = (
        ["--trainer.callbacks", "[{class_path: lightning.pytorch.callbacks.EMAWeightAveraging}]"]
        if averaged
        else []
    )
    assert main(["fit", "-c", str(config), *ema]) == 0
    written = weights_sha256(load_ranker(str(tmp_path / "run" / "model")))[:12]
    assert read_run_folder(tmp_path / "run", "val").model == written
    assert main(["test", "-c", str(config), "--seed_everything", "3"]) == 0  # a fresh head
    assert read_run_folder(tmp_path / "run", "test").model not in (None, written)


def test_optimiser_and_schedule_by_class_path(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = tmp_path / "sgd.yaml"
    overlay.write_text(
        "model:\n"
        "  head_lr: 0.5\n"
        "  optimizer: {class_path: torch.optim.SGD, init_args: {lr: 0.25, momentum: 0.9, weight_decay: 0.1}}\n"
        "  lr_scheduler: {class_path: torch.optim.lr_scheduler.StepLR, init_args: {step_size: 1, gamma: 0.5}}\n"
    )
    seen: list[torch.optim.Optimizer] = []
    monkeypatch.setattr(RankingModule, "on_train_end", lambda self: seen.append(self.optimizers().optimizer))
    assert main(["fit", "-c", str(config), "-c", str(overlay)]) == 0
    assert isinstance(seen[0], torch.optim.SGD)
    groups = seen[0].param_groups
    assert {(g["initial_lr"], g["lr"], g["momentum"]) for g in groups} == {
        (0.25, 0.0625, 0.9),
        (0.5, 0.125, 0.9),
    }
    assert {g["weight_decay"] for g in groups} == {0.0, 0.1}


def test_a_plateau_is_judged_by_the_first_metric(config: Path, tmp_path: Path) -> None:
    options = [
        "--model.lr_scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau",
        "--model.lr_scheduler.mode=max",
    ]
    assert main(["fit", "-c", str(config), *options, "--trainer.max_epochs=2"]) == 0


@pytest.mark.parametrize(
    ("scores", "loss", "message"),
    [
        ((1e39, 0.0), "MeanSquaredError", r"error: .*line 2, field 'scores': position 0: .* 1e\+39"),
        ((12.0, 0.0), "RankingProbabilityLoss", r"step [01], lists .*'q5-1'.*: targets.* is 12"),
        (
            (3e38, -3e38),
            "MeanSquaredError",
            r"step [01], lists .*'q5-1'.*: the loss is inf; its inputs are finite, so MeanSquaredError",
        ),
    ],
)
def test_a_loss_that_is_not_finite_or_refused_stops_the_run(
    scores: tuple[float, float],
    loss: str,
    message: str,
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Step, lists and cause are named, and nothing that is not finite is saved."""
    lists = list(read_lists(tmp_path / "lists.parquet"))
    lists[1] = replace(lists[1].select([0, 1]), scores=(0.25, 0.75))
    write_lists(lists, tmp_path / "bad.jsonl")
    text = (tmp_path / "bad.jsonl").read_text()  # no list can be made of the first pair
    (tmp_path / "bad.jsonl").write_text(text.replace("0.25, 0.75", f"{scores[0]}, {scores[1]}"))
    options = ["--data.train=bad.jsonl", f"--model.loss=crossjem_pl.losses.{loss}"]
    assert main(["fit", "-c", str(config), *options]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.glob("run/checkpoints/*.ckpt"))


def test_diverged_weights_are_never_saved(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model.optimizer=torch.optim.SGD", "--model.optimizer.lr=1e38", "--model.warmup=0"]
    assert main(["fit", "-c", str(config), *options, "--data.val=null"]) == 2
    assert "not finite" in capsys.readouterr().err
    assert not list(tmp_path.glob("run/checkpoints/*.ckpt"))
    assert not (tmp_path / "run" / "model").exists()


def test_a_checkpoint_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, path = AtomicCheckpointIO(), tmp_path / "folder" / "last.ckpt"
    plugin.save_checkpoint({"state_dict": {"w": torch.ones(3)}, "n": 1}, path)
    with pytest.raises(ValueError, match="weight w is not finite"):
        plugin.save_checkpoint({"state_dict": {"w": torch.tensor([math.nan])}}, path)

    def full(checkpoint: Any, stream: Any) -> None:
        stream.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        plugin.save_checkpoint({"state_dict": {}}, path)
    assert plugin.load_checkpoint(path, weights_only=True)["n"] == 1
    assert [p.name for p in path.parent.iterdir()] == ["last.ckpt"]


def test_resuming_falls_back_to_the_newest_whole_checkpoint(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ["fit", "-c", str(config), "--checkpoint.every_n_train_steps=1"]
    assert main(fit) == 0
    folder = tmp_path / "run" / "checkpoints"
    last, other = folder / "last.ckpt", next(p for p in folder.glob("*.ckpt") if p.name != "last.ckpt")
    os.utime(other, (1, 1))
    last.write_bytes(last.read_bytes()[:-100])
    resume = [*fit, "--trainer.max_epochs=2", "--ckpt_path"]
    assert main([*resume, str(last)]) == 2
    assert f"checkpoint {last} is damaged or cut off" in capsys.readouterr().err
    with pytest.warns(UserWarning, match=f"{last}: damaged or cut off; resuming from {other}"):
        assert main([*resume, "last"]) == 0
    for path in folder.glob("*.ckpt"):
        path.write_bytes(b"PK")
    assert main([*resume, "last"]) == 2
    assert "there is no other checkpoint" in capsys.readouterr().err


def test_validation_without_positives_keeps_the_newest_weights(
    config: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = [replace(one, labels=(0.0,) * len(one)) for one in read_lists(tmp_path / "lists.parquet")]
    write_lists(lists, tmp_path / "barren.jsonl")
    assert main(["fit", "-c", str(config), "--data.val=barren.jsonl", "--trainer.max_epochs=2"]) == 0
    assert "no label of the val lists is 1 or more (model.relevant_from)" in caplog.text
    last = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    written = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert written
    assert all(torch.equal(value, last[f"ranker.{name}"]) for name, value in written.items())


def test_labels_on_some_lists_only_are_refused(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = read_lists(tmp_path / "lists.parquet")
    write_lists([replace(first, labels=None), *others], tmp_path / "some.jsonl")
    assert main(["fit", "-c", str(config), "--data.val=some.jsonl", "--data.eval_batch_size=1"]) == 2
    assert "1 of the 2 val lists have no labels: label all of them or none" in capsys.readouterr().err


def test_progress_without_a_terminal(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ProgressLines.__init__, "__defaults__", (0.0,))
    assert main(["fit", "-c", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("epoch 0, step 1/2, loss ") and "lists/s, 0:00:" in line for line in lines)
    assert any(line.startswith("validation after step 2: val/RR@10 ") for line in lines)
    model = tmp_path / "run" / "model"
    assert f"The model is in {model} (RR@10 " in lines[-3]
    assert str(model) in lines[-2]
    assert lines[-1].startswith("Use it: ")
