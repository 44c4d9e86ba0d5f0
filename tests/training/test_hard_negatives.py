"""Mined negatives: what is drawn, what never is, and the callback inside a real fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer, seed_everything

from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.data.sources import ListSource
from crossjem_pl.lists import RankingList
from crossjem_pl.losses import InfoNCE
from crossjem_pl.rankers import DPR, ColBERT, Ranker, TwinBERT
from crossjem_pl.training.hard_negatives import MineHardNegatives, nearest_items
from crossjem_pl.training.module import RankingModule

LIMITS: dict[str, Any] = {"max_query_tokens": 8, "max_item_tokens": 8}
QUIET: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
QUIET["accelerator"] = "cpu"


def make(query_id: str, query: str, items: list[str], positives: int = 1) -> RankingList:
    labels = [1.0] * positives + [0.0] * (len(items) - positives)
    return RankingList(
        query_id, query, tuple(f"d{i}" for i in range(len(items))), tuple(items), tuple(labels)
    )


LISTS = [
    make("q0", "red shoes", ["red boots", "phone", "paris hotel"]),
    make("q1", "red shoes", ["Red  Shoes", "red shoe", "cheap car"], positives=2),
    make("q2", "car repair", ["repair a car", "RED boots", "dog food"]),
    make("q3", "cat food", ["blue lamp", "table"], positives=0),
]


class Given(ListSource):
    def __init__(self, lists: list[RankingList]) -> None:
        self.given = lists

    def read(self, root: Path):  # type: ignore[no-untyped-def]
        return iter(self.given)


@pytest.fixture
def ranker(tiny_bert: str) -> DPR:
    torch.manual_seed(0)
    return DPR(tiny_bert, "mean", normalize=True, dropout=0.0, **LIMITS).eval()


@pytest.mark.parametrize("chunk", [3, 1000])
def test_search_is_exact(chunk: int) -> None:
    torch.manual_seed(0)
    queries, items = torch.randn(7, 5), torch.randn(40, 5)
    nearest = nearest_items(queries, items, 6, chunk=chunk, rows=2)
    assert torch.equal(nearest, (queries @ items.T).argsort(dim=1, descending=True)[:, :6])
    assert nearest_items(queries, items[:4], 6).shape == (7, 4)


def test_known_positives_are_never_negatives(ranker: DPR) -> None:
    mined = MineHardNegatives(1, depth=100, n_negatives=100).mine(ranker, LISTS)
    for before, after in zip(LISTS, mined, strict=True):
        assert (after.query_id, after.query) == (before.query_id, before.query)
        kept = [text for text, label in zip(before.items, before.labels or (), strict=True) if label > 0]
        assert after.labels is not None
        assert [t for t, label in zip(after.items, after.labels, strict=True) if label > 0] == kept
    # q0 and q1 have one query: no positive of either, nor the query in other letters, is a negative
    assert set(mined[0].items[1:]) == {
        "phone",
        "paris hotel",
        "cheap car",
        "repair a car",
        "dog food",
        "blue lamp",
        "table",
    }
    assert set(mined[1].items[2:]) == set(mined[0].items[1:])
    assert {"red boots", "RED boots"} <= set(mined[2].items)
    assert mined[3] == LISTS[3]  # no positive


def test_the_hardest_are_drawn_from_the_depth(ranker: DPR) -> None:
    corpus = list(dict.fromkeys(text for one in LISTS for text in one.items))
    queries = ranker.text_vectors([one.query for one in LISTS], "query")
    order = (queries @ ranker.text_vectors(corpus, "items").T).argsort(dim=1, descending=True)
    mined = MineHardNegatives(1, depth=5, n_negatives=2).mine(ranker, LISTS, step=3)
    top = [corpus[j] for j in order[2, :5].tolist()]
    assert len(mined[2]) == 3
    assert set(mined[2].items[1:]) <= set(top)
    assert [top.index(text) for text in mined[2].items[1:]] == sorted(
        top.index(t) for t in mined[2].items[1:]
    )


def test_the_draw_depends_on_seed_and_step_alone(ranker: DPR) -> None:
    def items(seed: int, step: int) -> list[tuple[str, ...]]:
        return [one.items for one in MineHardNegatives(1, 9, 2, seed=seed).mine(ranker, LISTS, step)]

    assert items(0, 5) == items(0, 5)
    assert len({str(items(seed, step)) for seed in range(3) for step in range(3)}) > 3


def test_a_list_keeps_its_negatives_where_nothing_is_left(ranker: DPR) -> None:
    alone = make("q", "red shoes", ["red boots", "Red boots"])
    assert MineHardNegatives(1).mine(ranker, [alone]) == [alone]


class Recorder(MineHardNegatives):
    """Notes when it mined and what the training lists were at every step."""

    def __init__(self, every_n_steps: int, at_start: bool = False) -> None:
        super().__init__(every_n_steps, depth=9, n_negatives=2, at_start=at_start)
        self.steps: list[int] = []
        self.mined_items: list[bool] = []

    def mine(self, ranker, lists, step=0):  # type: ignore[no-untyped-def]
        assert not ranker.training
        self.steps.append(step)
        return super().mine(ranker, lists, step)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):  # type: ignore[no-untyped-def]
        assert pl_module.ranker.training
        self.mined_items.append(any(item.startswith("mined:") for ids in batch.item_ids for item in ids))

    def on_train_end(self, trainer, pl_module):  # type: ignore[no-untyped-def]
        path = Path(trainer.default_root_dir) / f"mined-{trainer.global_rank}.json"
        path.write_text(json.dumps(self.mined_items), encoding="utf-8")


def fit(
    ranker: Ranker,
    callback: MineHardNegatives,
    folder: Path,
    epochs: int = 3,
    resume: str | None = None,
    workers: int = 0,
    lists: list[RankingList] = LISTS,
) -> tuple[Trainer, RankingDataModule]:
    seed_everything(0)
    data = RankingDataModule(train=Given(lists), batch_size=2, num_workers=workers)
    trainer = Trainer(default_root_dir=folder, max_epochs=epochs, callbacks=[callback], **QUIET)
    trainer.fit(
        RankingModule(ranker, InfoNCE(), "labels"), datamodule=data, ckpt_path=resume, weights_only=False
    )
    return trainer, data


def test_mines_every_few_steps_and_gives_the_lists_back(tiny_bert: str, tmp_path: Path) -> None:
    callback = Recorder(every_n_steps=3)
    _, data = fit(DPR(tiny_bert, **LIMITS), callback, tmp_path)
    assert callback.steps == [3, 6]
    assert callback.mined_items == [False, False, False, True, True, True]
    assert data.lists("train") == LISTS


def test_a_training_that_fails_gives_the_lists_back(tiny_bert: str, tmp_path: Path) -> None:
    class Failing(Recorder):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):  # type: ignore[no-untyped-def]
            raise RuntimeError("failed")

    data = RankingDataModule(train=Given(LISTS), batch_size=2)
    trainer = Trainer(default_root_dir=tmp_path, max_epochs=1, callbacks=[Failing(2, at_start=True)], **QUIET)
    with pytest.raises(RuntimeError, match="failed"):
        trainer.fit(RankingModule(DPR(tiny_bert, **LIMITS), InfoNCE(), "labels"), datamodule=data)
    assert data.lists("train") == LISTS


def test_mines_before_the_first_step_if_asked(tiny_bert: str, tmp_path: Path) -> None:
    callback = Recorder(every_n_steps=100, at_start=True)
    fit(DPR(tiny_bert, **LIMITS), callback, tmp_path, epochs=1, workers=1)
    assert callback.steps == [0]
    assert all(callback.mined_items)


@pytest.mark.parametrize("workers", [0, 1])
def test_mined_negatives_reach_the_steps_of_the_same_epoch(
    tiny_bert: str, tmp_path: Path, workers: int
) -> None:
    """A worker has two batches under way when the search ends; the third is of the new lists."""
    callback = Recorder(every_n_steps=2)
    lists = [
        replace(ranking_list, query_id=f"{ranking_list.query_id}-{i}")
        for i in range(4)
        for ranking_list in LISTS[:3]
    ]
    fit(DPR(tiny_bert, **LIMITS), callback, tmp_path, epochs=1, workers=workers, lists=lists)
    stale = 2 if workers == 0 else 4
    assert callback.mined_items == [False] * stale + [True] * (6 - stale)


def test_nothing_mined_is_a_warning(tiny_bert: str, tmp_path: Path) -> None:
    alone = [make(f"q{i}", "red shoes", ["red boots", "Red boots"]) for i in range(2)]
    with pytest.warns(UserWarning, match="step 0: no hard negatives were mined for any of 2 lists"):
        fit(DPR(tiny_bert, **LIMITS), Recorder(9, at_start=True), tmp_path, epochs=1, lists=alone)


def test_a_resumed_run_mines_when_it_starts(tiny_bert: str, tmp_path: Path) -> None:
    trainer, _ = fit(DPR(tiny_bert, **LIMITS), Recorder(every_n_steps=4), tmp_path, epochs=2)
    trainer.save_checkpoint(tmp_path / "at.ckpt")
    callback = Recorder(every_n_steps=4)
    fit(DPR(tiny_bert, **LIMITS), callback, tmp_path, epochs=3, resume=str(tmp_path / "at.ckpt"))
    assert callback.steps == [4]
    assert all(callback.mined_items)


@pytest.mark.parametrize("name", ["colbert", "residual", "scores", "labels"])
def test_what_cannot_be_mined_for_is_named(name: str, tiny_bert: str, tmp_path: Path) -> None:
    rankers = {
        "colbert": lambda: ColBERT(tiny_bert, **LIMITS),
        "residual": lambda: TwinBERT(tiny_bert, crossing="residual", **LIMITS),
    }
    messages = {
        "colbert": "ColBERT has no vectors",
        "residual": "not inner products",
        "scores": "set model.targets to labels",
        "labels": "list 'bare', field 'labels'",
    }
    lists = [*LISTS, RankingList.from_texts("a", ["b", "c"], "bare")] if name == "labels" else LISTS
    ranker = rankers.get(name, lambda: DPR(tiny_bert, **LIMITS))()
    module = RankingModule(ranker, InfoNCE(), "scores" if name == "scores" else "labels")
    trainer = Trainer(default_root_dir=tmp_path, max_epochs=1, callbacks=[MineHardNegatives(2)], **QUIET)
    with pytest.raises(ValueError, match=messages[name]):
        trainer.fit(module, datamodule=RankingDataModule(train=Given(lists), batch_size=2))
