"""Streaming: shards of any shape, what is read and refused, the data module, memory; `test_loaders` has the order."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.data.streaming import EpochOrder, ShardIndex, StreamingLoader
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25
from tests.conftest import example_lists
from tests.data.test_module import attach

LISTS = example_lists(53, seed=3)
IDS = [one.query_id for one in LISTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of 20, 20 and 13 lists in row groups of 4."""
    path = tmp_path_factory.mktemp("shards") / "train"
    write_shards(LISTS, path, lists_per_shard=20, row_group=4)
    return path


def loader(path: Path, ranker: Any = None, batch_size: int = 4, buffer: int = 10, **options: Any) -> Any:
    defaults: dict[str, Any] = {"shuffle": True, "seed": 5}
    stream = ShardIndex(path, buffer=buffer)
    return StreamingLoader(stream, ranker or BM25(), batch_size, **{**defaults, **options})


def queries(batches: Any, epoch: int = 0) -> list[list[str]]:
    batches.set_epoch(epoch)
    return [batch.query_ids for batch in batches]


def flat(batches: Sequence[Sequence[str]]) -> list[str]:
    return [query for batch in batches for query in batch]


def write(path: Path, lists: Sequence[RankingList], **columns: Any) -> Path:
    """One Parquet file written by other means, `columns` changed or (with None) left out."""
    values: dict[str, Any] = {
        name: [getattr(one, name) for one in lists]
        for name in ("query_id", "query", "item_ids", "items", "labels", "scores")
    }
    values = {name: value for name, value in {**values, **columns}.items() if value is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(values), path, row_group_size=3)
    return path


def test_uneven_and_empty_shards(tmp_path: Path) -> None:
    write(tmp_path / "s" / "a.parquet", LISTS[:1])
    write(tmp_path / "s" / "b.parquet", LISTS[1:40])
    pq.write_table(pq.read_table(tmp_path / "s" / "a.parquet").slice(0, 0), tmp_path / "s" / "c.parquet")
    write(tmp_path / "s" / "d.parquet", LISTS[40:])
    for num_workers in (0, 2):
        assert sorted(flat(queries(loader(tmp_path / "s", num_workers=num_workers)))) == sorted(IDS)
    assert list(ShardSource("s").read(tmp_path)) == LISTS


def test_the_shuffle_mixes_row_groups_and_moves_them_anywhere() -> None:
    rows = np.full(400, 16)
    starts = np.arange(400) * 16
    orders = []
    for epoch in range(2):
        order = EpochOrder(rows, 0, epoch, 0, 1, buffer=512, shuffle=True)
        stored = np.concatenate([starts[s.group] + np.arange(s.start, s.stop) for s in order.segments(0)])
        seen = np.concatenate([stored[w * 512 :][order.permutation(w)] for w in range(order.windows)])
        assert sorted(seen.tolist()) == list(range(6400))
        position = np.argsort(seen)
        assert abs(np.corrcoef(position, np.arange(6400))[0, 1]) < 0.15, "no trace of the stored order"
        apart = np.abs(np.diff(position))
        assert np.median(apart) > 60, "neighbours in a file are far apart"
        groups = [len(set((seen[i : i + 32] // 16).tolist())) for i in range(0, 6400, 32)]
        assert np.mean(groups) > 15, "a batch of 32 takes lists from half of the buffer's 32 row groups"
        orders.append(position)
    assert abs(np.corrcoef(orders[0], orders[1])[0, 1]) < 0.15, "epochs are unrelated"


def test_skipped_row_groups_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = ShardIndex._read

    def counted(self: ShardIndex, path: Path, file: Any, segment: Any) -> Any:
        read.append(segment.stop - segment.start)
        return original(self, path, file, segment)

    monkeypatch.setattr(ShardIndex, "_read", counted)
    queries(loader(folder))
    assert sum(read) == 53, "a rank reads each list once"
    read.clear()
    resumed = loader(folder)
    resumed.load_state_dict({**resumed.state_dict(), "handed_out": 10})
    assert len(queries(resumed)) == 4
    assert sum(read) == 13, "from the window of list 40 on, 10 lists each"
    read.clear()
    for rank in range(2):
        queries(loader(folder, rank=rank, world_size=2, num_workers=2))
    assert sum(read) == 54, "also with ranks and workers (and one list that fills up)"


def test_shards_of_other_writers(tmp_path: Path) -> None:
    lists = [
        RankingList("1", "red", ("7", "8"), ("boots", "lamp"), (1.0, 0.0)),
        RankingList("2", "blue", ("9",), ("hat",), (0.0,)),
    ]
    write(
        tmp_path / "s" / "a.parquet",
        lists,
        query_id=pa.array([1, 2]),
        item_ids=pa.array([[7, 8], [9]]),
        items=pa.array([["boots", "lamp"], ["hat"]], pa.large_list(pa.large_string())),
        query=pa.array(["red", "blue"]).dictionary_encode(),
        labels=pa.array([[True, False], [False]]),
        scores=pa.array([None, None]),
        source=["log", "log"],
    )
    more = [RankingList("3", "green", ("a",), ("sofa",), (2.0,), (0.5,))]
    write(tmp_path / "s" / "b.parquet", more)
    assert list(ShardSource("s").read(tmp_path)) == lists + more
    assert sorted(flat(queries(loader(tmp_path / "s", batch_size=1)))) == ["1", "2", "3"]
    source = ShardSource("s", label_column="clicks")
    with pytest.raises(ValueError, match=r"a\.parquet, field 'clicks': is missing \(found: query_id, query"):
        source.stream(tmp_path)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"items": None}, "field 'items': is missing"),
        ({"labels": None}, "field 'labels': is missing, but .*a.parquet has it"),
        ({"items": [[1]] * 5}, "field 'items': expected texts, got list<"),
        ({"labels": [["a"]] * 5}, "field 'labels': expected numbers, got list<"),
    ],
)
def test_a_shard_with_other_columns_is_named(tmp_path: Path, columns: dict[str, Any], named: str) -> None:
    write(tmp_path / "a.parquet", LISTS[:5])
    write(tmp_path / "b.parquet", LISTS[5:10], **columns)
    with pytest.raises(ValueError, match=f"b.parquet, {named}"):
        ShardSource(".").stream(tmp_path)


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", LISTS[:5])
    texts = [list(one.items) for one in LISTS[5:10]]
    texts[3][1] = " "
    write(tmp_path / "b.parquet", LISTS[5:10], items=texts)
    for num_workers in (0, 1):
        with pytest.raises(
            ValueError, match=r"b\.parquet, row 4, field 'items': position 1: expected a non-empty string"
        ):
            queries(loader(tmp_path, num_workers=num_workers))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_damaged_shards_are_named(folder: Path, tmp_path: Path, num_workers: int) -> None:
    whole, other = ((folder / f"00000{i}.parquet").read_bytes() for i in (1, 2))
    path = tmp_path / "a.parquet"
    for content in (whole[: len(whole) // 2], b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.parquet: unreadable Parquet data"):
            loader(tmp_path)
    flipped = bytearray(whole)
    metadata = pq.ParquetFile(folder / "000001.parquet").metadata.row_group(2).column(3)
    flipped[metadata.dictionary_page_offset + metadata.total_compressed_size - 1] ^= (
        1  # caught by the checksum
    )
    path.write_bytes(flipped)
    with pytest.raises(ValueError, match=r"a\.parquet: unreadable Parquet data"):
        queries(loader(tmp_path, num_workers=num_workers))
    path.write_bytes(whole)
    before = loader(tmp_path, num_workers=num_workers)
    path.write_bytes(other)
    with pytest.raises(ValueError, match=r"a\.parquet: the file has changed"):
        queries(before)


def test_what_cannot_be_streamed_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ShardSource("nowhere").stream(tmp_path)
    write_lists(LISTS, tmp_path / "lists.jsonl")
    with pytest.raises(
        ValueError, match=r"only Parquet shards are streamed; make them with: crossjem convert"
    ):
        ShardSource("lists.jsonl").stream(tmp_path)
    none = write(tmp_path / "none.parquet", LISTS[:2])
    pq.write_table(pq.read_table(none).slice(0, 0), none)
    with pytest.raises(ValueError, match=r"none\.parquet: the shards hold no lists"):
        ShardSource("none.parquet").stream(tmp_path)
    with pytest.raises(ValueError, match="buffer must be at least 1, got 0"):
        ShardSource("train", buffer=0)


def test_the_data_module_streams_what_the_source_streams(folder: Path) -> None:
    source = ShardSource(folder.name, buffer=10)
    options: dict[str, Any] = {"train": source, "val": source, "root": str(folder.parent), "seed": 5}
    one = attach(RankingDataModule(**options, batch_size=4), BM25())
    train, val = one.train_dataloader(), one.val_dataloader()
    assert isinstance(train, StreamingLoader)
    assert isinstance(val, StreamingLoader)
    assert queries(train) == queries(loader(folder))
    assert flat(queries(val)) == IDS
    assert one.lists("val") == LISTS, "for the reports of an evaluation"
    with pytest.raises(ValueError, match=r"data\.train streams, so its lists are not in memory"):
        one.lists("train")
    assert list(one.item_texts()) == list(dict.fromkeys(text for one in LISTS for text in one.items))
    scored = attach(RankingDataModule(**options, teacher_scores="scores.parquet"), BM25())
    with pytest.raises(
        ValueError, match=r"crossjem convert .*train FOLDER --teacher-scores .*scores\.parquet"
    ):
        scored.train_dataloader()
    assert isinstance(scored.val_dataloader(), StreamingLoader), "they are for the training lists only"


def test_an_epoch_holds_a_small_part_of_the_lists(tmp_path: Path) -> None:
    noise = random.Random(0)
    texts = ([noise.randbytes(500).hex() for _ in range(4)] for _ in range(3000))
    lists = (RankingList.from_texts(f"query {i}", items, f"q{i}") for i, items in enumerate(texts))
    write_shards(lists, tmp_path / "train", lists_per_shard=1000, row_group=64)
    batches = loader(tmp_path / "train", batch_size=32, buffer=128)
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes()
        arrow = [pa.total_allocated_bytes() - before for _ in batches]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(arrow) == 94
    assert peak + max(arrow) < 4 << 20, "the texts alone are 12 million bytes"
