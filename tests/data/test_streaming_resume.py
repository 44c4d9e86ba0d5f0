"""Training on streamed lists that stops in mid-epoch and resumes sees every list of the epoch exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.losses import RankingProbabilityLoss
from crossjem_pl.rankers import CrossJEM
from crossjem_pl.training.module import RankingModule
from tests.conftest import example_lists

LISTS = example_lists(23, seed=9)


class Killed(Exception):
    """What stops the first run."""


class Seen(Callback):
    """Notes the lists of every step, and stops the run after one of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after, self.steps = stop_after, []  # type: int | None, list[list[str]]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.stop_after:
            raise Killed
        self.steps.append(batch.query_ids)


def fit(folder: Path, encoder: str, seen: Seen, workers: int, resume: Path | None = None) -> RankingModule:
    torch.manual_seed(0)
    ranker = CrossJEM(encoder, max_query_tokens=16, max_item_tokens=16, max_union_tokens=128, dropout=0.0)
    module = RankingModule(ranker, RankingProbabilityLoss(), lr=1e-2)
    data = RankingDataModule(
        train=ShardSource("train", buffer=9), root=str(folder), batch_size=2, n_items=4, num_workers=workers
    )
    saved = ModelCheckpoint(folder / "checkpoints", every_n_train_steps=5, save_top_k=-1)
    quiet: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(
        accelerator="cpu", max_epochs=2, callbacks=[seen, saved], use_distributed_sampler=False, **quiet
    )
    trainer.fit(module, data, ckpt_path=None if resume is None else str(resume), weights_only=True)
    return module


def test_every_list_once_across_an_interruption(tiny_bert: str, tmp_path: Path) -> None:
    workers = 2  # without any: the loaders' own tests
    for name in ("whole", "killed"):
        write_shards(LISTS, tmp_path / name / "train", lists_per_shard=10, row_group=3)
    whole = Seen()
    expected = fit(tmp_path / "whole", tiny_bert, whole, workers).state_dict()
    assert len(whole.steps) == 24

    first, second = Seen(stop_after=8), Seen()
    with pytest.raises(Killed):
        fit(tmp_path / "killed", tiny_bert, first, workers)
    (checkpoint,) = (tmp_path / "killed" / "checkpoints").glob("*.ckpt")  # of step 5; steps 6 and 7 are lost
    resumed = fit(tmp_path / "killed", tiny_bert, second, workers, checkpoint).state_dict()
    steps = first.steps[:5] + second.steps
    assert steps == whole.steps
    for epoch in (steps[:12], steps[12:]):
        assert sorted(query for step in epoch for query in step) == sorted(one.query_id for one in LISTS)
    assert steps[:12] != steps[12:]
    for name, value in expected.items():
        torch.testing.assert_close(resumed[name], value, rtol=0, atol=0)
