"""Folders of shards: which files they hold, their manifest, and writing ranking lists as Parquet shards.

`manifest.json` says what the shards were made with, lists them, and says whether the folder is complete; every reader
refuses a folder that is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from crossjem_pl.files import ending, existing, replacing
from crossjem_pl.lists import RankingList

if TYPE_CHECKING:
    pass

__all__ = [
    "FIELDS",
    "Manifest",
    "ShardWriter",
    "generate_shards",
    "shard_files",
    "write_parquet",
    "write_shards",
]

MANIFEST = "manifest.json"
FIELDS = ("query_id", "query", "item_ids", "items", "labels", "scores")
"""The columns of canonical rows."""

ROW_GROUP = 256
GROUP_ITEMS = 100_000
_ENDINGS = (".parquet", ".jsonl", ".jsonl.gz")
_FORMAT = "crossjem_pl shards"


def shard_files(path: Path) -> list[Path]:
    """The files of a source: the file itself, or the shards of a folder in sorted order.

    Shards end in .parquet, .jsonl or .jsonl.gz; names that start with a dot and other endings (a manifest, a read-me)
    are no shards.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: a folder without shards, with Parquet and JSONL shards side by side, or that its manifest says is
            not complete.
    """
    existing(path)
    if not path.is_dir():
        return [path]
    manifest = Manifest.read(path)
    if manifest is not None and not manifest.complete:
        raise ValueError(
            f"{path}: the shards are not complete ({MANIFEST} says so): finish writing them first"
        )
    files = _shards(path)
    if not files:
        raise ValueError(f"{path}: the folder has no shards ({', '.join('*' + e for e in _ENDINGS)})")
    if len({ending(file) == ".parquet" for file in files}) > 1:
        raise ValueError(f"{path}: the folder has Parquet and JSONL shards; one source is of one kind")
    return files


@dataclass
class Manifest:
    """`manifest.json` of a folder of shards.

    Args:
        folder: the folder.
        options: what the shards depend on.
        complete: whether all of them are written.
        shards: name, lists and bytes of each.
        counts: what was counted while they were made.
        kept: how many of the shards a `ShardWriter` found there (not stored).
    """

    folder: Path
    options: dict[str, Any]
    complete: bool = False
    shards: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    kept: int = 0

    def __str__(self) -> str:
        kept = f", {self.kept} of them from before" if self.kept else ""
        lists, size = (sum(shard[name] for shard in self.shards) for name in ("lists", "bytes"))
        return f"{self.folder}: {lists} lists in {len(self.shards)} shards{kept}, {size / 1e6:.1f} MB"

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest, or None where there is none, or that of another program; a ValueError if it is no JSON."""
        path = folder / MANIFEST
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: not JSON ({error})") from None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            return None
        del content["format"]
        return cls(folder, **content)

    def save(self) -> None:
        """Writes the manifest, whole or not at all."""
        content = {"format": _FORMAT, **{k: v for k, v in vars(self).items() if k not in ("folder", "kept")}}
        with replacing(self.folder / MANIFEST) as stream:
            stream.write(json.dumps(content, indent=1).encode() + b"\n")

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises a ValueError that names the option in which the shards differ from `options`."""
        for name in options:
            if self.options.get(name) != options[name]:
                raise ValueError(
                    f"{self.folder}: its shards were made with {name}={self.options.get(name)!r}, now it is "
                    f"{options[name]!r}; choose another folder or remove them"
                )

    def check_shards(self, lists: Mapping[str, int]) -> None:
        """Raises a ValueError that names a shard that is missing or not listed, or has not the `lists` listed."""
        listed = {entry["name"]: entry["lists"] for entry in self.shards}
        for name in sorted(listed.keys() | lists.keys()):
            if name not in lists:
                raise ValueError(f"{self.folder / name}: is missing, but {MANIFEST} lists it")
            if name not in listed:
                raise ValueError(f"{self.folder / name}: is not listed in {MANIFEST}")
            if listed[name] != lists[name]:
                raise ValueError(
                    f"{self.folder / name}: has {lists[name]} lists, {MANIFEST} says {listed[name]}"
                )


class ShardWriter:
    """Writes a folder's shards one after the other; shards of an interrupted call with the same options are kept.

    A shard is written under a temporary name and renamed when it is whole, and the manifest says "not complete" until
    `close`. Query ids have to be unique over all lists; that is not checked, it would take memory for every list. One
    process works on a folder at a time: temporary files of an interrupted one are removed.

    Args:
        folder: made if missing.
        options: what the lists depend on, for the manifest.
        row_group: lists of a row group, the unit that a streaming epoch shuffles.

    Raises:
        ValueError: names the option in which the shards of the folder differ; shards without a manifest; a `row_group`
            below 1.
    """

    def __init__(self, folder: Path, options: Mapping[str, Any], row_group: int = ROW_GROUP) -> None:
        self.folder, self.row_group = folder, _positive("row_group", row_group)
        options = {**options, "row_group": row_group}
        before = Manifest.read(folder)
        if before is not None:
            before.check_options(options)
        elif folder.is_dir() and _shards(folder):
            raise ValueError(f"{folder}: has shards, but no {MANIFEST} that tells how they were made")
        self.manifest = Manifest(folder, options)
        self.manifest.save()
        for leftover in folder.glob(".*.parquet.*.tmp"):
            leftover.unlink()

    def write(self, lists: Iterable[RankingList]) -> None:
        """Writes the next shard; memory holds one row group."""
        with replacing(self._next()) as stream:
            written = write_parquet(lists, stream, self.row_group)
        self._list(written)

    def keep(self, expected: int) -> bool:
        """Whether the next shard is there already; a ValueError names it if it is not Parquet of `expected` lists."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._next()
        if not path.exists():
            return False
        try:
            lists = pq.read_metadata(path).num_rows
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path}: not a readable Parquet file ({error}); remove it") from None
        if lists != expected:
            raise ValueError(f"{path}: has {lists} lists instead of {expected}; remove it")
        self._list(lists)
        self.manifest.kept += 1
        return True

    def close(self) -> Manifest:
        """Says in the manifest that the folder is complete."""
        self.manifest.complete = True
        self.manifest.save()
        return self.manifest

    def _next(self) -> Path:
        return self.folder / f"{len(self.manifest.shards):06d}.parquet"

    def _list(self, lists: int) -> None:
        path = self._next()
        self.manifest.shards.append({"name": path.name, "lists": lists, "bytes": path.stat().st_size})


def write_shards(
    lists: Iterable[RankingList], folder: Path, lists_per_shard: int = 10_000, row_group: int = ROW_GROUP
) -> Manifest:
    """Writes lists to `folder/000000.parquet`, ... and a manifest, see `ShardWriter`; the last shard holds the rest.

    Raises:
        ValueError: no lists, shards in the folder, or a size below 1.
    """
    _positive("lists_per_shard", lists_per_shard)
    if folder.is_dir() and (_shards(folder) or (folder / MANIFEST).exists()):
        raise ValueError(f"{folder}: the folder has shards already; choose another or remove them")
    stream = iter(lists)
    first = next(stream, None)
    if first is None:
        raise ValueError(f"{folder}: there are no lists to write")
    writer = ShardWriter(folder, {"lists_per_shard": lists_per_shard}, row_group)
    while first is not None:
        writer.write(chain([first], islice(stream, lists_per_shard - 1)))
        first = next(stream, None)
    return writer.close()


def generate_shards(
    make: Callable[[int, int], Iterable[RankingList]],
    count: int,
    folder: Path,
    options: Mapping[str, str | int | float],
    lists_per_shard: int = 10_000,
    row_group: int = ROW_GROUP,
) -> Manifest:
    """Writes generated lists as `write_shards` does; a call that was interrupted goes on where it stopped.

    Args:
        make: makes lists `start` to `start + count - 1` from (start, count); any slice gives the same lists.
        count: lists in all, at least 1.
        folder, options, lists_per_shard, row_group: see `ShardWriter`.

    Raises:
        ValueError: as `ShardWriter`; for a shard with another number of lists, or a size below 1.
    """
    _positive("lists_per_shard", lists_per_shard)
    _positive("the number of lists", count)
    writer = ShardWriter(folder, {"lists_per_shard": lists_per_shard, **options, "lists": count}, row_group)
    for start in range(0, count, lists_per_shard):
        expected = min(lists_per_shard, count - start)
        if not writer.keep(expected):
            writer.write(make(start, expected))
    return writer.close()


def write_parquet(lists: Iterable[RankingList], stream: BinaryIO, row_group: int) -> int:
    """Writes canonical rows in flat memory; returns the number of lists.

    Numbers are float64, so that nothing is rounded. A row group holds at most `row_group` lists, and ends when it has
    100,000 items. Pages carry checksums.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    types = (pa.string(), pa.string(), texts, texts, numbers, numbers)
    schema = pa.schema([pa.field(n, t, nullable=t is numbers) for n, t in zip(FIELDS, types, strict=True)])
    count = items = 0
    group: list[dict[str, Any]] = []
    with pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True) as writer:
        for ranking_list in lists:
            group.append(record(ranking_list))
            count, items = count + 1, items + len(ranking_list)
            if len(group) == row_group or items >= GROUP_ITEMS:
                writer.write_table(pa.Table.from_pylist(group, schema))
                group, items = [], 0
        if group:
            writer.write_table(pa.Table.from_pylist(group, schema))
    return count


def record(ranking_list: RankingList) -> dict[str, Any]:
    """The values of a list by the columns of canonical rows."""
    return {name: getattr(ranking_list, name) for name in FIELDS}


def _shards(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and p.name[0] != "." and ending(p) in _ENDINGS)


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value
