from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from crossjem_pl.data.batches import BatchLoader, ListLoader
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.sources import FileSource, ListSource, MemorySource, MixedSource, ShardSource
from crossjem_pl.data.teacher import write_scores
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, CrossJEM, Ranker
from tests.conftest import example_lists


class CountingSource(ListSource):
    """Lists from memory; counts what is called."""

    def __init__(self, lists: list[RankingList]) -> None:
        self.lists, self.reads = lists, 0

    def read(self, root: Path) -> Iterator[RankingList]:
        self.reads += 1
        return iter(self.lists)


def attach(
    module: RankingDataModule, ranker: Ranker, rank: int = 0, world_size: int = 1
) -> RankingDataModule:
    module.trainer = SimpleNamespace(  # type: ignore[assignment]
        lightning_module=SimpleNamespace(ranker=ranker),
        global_rank=rank,
        world_size=world_size,
        state=SimpleNamespace(fn="fit"),
    )
    return module


def queries(loader: BatchLoader | list[BatchLoader]) -> list[str]:
    assert isinstance(loader, BatchLoader)
    return [query for batch in loader for query in batch.query_ids]


def ids(lists: list[RankingList]) -> list[str]:
    return [one.query_id for one in lists]


def test_loaders_of_every_stage(tiny_bert: str) -> None:
    parts = {stage: example_lists(7, seed=i) for i, stage in enumerate(("train", "val", "test", "predict"))}
    module = RankingDataModule(
        **{stage: CountingSource(lists) for stage, lists in parts.items()},  # type: ignore[arg-type]
        batch_size=2,
        eval_batch_size=3,
        n_items=2,
        seed=4,
    )
    limits = {"max_query_tokens": 8, "max_item_tokens": 8, "max_union_tokens": 64}
    attach(module, CrossJEM(tiny_bert, **limits))  # type: ignore[arg-type]
    train = module.train_dataloader()
    assert len(train) == 4
    assert max(len(items) for batch in train for items in batch.item_ids) == 2
    assert sorted(queries(train)) == sorted(ids(parts["train"]))
    assert queries(train) != ids(parts["train"]), "shuffled"
    for stage, loader in (
        ("val", module.val_dataloader()),
        ("test", module.test_dataloader()),
        ("predict", module.predict_dataloader()),
    ):
        assert isinstance(loader, ListLoader)
        assert len(loader) == 3
        assert queries(loader) == ids(parts[stage])
        assert [items for batch in loader for items in batch.item_ids] == [
            one.item_ids for one in parts[stage]
        ]


def test_test_lists_are_the_validation_lists_unless_given_and_read_once() -> None:
    lists = example_lists(4)
    source = CountingSource(lists)
    module = attach(RankingDataModule(val=source), BM25())
    assert queries(module.test_dataloader()) == ids(lists)
    assert module.lists("val") is module.lists("val")
    assert source.reads == 1


@pytest.mark.parametrize("streams", [False, True])
def test_the_position_in_the_epoch_is_saved_and_restored(streams: bool, tmp_path: Path) -> None:
    write_shards(example_lists(9), tmp_path / "train", lists_per_shard=5, row_group=2)

    def module() -> RankingDataModule:
        source = ShardSource("train", buffer=4) if streams else CountingSource(example_lists(9))
        return attach(RankingDataModule(train=source, root=str(tmp_path), batch_size=2, seed=1), BM25())

    expected = queries(module().train_dataloader())
    interrupted = module()
    assert interrupted.state_dict() == {}
    batches = iter(interrupted.train_dataloader())
    seen = [query for _ in range(2) for query in next(batches).query_ids]
    state = interrupted.state_dict()

    before, after = module(), module()
    before.load_state_dict(state)
    assert seen + queries(before.train_dataloader()) == expected
    loader = after.train_dataloader()  # built before the checkpoint is read
    after.load_state_dict(state)
    assert seen + queries(loader) == expected
    for resumed in (before, after):  # as with Trainer(reload_dataloaders_every_n_epochs=1)
        assert queries(resumed.train_dataloader()) == expected, "the next epoch is whole"


def test_paths_are_sources_relative_to_the_root(tmp_path: Path) -> None:
    lists = example_lists(4)
    write_lists(lists, tmp_path / "lists.jsonl")
    module = RankingDataModule(
        train="lists.jsonl", val=FileSource("lists.jsonl", limit=2), root=str(tmp_path)
    )
    assert module.lists("train") == lists
    assert module.lists("val") == lists[:2]
    assert list(module.item_texts()) == list(dict.fromkeys(text for one in lists for text in one.items))


def test_teacher_scores_replace_those_of_the_training_lists(tmp_path: Path) -> None:
    lists = example_lists(3)
    rows = [(one.query_id, item, 0.25) for one in lists for item in one.item_ids]
    write_scores(rows, tmp_path / "scores.parquet", {})
    write_scores(rows[1:], tmp_path / "one-missing.parquet", {})
    write_scores([("another", "d", 0.5)], tmp_path / "others.parquet", {})

    def module(file: str, allow: bool) -> RankingDataModule:
        source = CountingSource(lists)
        return RankingDataModule(
            source, source, root=str(tmp_path), teacher_scores=file, allow_missing_scores=allow
        )

    whole = module("scores.parquet", False)
    assert {score for one in whole.lists("train") for score in one.scores or ()} == {0.25}
    assert whole.lists("val") == lists
    with pytest.raises(ValueError, match="has no finite teacher score"):
        module("one-missing.parquet", False).lists("train")
    assert module("one-missing.parquet", True).lists("train")[0].item_ids == lists[0].item_ids[1:]
    with pytest.raises(ValueError, match="not one item has a teacher score"):
        module("others.parquet", True).lists("train")
    with pytest.raises(FileNotFoundError, match="no teacher scores at"):
        module("none.parquet", False).lists("train")


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match="eval_batch_size must be at least 1, got 0"):
        RankingDataModule(eval_batch_size=0)
    with pytest.raises(ValueError, match="n_items must be at least 2, got 1"):
        RankingDataModule(n_items=1)
    with pytest.raises(ValueError, match=r"no lists for this stage: set data\.predict"):
        RankingDataModule().lists("predict")
    with pytest.raises(ValueError, match=r"the source of data\.train gave no lists"):
        RankingDataModule(train=CountingSource([])).lists("train")
    with pytest.raises(RuntimeError, match="not attached to a trainer"):
        RankingDataModule(train=CountingSource(example_lists(2))).train_dataloader()


def test_mixed_sources_have_ids_of_their_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lists = example_lists(2, seed=1)
    write_lists([replace(one, scores=None) for one in lists], tmp_path / "a.jsonl")
    mixed = list(MixedSource([MemorySource(lists), "a.jsonl", MixedSource([])]).read(tmp_path))
    assert ids(mixed) == [*ids(lists), *(f"2-{name}" for name in ids(lists))]
    assert mixed[0].labels == mixed[2].labels == lists[0].labels
    assert {one.scores for one in mixed} == {None}
    assert "2 of 4 lists have no scores" in caplog.text
    nested = MixedSource([MixedSource(["a.jsonl", "a.jsonl"]), "a.jsonl"])
    with pytest.raises(
        ValueError, match=f"two of the mixed sources have a list of query id '2-{lists[0].query_id}'"
    ):
        list(nested.read(tmp_path))


def test_the_seed_is_that_of_the_run_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    assert RankingDataModule().seed == 0
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    assert [RankingDataModule().seed, RankingDataModule().item_sampler.seed] == [7, 7]
    assert RankingDataModule(seed=1).seed == 1
