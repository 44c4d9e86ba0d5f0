"""Folders of Parquet shards that stand under a temporary name until they are complete.

`NAME.parquet.partial/part-00000.parquet`, ... becomes `NAME.parquet/`. Each shard appears whole or not at all
(`write_lists`), so a run that was cut off leaves only finished shards.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from crossjem_pl.data.formats import write_lists
from crossjem_pl.lists import RankingList

__all__ = ["ShardWriter", "finish", "finished_folder", "partial_folder", "shard_name"]


def shard_name(number: int) -> str:
    """The name of a shard: part-00000.parquet, ..."""
    return f"part-{number:05d}.parquet"


def finished_folder(out: Path, name: str) -> Path:
    """The folder of a complete part. Its name ends like a file's, and readers take it like one."""
    return out / f"{name}.parquet"


def partial_folder(out: Path, name: str) -> Path:
    """The folder of a part that is being written."""
    return out / f"{name}.parquet.partial"


def finish(out: Path, name: str) -> Path:
    """Gives a part's folder its final name, without the remains of shards that were cut off."""
    partial = partial_folder(out, name)
    for remains in partial.glob(".part-*.tmp"):
        remains.unlink()
    return partial.rename(finished_folder(out, name))


class ShardWriter:
    """Takes lists one by one and writes shards of bounded size; for lists that several parts receive in turn.

    Args:
        out: the prepared folder.
        name: the part; a partial folder of that name is emptied first.
        lists: lists in a shard.
        items: a shard also ends when it holds this many items, which bounds the memory.
    """

    def __init__(self, out: Path, name: str, lists: int, items: int = 500_000) -> None:
        self.files: list[str] = []
        self._out, self._name = out, name
        self._lists, self._items = lists, items
        self._held: list[RankingList] = []
        self._held_items = 0
        if partial_folder(out, name).exists():
            shutil.rmtree(partial_folder(out, name))

    def add(self, one: RankingList) -> None:
        """Takes a list. Query ids must be unique, which the caller checks."""
        self._held.append(one)
        self._held_items += len(one)
        if len(self._held) >= self._lists or self._held_items >= self._items:
            self._flush()

    def close(self) -> Path | None:
        """Writes what is held and gives the folder its final name; None if there was no list."""
        if self._held:
            self._flush()
        return finish(self._out, self._name) if self.files else None

    def _flush(self) -> None:
        name = shard_name(len(self.files))
        write_lists(self._held, partial_folder(self._out, self._name) / name, unique=False)
        self.files.append(name)
        self._held, self._held_items = [], 0
