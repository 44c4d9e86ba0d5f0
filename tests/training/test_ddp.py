"""Two processes give the validation metrics of one, on a set whose size is odd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.trec import read_run
from tests.conftest import example_lists, root

CONFIG = """
trainer: {{accelerator: cpu, max_epochs: 1, enable_progress_bar: false, enable_model_summary: false, logger: false}}
model:
  ranker:
    class_path: crossjem_pl.rankers.CrossJEM
    init_args: {{encoder: {encoder}, max_query_tokens: 16, max_item_tokens: 16, max_union_tokens: 128}}
  loss: {{class_path: crossjem_pl.losses.RankingProbabilityLoss}}
data: {{val: {lists}, train: {lists}, eval_batch_size: 2, batch_size: 2}}
"""


def run(stage: str, config: Path, folder: Path, processes: int, *options: str) -> None:
    command = [sys.executable, "-m", "crossjem_pl", stage, "-c", str(config), *options]
    command += [f"--trainer.default_root_dir={folder}", f"--trainer.devices={processes}"]
    if processes > 1:
        command.append("--trainer.strategy=ddp")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root())}
    subprocess.run(command, check=True, env=environment, cwd=config.parent)


@pytest.fixture
def config(tiny_bert: str, tmp_path: Path) -> Path:
    write_lists(example_lists(13, seed=4), tmp_path / "lists.jsonl")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(encoder=tiny_bert, lists=tmp_path / "lists.jsonl"))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["validate", "test"])
def test_two_processes_equal_one(stage: str, config: Path, tmp_path: Path) -> None:
    split = {"validate": "val", "test": "test"}[stage]
    metrics, runs = [], []
    for processes in (1, 2):
        folder = tmp_path / f"run{processes}"
        run(stage, config, folder, processes)
        metrics.append(json.loads((folder / f"{split}_metrics.json").read_text())["means"])
        runs.append(read_run(folder / f"{split}.trec"))
    assert len(runs[0]) == len(runs[1]) == 13
    assert metrics[0] == pytest.approx(metrics[1], abs=1e-9)
    for query_id, by_item in runs[0].items():
        assert by_item == pytest.approx(runs[1][query_id], abs=1e-5)


@pytest.mark.slow
def test_two_processes_train_on_negatives_that_they_mined(config: Path, tmp_path: Path) -> None:
    """Each with a worker process: the batches that are not under way yet have the new negatives."""
    miner = "tests.training.test_hard_negatives.Recorder"
    options = [f"--trainer.callbacks+={miner}", "--trainer.callbacks.every_n_steps=2", "--data.num_workers=1"]
    ranker = config.with_name("dpr.yaml")
    overlay = "model: {{ranker: {{class_path: crossjem_pl.rankers.DPR, init_args: {{encoder: {}}}}}, targets: labels}}"
    ranker.write_text(
        overlay.format(yaml.safe_load(config.read_text())["model"]["ranker"]["init_args"]["encoder"])
    )
    loss = str(root() / "experiments" / "losses" / "info_nce.yaml")
    options += ["--trainer.max_epochs=2", "--data.batch_size=1"]
    run("fit", config, tmp_path / "run", 2, "-c", str(ranker), "-c", loss, *options)
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["processes"] == 2
    for rank in range(2):
        mined = json.loads((tmp_path / "run" / f"mined-{rank}.json").read_text())
        assert mined == [False] * 4 + [True] * 10
