"""Where ranking lists come from."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.lists import RankingList

if TYPE_CHECKING:
    from crossjem_pl.data.streaming import ShardIndex

__all__ = ["FileSource", "ListSource", "MemorySource", "MixedSource", "ShardSource", "SimulatorSource"]

log = logging.getLogger(__name__)


class ListSource(ABC):
    """A source of ranking lists."""

    @abstractmethod
    def read(self, root: Path) -> Iterator[RankingList]:
        """The lists, in their stored order. Relative paths are under `root`."""

    def stream(self, root: Path) -> ShardIndex | None:
        """The shards to stream the lists from, or None if they are read into memory."""
        return None

    def files(self, root: Path) -> list[Path]:
        """The files and folders that must be there to read them."""
        return []

    def describe(self, root: Path) -> str:
        """What the lists come from, for the log: the file or folder, or the class of the source."""
        path = getattr(self, "path", None)
        return type(self).__name__ if path is None else str(root / path)


class FileSource(ListSource):
    """Lists from a file or a folder of shards, in any layout that `read_lists` understands.

    Args:
        path: the file or folder, relative to the data module's `root`.
        limit: only the first `limit` lists; None for all.
        label_column, score_column: columns of the labels and of the teacher scores.
        query_column, item_column: columns of the queries and items, where they have names of their own.
    """

    def __init__(
        self,
        path: str,
        limit: int | None = None,
        label_column: str = "labels",
        score_column: str = "scores",
        query_column: str | None = None,
        item_column: str | None = None,
    ) -> None:
        self.path, self.limit = path, limit
        self.columns: dict[str, Any] = {"label_column": label_column, "score_column": score_column}
        self.columns |= {"query_column": query_column, "item_column": item_column}

    def read(self, root: Path) -> Iterator[RankingList]:
        return islice(read_lists(root / self.path, **self.columns), self.limit)

    def files(self, root: Path) -> list[Path]:
        return [root / self.path]


class MemorySource(ListSource):
    """Lists that are in memory already, for trainings from Python.

    Args:
        lists: any iterable of lists; it is read once.
    """

    def __init__(self, lists: Iterable[RankingList]) -> None:
        self.lists = list(lists)

    def read(self, root: Path) -> Iterator[RankingList]:
        return iter(self.lists)


class MixedSource(ListSource):
    """The lists of several sources, in memory, one source after the other.

    Labels, or scores, that some lists lack are left out of all, and a warning says so.

    Args:
        sources: paths or sources. The lists of the second and later ones get its number before their query ids.

    Raises:
        ValueError: while reading, if two sources have a list of one id all the same (as those of mixed sources may).
    """

    def __init__(self, sources: list[str | ListSource]) -> None:
        self.sources = [FileSource(source) if isinstance(source, str) else source for source in sources]

    def read(self, root: Path) -> Iterator[RankingList]:
        lists: list[RankingList] = []
        for number, source in enumerate(self.sources, 1):
            before = {one.query_id for one in lists}
            for one in source.read(root):
                lists.append(one if number == 1 else replace(one, query_id=f"{number}-{one.query_id}"))
                if lists[-1].query_id in before:
                    raise ValueError(
                        f"two of the mixed sources have a list of query id {lists[-1].query_id!r}"
                    )
        left_out: dict[str, Any] = {}
        for field in ("labels", "scores"):
            there = sum(getattr(one, field) is not None for one in lists)
            if 0 < there < len(lists):
                log.warning(
                    "%d of %d lists have no %s, which are left out", len(lists) - there, len(lists), field
                )
                left_out[field] = None
        return (replace(one, **left_out) for one in lists)

    def files(self, root: Path) -> list[Path]:
        return [file for source in self.sources for file in source.files(root)]


class ShardSource(ListSource):
    """Lists that stream from Parquet shards in bounded memory, see `StreamingLoader`.

    Query ids have to be unique over all shards; this is not checked, it would take memory for every list.

    Args:
        path: folder of Parquet shards in the canonical layout (or one file), relative to the data module's `root`;
            `write_shards`, `crossjem simulate --shard-size` and `crossjem convert --shard-size` make them.
        buffer: lists that are held in memory and shuffled among each other.
        label_column: column of the labels.
        score_column: column of the teacher scores.

    Raises:
        ValueError: if `buffer` is below 1.
    """

    def __init__(
        self, path: str, buffer: int = 4096, label_column: str = "labels", score_column: str = "scores"
    ) -> None:
        if buffer < 1:
            raise ValueError(f"buffer must be at least 1, got {buffer}")
        self.path, self.buffer = path, buffer
        self.label_column, self.score_column = label_column, score_column

    def read(self, root: Path) -> Iterator[RankingList]:
        index = self.stream(root)
        for rows in index.read(index.whole()):
            yield from (ranking_list for _, ranking_list in index.lists(rows))

    def stream(self, root: Path) -> ShardIndex:
        from crossjem_pl.data.streaming import ShardIndex

        return ShardIndex(root / self.path, self.label_column, self.score_column, self.buffer)

    def files(self, root: Path) -> list[Path]:
        return [root / self.path]


class SimulatorSource(ListSource):
    """Lists of the sponsored-search simulator, generated on the spot.

    Args:
        lists: how many lists.
        items: items per list.
        seed: seed of the simulated world and of the lists.
        split: "train", "dev" or "test"; queries never repeat across splits.
    """

    def __init__(
        self, lists: int, items: int = 100, seed: int = 0, split: Literal["train", "dev", "test"] = "train"
    ) -> None:
        self.lists, self.items, self.seed, self.split = lists, items, seed, split

    def read(self, root: Path) -> Iterator[RankingList]:
        return simulate(self.lists, self.items, self.seed, split=self.split)

    def describe(self, root: Path) -> str:
        return f"{self.lists} simulated, of {self.items} items each (split {self.split}, seed {self.seed})"
