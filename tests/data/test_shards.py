"""Writing shards: flat, atomic, accounted for, and resumable where lists are generated."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.shards import Manifest, write_shards
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.lists import RankingList
from tests.conftest import example_lists

LISTS = example_lists(23, seed=1)
OPTIONS: dict[str, Any] = {"seed": 1}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def make(start: int) -> list[RankingList]:
    return LISTS[start:]


def generate(folder: Path, lists: Any = make, **options: Any) -> Manifest:
    return write_shards(
        lists, folder, **{"lists_per_shard": 5, "row_group": 2, "options": OPTIONS, **options}
    )


def test_shards_hold_the_lists_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "train"
    report = write_shards(iter(LISTS), folder, lists_per_shard=10, row_group=4)
    assert (len(report.shards), report.kept) == (3, 0)
    assert names(folder) == ["000000.parquet", "000001.parquet", "000002.parquet", "manifest.json"]
    assert list(read_lists(folder)) == LISTS
    assert list(ShardSource("train").read(tmp_path / "a")) == LISTS
    groups = [pq.read_metadata(folder / name) for name in names(folder)[:3]]
    rows = [[m.row_group(i).num_rows for i in range(m.num_row_groups)] for m in groups]
    assert rows == [[4, 4, 2], [4, 4, 2], [3]]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["complete"] is True
    assert [entry["lists"] for entry in manifest["shards"]] == [10, 10, 3]
    assert [entry["bytes"] for entry in manifest["shards"]] == [
        (folder / name).stat().st_size for name in names(folder)[:3]
    ]
    assert str(report).startswith(f"{folder}: 23 lists in 3 shards, ")


def test_an_interrupted_writer_leaves_a_folder_that_is_refused(tmp_path: Path) -> None:
    def failing() -> Iterator[RankingList]:
        yield from LISTS[:7]
        raise RuntimeError("the power went")

    with pytest.raises(RuntimeError):
        write_shards(failing(), tmp_path, lists_per_shard=5)
    assert names(tmp_path) == ["000000.parquet", "manifest.json"], "half a shard is none"
    with pytest.raises(ValueError, match=r"the shards are not complete \(manifest\.json says so\)"):
        ShardSource(".").stream(tmp_path)
    with pytest.raises(ValueError, match="the shards are not complete"):
        read_lists(tmp_path)
    with pytest.raises(ValueError, match="the folder has shards already"):
        write_shards(LISTS, tmp_path)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no lists to write"):
        write_shards([], tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="lists_per_shard must be at least 1, got 0"):
        write_shards(LISTS, tmp_path, lists_per_shard=0)
    with pytest.raises(ValueError, match="row_group must be at least 1, got 0"):
        generate(tmp_path, row_group=0)


def test_a_generated_folder_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "train"
    expected = generate(whole)
    made: list[int] = []

    def lists(start: int, until: int) -> Iterator[RankingList]:
        made.append(start)
        yield from LISTS[start:until]
        if until < 23:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(folder, partial(lists, until=12))
    assert names(folder) == ["000000.parquet", "000001.parquet", "manifest.json"]
    (folder / ".000002.parquet.17.abcd.tmp").write_bytes(b"a process that was killed leaves this")
    with pytest.raises(ValueError, match="the shards are not complete"):
        ShardSource("train").stream(tmp_path)
    report = generate(folder, partial(lists, until=23))
    assert made == [0, 10], "shards that are there are not made again"
    assert (report.kept, report.shards) == (2, expected.shards)
    for name in names(whole):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert names(folder) == names(whole)
    assert generate(folder).kept == 5


def test_other_options_do_not_mix(tmp_path: Path) -> None:
    generate(tmp_path)
    before = (tmp_path / "000001.parquet").read_bytes()
    for change, named in (
        ({"options": {"seed": 2}}, "seed=1, now it is 2"),
        ({"lists_per_shard": 6}, "lists_per_shard=5, now it is 6"),
        ({"options": {"seed": 1, "items": 9}}, "items=None, now it is 9"),
    ):
        with pytest.raises(ValueError, match=f"its shards were made with {named}"):
            generate(tmp_path, **change)
    assert (tmp_path / "000001.parquet").read_bytes() == before


def test_shards_of_unknown_origin_are_not_kept(tmp_path: Path) -> None:
    generate(tmp_path)
    manifest = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"has shards, but no manifest\.json"):
        generate(tmp_path)
    (tmp_path / "manifest.json").write_bytes(manifest)
    (tmp_path / "000001.parquet").write_bytes((tmp_path / "000004.parquet").read_bytes())
    with pytest.raises(ValueError, match=r"000001\.parquet: has 3 lists instead of 5"):
        generate(tmp_path)
    (tmp_path / "000001.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match=r"000001\.parquet: not a readable Parquet file"):
        generate(tmp_path)


def test_an_altered_manifest_is_refused(tmp_path: Path) -> None:
    write_shards(LISTS, tmp_path)
    manifest = tmp_path / "manifest.json"
    whole = json.loads(manifest.read_text())
    changes = {"complete": "no", "format": "other", "shards": {}, "more": 1, "counts": None}
    for change in (*({name: value} for name, value in changes.items()), {"shards": [{"name": 1}]}):
        manifest.write_text(json.dumps(whole | change))
        with pytest.raises(
            ValueError, match=r"manifest\.json: (not a manifest of this program|an entry of shards)"
        ):
            read_lists(tmp_path)


def test_what_is_no_file_among_the_shards_is_named(tmp_path: Path) -> None:
    write_lists(LISTS, tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(FileNotFoundError, match=r"b\.jsonl: the link leads nowhere \(.*gone\.jsonl"):
        read_lists(tmp_path)
    (tmp_path / "b.jsonl").unlink()
    os.mkfifo(tmp_path / "b.jsonl")
    with pytest.raises(ValueError, match=r"b\.jsonl: expected a file, got a pipe"):
        list(read_lists(tmp_path))


def test_a_folder_that_lost_or_gained_shards_is_refused(tmp_path: Path) -> None:
    write_shards(LISTS, tmp_path, lists_per_shard=10)
    last = (tmp_path / "000002.parquet").read_bytes()
    (tmp_path / "000002.parquet").unlink()
    with pytest.raises(ValueError, match=r"000002\.parquet: is missing, but manifest\.json lists it"):
        ShardSource(".").stream(tmp_path)
    (tmp_path / "000002.parquet").write_bytes(last)
    (tmp_path / "000003.parquet").write_bytes(last)
    with pytest.raises(ValueError, match=r"000003\.parquet: is not listed in manifest\.json"):
        ShardSource(".").stream(tmp_path)
    (tmp_path / "000003.parquet").unlink()
    (tmp_path / "000001.parquet").write_bytes(last)
    with pytest.raises(ValueError, match=r"000001\.parquet: has 3 lists, manifest\.json says 10"):
        ShardSource(".").stream(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match=r"manifest\.json: not JSON"):
        ShardSource(".").stream(tmp_path)
