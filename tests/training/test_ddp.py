"""Two processes give the validation metrics of one, on a set whose size is odd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crossjem_pl.data.formats import read_run, write_lists
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


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["validate", "test"])
def test_two_processes_equal_one(stage: str, tiny_bert: str, tmp_path: Path) -> None:
    lists = tmp_path / "val.jsonl"
    write_lists(example_lists(13, seed=4), lists)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(encoder=tiny_bert, lists=lists))
    split = {"validate": "val", "test": "test"}[stage]
    metrics, runs = [], []
    for processes in (1, 2):
        run = tmp_path / f"run{processes}"
        options = [f"--trainer.default_root_dir={run}", f"--trainer.devices={processes}"]
        if processes > 1:
            options.append("--trainer.strategy=ddp")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root())}
        command = [sys.executable, "-m", "crossjem_pl", stage, "-c", str(config), *options]
        subprocess.run(command, check=True, env=environment, cwd=tmp_path)
        metrics.append(json.loads((run / f"{split}_metrics.json").read_text())["means"])
        runs.append(read_run(run / f"{split}.trec"))
    assert len(runs[0]) == len(runs[1]) == 13
    assert metrics[0] == pytest.approx(metrics[1], abs=1e-9)
    for query_id, by_item in runs[0].items():
        assert by_item == pytest.approx(runs[1][query_id], abs=1e-5)


@pytest.mark.slow
def test_two_processes_train(tiny_bert: str, tmp_path: Path) -> None:
    lists = tmp_path / "train.jsonl"
    write_lists(example_lists(13, seed=4), lists)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(encoder=tiny_bert, lists=lists))
    run = tmp_path / "run"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root())}
    command = [sys.executable, "-m", "crossjem_pl", "fit", "-c", str(config), "--trainer.devices=2"]
    command += ["--trainer.strategy=ddp", f"--trainer.default_root_dir={run}"]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    assert (run / "model" / "model.safetensors").exists()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["processes"] == 2
