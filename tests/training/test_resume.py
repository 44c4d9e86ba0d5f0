"""A run that is killed and resumed ends with the weights of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from crossjem_pl.data.formats import write_lists
from tests.conftest import example_lists, root

CONFIG = """
seed_everything: 3
trainer:
  accelerator: cpu
  max_epochs: 3
  enable_progress_bar: false
  enable_model_summary: false
  default_root_dir: {run}
checkpoint: {{every_n_train_steps: 5, save_last: true}}
model:
  ranker:
    class_path: crossjem_pl.rankers.CrossJEM
    init_args: {{encoder: {encoder}, max_query_tokens: 16, max_item_tokens: 16, max_union_tokens: 128, dropout: 0.3}}
  loss: {{class_path: crossjem_pl.losses.RankingProbabilityLoss}}
  lr: 1.0e-2
data: {{train: {lists}, n_items: 4, batch_size: 2}}
"""

SLOW = """
import sys, time
from lightning.pytorch.callbacks import Callback
from crossjem_pl.cli import main
class Slow(Callback):
    def on_train_batch_end(self, *args): time.sleep(0.15)
import crossjem_pl.cli.training as cli
original = cli.RankingCLI.instantiate_trainer
def slow(self, **kwargs):
    trainer = original(self, **kwargs)
    trainer.callbacks.insert(0, Slow())
    return trainer
cli.RankingCLI.instantiate_trainer = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_weights(tiny_bert: str, tmp_path: Path) -> None:
    lists = tmp_path / "train.jsonl"
    write_lists(example_lists(23, seed=9), lists)  # 12 steps an epoch: a checkpoint at 5 is in mid-epoch
    configs = {}
    for name in ("whole", "killed"):
        configs[name] = tmp_path / f"{name}.yaml"
        configs[name].write_text(CONFIG.format(run=tmp_path / name, encoder=tiny_bert, lists=lists))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root())}
    fit = [sys.executable, "-m", "crossjem_pl", "fit", "-c"]

    subprocess.run([*fit, str(configs["whole"])], check=True, env=environment, cwd=tmp_path)

    victim = subprocess.Popen(
        [sys.executable, "-c", SLOW, "fit", "-c", str(configs["killed"])], env=environment
    )
    last = tmp_path / "killed" / "checkpoints" / "last.ckpt"
    deadline = time.monotonic() + 120
    while not last.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    assert victim.poll() is None, "the run ended before it could be killed"
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    step = torch.load(last, weights_only=True)["global_step"]
    assert 0 < step < 36
    assert step % 12, "killed in mid-epoch"
    assert not (tmp_path / "killed" / "model").exists()

    resume = [*fit, str(configs["killed"]), "--ckpt_path", "last"]
    subprocess.run(resume, check=True, env=environment, cwd=tmp_path)
    whole = load_file(tmp_path / "whole" / "model" / "model.safetensors")
    resumed = load_file(tmp_path / "killed" / "model" / "model.safetensors")
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        torch.testing.assert_close(resumed[name], value, rtol=0, atol=0, msg=lambda m, n=name: f"{n}: {m}")
