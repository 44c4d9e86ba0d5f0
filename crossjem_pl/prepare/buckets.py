"""Records sorted into buckets on disk, so that each can be taken into memory by itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Buckets"]


class Buckets:
    """Buckets of JSON records below a folder of their own, which `remove` takes away.

    Args:
        folder: emptied at the start.
        count: how many buckets.
        held: records that are held in memory between two writes.
    """

    def __init__(self, folder: Path, count: int, held: int = 200_000) -> None:
        if count < 1:
            raise ValueError(f"the number of buckets must be at least 1, got {count}")
        self.count = count
        self._folder = folder
        self._most = held
        self._number = 0
        self._held: dict[int, list[str]] = {}
        self.remove()
        folder.mkdir(parents=True)

    def add(self, position: float, record: list[Any]) -> None:
        """Takes a record. Its position in [0, 1) picks the bucket: later buckets hold higher positions."""
        bucket = int(position * self.count)
        self._held.setdefault(bucket, []).append(json.dumps(record, ensure_ascii=False))
        self._number += 1
        if self._number >= self._most:
            self._write()

    def read(self) -> Iterator[Iterator[list[Any]]]:
        """The records of one bucket after the other, each bucket in the order in which they were added."""
        self._write()
        for bucket in range(self.count):
            if self._path(bucket).exists():
                yield self._records(bucket)

    def remove(self) -> None:
        """Takes the folder away."""
        if self._folder.exists():
            shutil.rmtree(self._folder)

    def _records(self, bucket: int) -> Iterator[list[Any]]:
        with self._path(bucket).open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    def _write(self) -> None:
        # opened one at a time: there may be more buckets than a process may have files open
        for bucket, lines in self._held.items():
            with self._path(bucket).open("a", encoding="utf-8", newline="\n") as file:
                file.write("\n".join(lines) + "\n")
        self._held, self._number = {}, 0

    def _path(self, bucket: int) -> Path:
        return self._folder / f"bucket-{bucket:05d}.jsonl"
