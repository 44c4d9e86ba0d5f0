"""The module: optimiser groups, schedule, targets, losses over vectors, warm starts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lightning import Callback, Trainer

from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.evaluation.metrics import evaluate_run
from crossjem_pl.lists import RankingList
from crossjem_pl.losses import InBatchInfoNCE, RankingProbabilityLoss, SoftmaxCrossEntropy
from crossjem_pl.rankers import DPR, CrossJEM, MonoBERT, QueryHead
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.training import RankingModule, RunFolder
from tests.conftest import example_lists
from tests.processes import run_two

LIMITS = {"max_query_tokens": 16, "max_item_tokens": 16}


def fit(module: RankingModule, folder: Path, **options: object) -> Trainer:
    write_lists(example_lists(8, seed=2), folder / "lists.jsonl")
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,  # type: ignore[arg-type]
    )
    trainer.fit(module, RankingDataModule(train=str(folder / "lists.jsonl"), batch_size=4))
    return trainer


def test_matrices_decay_and_the_head_may_learn_faster(tiny_bert: str, tmp_path: Path) -> None:
    ranker = CrossJEM(
        tiny_bert, QueryHead(), item_side_layers=1, max_union_tokens=128, freeze_embeddings=True, **LIMITS
    )
    trainer = fit(RankingModule(ranker, RankingProbabilityLoss(), lr=1e-3, head_lr=1e-2), tmp_path)
    groups = trainer.optimizers[0].param_groups
    trained = {id(p) for g in groups for p in g["params"]}
    assert trained == {id(p) for p in ranker.parameters() if p.requires_grad}
    assert id(ranker.encoder.embeddings.word_embeddings.weight) not in trained
    for group in groups:
        assert {p.ndim > 1 for p in group["params"]} == {group["weight_decay"] > 0}
        is_head = any(p is ranker.head.scale for p in group["params"])
        assert group["initial_lr"] == (1e-2 if is_head else 1e-3)


def test_the_rate_rises_and_falls_to_zero(tiny_bert: str, tmp_path: Path) -> None:
    module = RankingModule(
        CrossJEM(tiny_bert, max_union_tokens=128, **LIMITS), RankingProbabilityLoss(), warmup=0.5
    )
    trainer = fit(module, tmp_path)
    factor = trainer.lr_scheduler_configs[0].scheduler.lr_lambdas[0]  # type: ignore[union-attr]
    assert [factor(step) for step in range(5)] == [0.5, 1.0, 1.0, 0.5, 0.0]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_gradients_are_clipped(tiny_bert: str, tmp_path: Path, precision: str) -> None:
    norms: list[float] = []

    class Watch(Callback):
        def on_before_zero_grad(self, _: Trainer, module: Any, __: Any) -> None:
            found = [p.grad.norm() for p in module.parameters() if p.grad is not None]
            norms.extend([torch.stack(found).norm().item()] if found else [])

    module = RankingModule(CrossJEM(tiny_bert, max_union_tokens=128, **LIMITS), RankingProbabilityLoss())
    fit(module, tmp_path, gradient_clip_val=1e-3, precision=precision, callbacks=[Watch()])
    assert norms
    assert norms == pytest.approx([1e-3] * len(norms), rel=0.05)


def test_missing_targets_are_named(tiny_bert: str, tmp_path: Path) -> None:
    write_lists([one.select(range(len(one))) for one in example_lists(3)], tmp_path / "lists.jsonl")
    bare = (tmp_path / "lists.jsonl").read_text().replace('"scores"', '"unused"')
    (tmp_path / "bare.jsonl").write_text(bare)
    module = RankingModule(CrossJEM(tiny_bert, max_union_tokens=128, **LIMITS), RankingProbabilityLoss())
    trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False)
    with pytest.raises(ValueError, match=r"list 'q0-\d' has no scores"):
        trainer.fit(module, RankingDataModule(train=str(tmp_path / "bare.jsonl"), batch_size=3))


def test_in_batch_negatives_train_a_dual_encoder_only(tiny_bert: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    ranker = DPR(tiny_bert, **LIMITS)
    before = {name: p.clone() for name, p in ranker.named_parameters()}
    fit(RankingModule(ranker, InBatchInfoNCE(), targets="labels"), tmp_path)
    assert any(not torch.equal(p, before[name]) for name, p in ranker.named_parameters())
    module = RankingModule(MonoBERT(tiny_bert, **LIMITS), InBatchInfoNCE(), targets="labels")
    with pytest.raises(ValueError, match="monobert has no query and item vectors"):
        fit(module, tmp_path)


def test_starts_from_an_exported_model(tiny_bert: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    trained = CrossJEM(tiny_bert, QueryHead(3.0), max_union_tokens=128, **LIMITS)
    save_ranker(trained, tmp_path / "model")
    fresh = CrossJEM(tiny_bert, QueryHead(), max_union_tokens=128, **LIMITS)
    RankingModule(fresh, RankingProbabilityLoss(), weights=str(tmp_path / "model"))
    assert float(fresh.head.scale) == 3.0  # type: ignore[arg-type]
    other = MonoBERT(tiny_bert, **LIMITS)
    with pytest.raises(ValueError, match="crossjem ranker, not a monobert"):
        RankingModule(other, SoftmaxCrossEntropy(), weights=str(tmp_path / "model"))
    deeper = CrossJEM(tiny_bert, QueryHead(), item_side_layers=1, max_union_tokens=128, **LIMITS)
    with pytest.raises(ValueError, match="trained with item_side_layers 0, and 1 is configured"):
        RankingModule(deeper, RankingProbabilityLoss(), weights=str(tmp_path / "model"))
    options: dict[str, Any] = {"max_union_tokens": 100, "dropout": 0.1, **LIMITS}
    same = CrossJEM(tiny_bert, QueryHead(), **options)
    RankingModule(same, RankingProbabilityLoss(), weights=str(tmp_path / "model"))
    seeing = CrossJEM(tiny_bert, QueryHead(), union_attention="item", **options)
    with pytest.raises(ValueError, match='trained with union_attention "full", and "item" is configured'):
        RankingModule(seeing, RankingProbabilityLoss(), weights=str(tmp_path / "model"))


def test_cut_texts_are_counted_and_told_once_a_stage(
    tiny_bert: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lists = [
        RankingList("a", "red blue red blue", ("1", "2"), ("red", "red blue red shoes"), labels=(1, 0)),
        RankingList("b", "red", ("3", "4", "5"), ("blue", "red", "shoes"), labels=(1, 0, 0)),
    ]
    write_lists(lists, tmp_path / "lists.jsonl")
    path = str(tmp_path / "lists.jsonl")
    ranker = CrossJEM(tiny_bert, max_query_tokens=3, max_item_tokens=3, max_union_tokens=64)
    trainer = Trainer(accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False)
    data = RankingDataModule(train=path, val=path, test=path, batch_size=1, eval_batch_size=1)
    module = RankingModule(ranker, SoftmaxCrossEntropy(), targets="labels")
    trainer.fit(module, data)
    trainer.test(module, data)
    told = [record.getMessage() for record in caplog.records if record.name == "crossjem_pl.training.module"]
    text = "1 of 2 queries are longer than max_query_tokens (3), 1 of 5 items are longer than max_item_tokens (3)"
    stages = ["val", "val", "train", "test"]  # the sanity check comes first
    assert told == [f"{stage} lists: {text} and were cut" for stage in stages]


def count_in_process(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    told: list[dict[str, int]] = []
    module: Any = SimpleNamespace(
        _trained_texts=Counter({"items": 2, "cut items": rank}),
        _warn_of_cut_texts=lambda stage, texts: told.append(dict(texts)),
    )
    RankingModule.on_train_epoch_end(module)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def test_cut_texts_of_all_processes_are_told(tmp_path: Path) -> None:
    run_two(count_in_process, str(tmp_path))
    for rank in range(2):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == [{"items": 4, "cut items": 1}]


def test_crossjem_starts_from_the_encoder_of_a_trained_monobert(tiny_bert: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    teacher = MonoBERT(tiny_bert, **LIMITS)
    torch.nn.init.normal_(teacher.model.bert.embeddings.word_embeddings.weight)
    save_ranker(teacher, tmp_path / "teacher")
    student = CrossJEM(str(tmp_path / "teacher"), max_union_tokens=128, **LIMITS)
    for name, value in student.encoder.state_dict().items():
        torch.testing.assert_close(value, teacher.model.bert.state_dict()[name], rtol=0, atol=0)


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_written_metrics_are_the_monitored_ones(shift: float, tiny_bert: str, tmp_path: Path) -> None:
    """Grades 0, 1 and 2, and 0.5, 1.5 and 2.5: `relevant_from` holds in the log, the files and the summary."""
    lists = [
        replace(
            one, labels=tuple(shift + (2 if label else i % 2) for i, label in enumerate(one.labels or ()))
        )
        for one in example_lists(7, seed=3)
    ]
    write_lists(lists, tmp_path / "val.jsonl")
    module = RankingModule(MonoBERT(tiny_bert, **LIMITS), SoftmaxCrossEntropy(), relevant_from=shift + 2)
    trainer = Trainer(accelerator="cpu", logger=False, callbacks=[RunFolder()], default_root_dir=tmp_path)
    trainer.validate(module, RankingDataModule(val=str(tmp_path / "val.jsonl"), eval_batch_size=2))
    monitored = {name: float(trainer.callback_metrics[f"val/{name}"]) for name in module.metrics}
    stored = json.loads((tmp_path / "val_metrics.json").read_text())
    written = stored["means"]
    assert stored["relevant_from"] == shift + 2
    assert written == pytest.approx(monitored, abs=1e-6)
    qrels = {one.query_id: dict(zip(one.item_ids, one.labels or (), strict=True)) for one in lists}
    run = module.runs["val"]
    assert written == evaluate_run(run, qrels, module.metrics, relevant_from=shift + 2).means
    assert written["RR@10"] != evaluate_run(run, qrels, module.metrics).means["RR@10"]
    assert json.loads((tmp_path / "summary.json").read_text())["relevant_from"] == shift + 2
