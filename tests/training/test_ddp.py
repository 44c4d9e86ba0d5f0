"""Two processes train together, and give the validation metrics of one on a set whose size is odd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crossjem_pl.cli import main
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.trec import read_run
from tests.conftest import example_lists, root

CONFIG = """
trainer: {{accelerator: cpu, max_epochs: 2, enable_progress_bar: false, enable_model_summary: false, logger: false}}
model:
  ranker:
    class_path: crossjem_pl.rankers.DPR
    init_args: {{encoder: {encoder}, max_query_tokens: 16, max_item_tokens: 16}}
  loss: {{class_path: crossjem_pl.losses.RankingProbabilityLoss}}
  targets: labels
data: {{val: {lists}, train: {lists}, eval_batch_size: 2, batch_size: 1}}
"""


@pytest.mark.slow
def test_two_processes_mine_train_and_evaluate_as_one_does(tiny_bert: str, tmp_path: Path) -> None:
    """Each with a worker process: the batches that are not under way yet have the negatives that it mined."""
    write_lists(example_lists(13, seed=4), tmp_path / "lists.jsonl")
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(encoder=tiny_bert, lists=tmp_path / "lists.jsonl"))
    miner = "tests.training.test_hard_negatives.Recorder"
    options = [f"--trainer.callbacks+={miner}", "--trainer.callbacks.every_n_steps=2", "--data.num_workers=1"]
    options += [
        "--trainer.devices=2",
        "--trainer.strategy=ddp",
        f"--trainer.default_root_dir={tmp_path / 'two'}",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root())}
    command = [
        sys.executable,
        "-m",
        "crossjem_pl",
        "fit",
        "-c",
        str(config),
        "-c",
        "losses/info_nce",
        *options,
    ]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    assert json.loads((tmp_path / "two" / "summary.json").read_text())["processes"] == 2
    for rank in range(2):
        mined = json.loads((tmp_path / "two" / f"mined-{rank}.json").read_text())
        assert mined == [False] * 4 + [True] * 10
    command = ["validate", "-c", str(config), "--model.weights", str(tmp_path / "two" / "model")]
    assert main([*command, f"--trainer.default_root_dir={tmp_path / 'one'}"]) == 0
    found = [
        json.loads((tmp_path / name / "val_metrics.json").read_text())["means"] for name in ("one", "two")
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-9)
    one, two = (read_run(tmp_path / name / "val.trec") for name in ("one", "two"))
    assert len(one) == len(two) == 13
    for query_id, by_item in one.items():
        assert by_item == pytest.approx(two[query_id], abs=1e-5)
