"""A run that is killed or interrupted and resumed ends with the weights of one that was not."""

from __future__ import annotations

import multiprocessing
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from crossjem_pl.cli import main
from crossjem_pl.data.batches import ListBatch
from crossjem_pl.data.formats import write_lists
from crossjem_pl.training import RankingModule
from tests.conftest import example_lists

CONFIG = """
seed_everything: 3
trainer:
  accelerator: cpu
  max_epochs: 3
  enable_progress_bar: false
  enable_model_summary: false
checkpoint: {{every_n_train_steps: 5, save_last: true}}
model:
  ranker:
    class_path: crossjem_pl.rankers.CrossJEM
    init_args: {{encoder: {encoder}, max_query_tokens: 16, max_item_tokens: 16, max_union_tokens: 128, dropout: 0.3}}
  loss: {{class_path: crossjem_pl.losses.RankingProbabilityLoss}}
  lr: 1.0e-2
data: {{train: {lists}, n_items: 4, batch_size: 2}}
"""


@pytest.fixture(scope="module")
def config(tiny_bert: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration, and beside it the folder `whole` of a run that nobody stopped."""
    folder = tmp_path_factory.mktemp("resume")
    write_lists(
        example_lists(23, seed=9), folder / "train.jsonl"
    )  # 12 steps an epoch: step 5 is in mid-epoch
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(encoder=tiny_bert, lists=folder / "train.jsonl"))
    assert fit(path, folder / "whole") == 0
    return path


def fit(config: Path, folder: Path, *options: str) -> int:
    return main(["fit", "-c", str(config), "--trainer.default_root_dir", str(folder), *options])


def slow_fit(config: Path, folder: Path) -> None:
    step = RankingModule.training_step

    def slow(self: RankingModule, batch: ListBatch, batch_idx: int) -> Tensor:
        time.sleep(0.15)
        return step(self, batch, batch_idx)

    RankingModule.training_step = slow  # type: ignore[method-assign]
    fit(config, folder)


def assert_resumes_to_the_same_weights(config: Path, folder: Path) -> None:
    step = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert 0 < step < 36
    assert step % 12, "stopped in mid-epoch"
    assert not (folder / "model").exists()
    assert fit(config, folder, "--ckpt_path", "last") == 0
    whole = load_file(config.parent / "whole" / "model" / "model.safetensors")
    resumed = load_file(folder / "model" / "model.safetensors")
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        torch.testing.assert_close(resumed[name], value, rtol=0, atol=0, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.slow
def test_after_a_kill(config: Path, tmp_path: Path) -> None:
    victim = multiprocessing.get_context("fork").Process(target=slow_fit, args=(config, tmp_path))
    victim.start()
    last = tmp_path / "checkpoints" / "last.ckpt"
    deadline = time.monotonic() + 300
    while not last.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    assert victim.is_alive(), "the run ended before it could be killed"
    victim.kill()
    victim.join()
    assert_resumes_to_the_same_weights(config, tmp_path)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_after_a_signal(
    number: signal.Signals,
    status: int,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The step under way is finished, a checkpoint written, and the message says how to go on."""
    step = RankingModule.training_step

    def stopped(self: RankingModule, batch: ListBatch, batch_idx: int) -> Tensor:
        if self.global_step == 6:
            signal.raise_signal(number)
        return step(self, batch, batch_idx)

    before = signal.getsignal(number)
    monkeypatch.setattr(RankingModule, "training_step", stopped)
    with pytest.raises(SystemExit) as stop:
        fit(config, tmp_path)
    monkeypatch.undo()
    assert stop.value.code == status
    assert signal.getsignal(number) == before
    last = tmp_path / "checkpoints" / "last.ckpt"
    assert f"{number.name}: stopped after step 7; checkpoint: {last}. To resume: " in capsys.readouterr().err
    assert_resumes_to_the_same_weights(config, tmp_path)


def test_ctrl_c_before_training_is_an_interruption_too(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: RankingModule, stage: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RankingModule, "setup", interrupted)
    assert fit(config, tmp_path) == 130
