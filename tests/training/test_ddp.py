"""Two processes train together, and give the validation metrics of one on a set whose size is odd."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from safetensors.torch import load_file

from crossjem_pl.cli import main
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.trec import read_run
from crossjem_pl.rankers.folder import load_ranker
from tests.conftest import example_lists, root
from tests.processes import run_two
from tests.tiny_models import write_gpt

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

LOSS = ("-c", "losses/info_nce")
DYING = """
import os, signal, sys, time
from pathlib import Path
from crossjem_pl.cli import main
from crossjem_pl.training import RankingModule
step = RankingModule.training_step
def dying(self, batch, batch_idx):
    if self.global_step == 5 and self.global_rank == 1:
        Path(os.environ["DIES"], "died").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, batch, batch_idx)
if os.environ["DIES"]:
    RankingModule.training_step = dying
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_two_processes_mine_train_and_evaluate_as_one_does(tiny_bert: str, tmp_path: Path) -> None:
    """Each with a worker process: the batches that are not under way yet have the negatives that it mined."""
    config = written(tmp_path, tiny_bert)
    miner = "tests.training.test_hard_negatives.Recorder"
    options = [f"--trainer.callbacks+={miner}", "--trainer.callbacks.every_n_steps=2", "--data.num_workers=1"]
    options += ["--trainer.devices=2", "--trainer.strategy=ddp"]
    options += [f"--trainer.default_root_dir={tmp_path / 'two'}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root())}
    command = [sys.executable, "-m", "crossjem_pl", "fit", "-c", str(config), *LOSS, *options]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    assert json.loads((tmp_path / "two" / "summary.json").read_text())["processes"] == 2
    for rank in range(2):
        mined = json.loads((tmp_path / "two" / f"mined-{rank}.json").read_text())
        assert mined == [False] * 4 + [True] * 10
    command = ["validate", "-c", str(config), "--model.weights", str(tmp_path / "two" / "model")]
    assert main([*command, f"--trainer.default_root_dir={tmp_path / 'one'}"]) == 0
    assert means(tmp_path / "one") == pytest.approx(means(tmp_path / "two"), abs=1e-9)
    one, two = (read_run(tmp_path / name / "val.trec") for name in ("one", "two"))
    assert len(one) == len(two) == 13
    for query_id, by_item in one.items():
        assert by_item == pytest.approx(two[query_id], abs=1e-5)


@pytest.mark.slow
def test_torchrun_ends_when_a_process_is_killed_and_the_run_resumes_to_the_same_weights(
    tiny_bert: str, tmp_path: Path
) -> None:
    """Through the overlay, on gloo: one process of two gets SIGKILL in mid-epoch.

    What is not killed runs in two forks of this process, as torchrun would start them, but without its imports.
    """
    config = written(tmp_path, tiny_bert)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run_two(as_torchrun, free_port(), fit(config, whole, *LOSS))
    ended = killed(config, stopped, *LOSS)
    now = time.time()
    assert ended.returncode != 0
    assert "SIGKILL" in ended.stderr, "torchrun says which process died, and of what"
    assert now - float((stopped / "died").read_text()) < 60
    step = torch.load(stopped / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert 0 < step < 14
    run_two(as_torchrun, free_port(), [*fit(config, stopped, *LOSS), "--ckpt_path", "last"])
    weights = [load_file(folder / "model" / "model.safetensors") for folder in (whole, stopped)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert means(whole) == means(stopped)
    command = ["validate", "-c", str(config), "--model.weights", str(whole / "model")]
    assert main([*command, f"--trainer.default_root_dir={tmp_path / 'one'}"]) == 0
    assert means(tmp_path / "one") == pytest.approx(means(whole))


@pytest.mark.slow
def test_two_workers_of_ray_train_as_one_process_does(
    tiny_bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step of two workers with a list each is that of one process with both.

    By SGD: AdamW makes of gradients that are 0 but for rounding steps of any size.
    """
    config = written(tmp_path, tiny_bert, lists=6)
    command = ["fit", "-c", str(config), "-c", "losses/softmax_ce", "--model.ranker.dropout=0"]
    command += ["--model.optimizer=torch.optim.SGD", "--model.optimizer.lr=0.1"]
    two = [*command, "--on", "ray", "--workers=2", "--trainer.default_root_dir=two"]
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        assert main(two) == 2
        assert "training on Ray needs the extra: pip install 'crossjem_pl[scale]'" in capsys.readouterr().err
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root()), *sys.path]))
    assert main(two) == 0
    assert main([*command, "--data.batch_size=2", "--trainer.default_root_dir=one"]) == 0
    weights = [load_ranker(str(tmp_path / name / "model")).state_dict() for name in ("one", "two")]
    torch.testing.assert_close(*weights)
    assert means(tmp_path / "one") == means(tmp_path / "two")
    assert "ray.train" not in (tmp_path / "two" / "config.yaml").read_text(), "it trains elsewhere too"


@pytest.mark.slow
def test_sharded_training_resumes_to_the_weights_of_ddp(tmp_path: Path) -> None:
    """Each layer in two halves; the processes have unequal numbers of runs, and only the first one loads the model."""
    config = written(tmp_path, str(write_gpt(tmp_path / "gpt")))
    text = config.read_text().replace("DPR", "RankingGPT").replace("{encoder", "{pairs_per_pass: 3, encoder")
    config.write_text(text.replace("logger:", "gradient_clip_val: 0.1, logger:"))
    sharded = ["-c", "trainers/fsdp", "--trainer.strategy.data_parallel_size=2"]
    run_two(as_torchrun, free_port(), fit(config, tmp_path / "whole"))
    assert "SIGKILL" in killed(config, tmp_path / "stopped", *sharded).stderr
    step = torch.load(tmp_path / "stopped" / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert 0 < step < 14
    run_two(as_torchrun, free_port(), [*fit(config, tmp_path / "stopped", *sharded), "--ckpt_path", "last"])
    weights = [load_ranker(str(tmp_path / name / "model")).state_dict() for name in ("whole", "stopped")]
    torch.testing.assert_close(*weights)
    assert means(tmp_path / "whole") == means(tmp_path / "stopped")


def written(folder: Path, encoder: str, lists: int = 13) -> Path:
    """A configuration and its lists."""
    write_lists(example_lists(lists, seed=4), folder / "lists.jsonl")
    (folder / "config.yaml").write_text(CONFIG.format(encoder=encoder, lists=folder / "lists.jsonl"))
    return folder / "config.yaml"


def means(folder: Path) -> dict[str, float]:
    """What the validation of a run gave."""
    found: dict[str, float] = json.loads((folder / "val_metrics.json").read_text())["means"]
    return found


def fit(config: Path, folder: Path, *options: str) -> list[str]:
    """The training in two processes."""
    words = ["fit", "-c", str(config), "-c", "trainers/torchrun", *options]
    words += ["--trainer.accelerator=cpu", "--trainer.devices=2", "--trainer.precision=32-true"]
    words += ["--data.num_workers=0", f"--trainer.default_root_dir={folder}"]
    return [*words, "--checkpoint.every_n_train_steps=3"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def as_torchrun(rank: int, port: int, words: list[str]) -> None:
    """The command in an environment such as torchrun gives to a process."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "forked"}
    os.environ.update({name: str(value) for name, value in {**ranks, **where}.items()})
    rank_zero_only.rank = rank  # read from the environment when Lightning was imported
    assert main(words) == 0


def killed(config: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The training under torchrun, which loses a process after step 5."""
    (folder.parent / "dying.py").write_text(DYING)
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    words += ["--rdzv-endpoint", "127.0.0.1:0", str(folder.parent / "dying.py")]
    words += fit(config, folder, *options)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root()), "DIES": str(folder)}
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=folder.parent, capture_output=True, text=True
    )
