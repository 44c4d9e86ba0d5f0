"""Folders of shards: which files they hold, their manifest, and writing ranking lists as Parquet shards.

`manifest.json` says what the shards were made with, lists them, and says whether the folder is complete; every reader
refuses a folder that is not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count, islice, takewhile
from pathlib import Path
from typing import Any, BinaryIO

from crossjem_pl.files import ending, existing, replacing, write_json
from crossjem_pl.lists import RankingList, counted, shown

__all__ = ["COLUMNS_KEY", "FIELDS", "Manifest", "NoLists", "shard_files", "write_parquet", "write_shards"]


COLUMNS_KEY = "crossjem_pl.columns"
"""Names the columns once more in the footers that this package writes, which have no checksum."""
MANIFEST = "manifest.json"
FIELDS = ("query_id", "query", "item_ids", "items", "labels", "scores")
"""The columns of canonical rows."""

ROW_GROUP = 256
GROUP_ITEMS = 100_000
_ENDINGS = (".parquet", ".arrow", ".jsonl", ".jsonl.gz")
_FORMAT = "crossjem_pl shards"


def shard_files(path: Path) -> list[Path]:
    """The files of a source: the file itself, or the shards of a folder in sorted order.

    Shards end in .parquet, .arrow, .jsonl or .jsonl.gz; names that start with a dot and other endings (a manifest, a
    read-me) are no shards.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: a folder without shards, with Parquet and JSONL shards side by side, or that its manifest says is
            not complete or has other shards.
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
    for file in files:
        if not file.exists():
            raise FileNotFoundError(f"{file}: the link leads nowhere ({file.readlink()})")
    if len({ending(file).removesuffix(".gz") for file in files}) > 1:
        kinds = ", ".join(sorted({ending(file) for file in files}))
        raise ValueError(
            f"{path}: the folder has shards of several kinds ({kinds}); one source is of one kind"
        )
    if manifest is not None:
        manifest.check_shards(dict.fromkeys(file.name for file in files))
    return files


class NoLists(ValueError):
    """There are no lists to write."""


@dataclass
class Manifest:
    """`manifest.json` of a folder of shards; `str()` is an account for a terminal.

    Args:
        folder: the folder.
        options: what the shards depend on.
        complete: whether all of them are written.
        shards: name, lists and bytes of each.
        counts: what was counted while they were made.
        kept: how many of the shards `write_shards` found there (not stored).
        sentences: what a count above 0 means; counts without a sentence are not told (not stored).
    """

    folder: Path
    options: dict[str, Any]
    complete: bool = False
    shards: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    kept: int = 0
    sentences: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        found = "was complete" if self.kept == len(self.shards) else f"{self.kept} of them from before"
        lists, size = (sum(shard[name] for shard in self.shards) for name in ("lists", "bytes"))
        items = ", {items} items, {positives} of them relevant," if "items" in self.counts else ""
        first = f"{self.folder}: {counted(lists, 'list')}{items.format(**self.counts)} in "
        first += (
            f"{counted(len(self.shards), 'shard')}{f', {found}' if self.kept else ''}, {size / 1e6:.1f} MB"
        )
        return "\n  ".join([first, *self.told()])

    def told(self) -> list[str]:
        """The sentences of the counts above 0."""
        return [
            f"{self.counts[name]} {text}" for name, text in self.sentences.items() if self.counts.get(name)
        ]

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest, or None where there is none, or that of another program.

        Raises:
            ValueError: names the file, if it is no JSON, or one of ours whose fields are not what they should be.
        """
        path = folder / MANIFEST
        if not path.exists():
            return None
        existing(path)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not JSON ({error})") from None
        if not isinstance(content, dict) or not {"format", "complete", "shards"} & content.keys():
            return None
        types: dict[str, Any] = {"options": dict, "complete": bool, "shards": list, "counts": dict}
        wrong = [name for name, kind in types.items() if not isinstance(content.get(name), kind)]
        if content.pop("format", None) != _FORMAT or content.keys() != types.keys() or wrong:
            raise ValueError(
                f"{path}: not a manifest of this program's shards ({', '.join(wrong) or 'format'}); write the shards "
                "again, or remove it to read them without"
            )
        entry = {"name": str, "lists": int, "bytes": int}
        for shard in content["shards"]:
            if not isinstance(shard, dict) or {name: type(value) for name, value in shard.items()} != entry:
                raise ValueError(f"{path}: an entry of shards is not a name, lists and bytes")
        return cls(folder, **content)

    def save(self) -> None:
        """Writes the manifest, whole or not at all."""
        left_out = ("folder", "kept", "sentences")
        content = {"format": _FORMAT, **{k: v for k, v in vars(self).items() if k not in left_out}}
        write_json(self.folder / MANIFEST, content)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises a ValueError that names the option in which the shards differ from `options`."""
        for name in options:
            if self.options.get(name) != options[name]:
                raise ValueError(
                    f"{self.folder}: its shards were made with {name}={shown(self.options.get(name))}, now it is "
                    f"{options[name]!r}; choose another folder or remove them"
                )

    def check_shards(self, lists: Mapping[str, int | None]) -> None:
        """Raises a ValueError that names a shard that is missing or not listed, or has not the `lists` listed.

        `lists` are those of each shard by its name; None where they were not counted.
        """
        listed = {entry["name"]: entry["lists"] for entry in self.shards}
        for name in sorted(listed.keys() | lists.keys()):
            if name not in lists:
                raise ValueError(f"{self.folder / name}: is missing, but {MANIFEST} lists it")
            if name not in listed:
                raise ValueError(f"{self.folder / name}: is not listed in {MANIFEST}")
            if lists[name] not in (None, listed[name]):
                raise ValueError(
                    f"{self.folder / name}: has {lists[name]} lists, {MANIFEST} says {listed[name]}"
                )

    def add(self, path: Path, lists: int) -> None:
        """Lists a shard that is written."""
        self.shards.append({"name": path.name, "lists": lists, "bytes": path.stat().st_size})


def write_shards(
    lists: Iterable[RankingList] | Callable[[int], Iterable[RankingList]],
    folder: Path,
    lists_per_shard: int = 10_000,
    row_group: int = ROW_GROUP,
    options: Mapping[str, Any] | None = None,
    counts: Mapping[str, int] | None = None,
) -> Manifest:
    """Writes lists to `folder/000000.parquet`, ... and a manifest; the last shard holds the rest.

    A shard is written under a temporary name and renamed when it is whole, and the manifest says "not complete" until
    the end. Query ids have to be unique over all lists; that is not checked, it would take memory for every list. One
    process works on a folder at a time: temporary files of an interrupted one are removed.

    Args:
        lists: the lists; or a function that gives the lists from number `start` on, with which a call that was
            interrupted goes on after the shards that it wrote.
        folder: made if missing.
        lists_per_shard: lists of a shard.
        row_group: lists of a row group, the unit that a streaming epoch shuffles.
        options: what the lists depend on, for the manifest. With the same ones a complete folder is left as it is, and
            of an interrupted call the shards are kept (of a function) or written again. None: a folder that has shards
            is refused.
        counts: for the manifest; read when the lists are exhausted.

    Raises:
        NoLists: there are none.
        ValueError: a size below 1; shards in the folder of other options, of another length, without a
            manifest, or not readable.
    """
    for name, value in (("lists_per_shard", lists_per_shard), ("row_group", row_group)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    before, old = Manifest.read(folder), _shards(folder) if folder.is_dir() else []
    if options is None and (before is not None or old):
        raise ValueError(f"{folder}: the folder has shards already; choose another or remove them")
    manifest = Manifest(
        folder, {"lists_per_shard": lists_per_shard, **(options or {}), "row_group": row_group}
    )
    if before is not None:
        whole = before.complete and not callable(lists)
        before.check_options(options or {} if whole else manifest.options)
        if whole:
            before.kept = len(before.shards)
            return before
    elif folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is there already, and no folder of shards; remove it")
    elif old:
        raise ValueError(f"{folder}: has shards, but no {MANIFEST} that tells how they were made")
    if callable(lists):
        for path in takewhile(Path.exists, (_shard(folder, number) for number in count())):
            manifest.add(path, _rows(path))
        lists, old = lists(sum(shard["lists"] for shard in manifest.shards)), []
    stream = iter(lists)
    first = next(stream, None)
    if first is None and not manifest.shards:
        raise NoLists(f"{folder}: there are no lists to write")
    manifest.kept = len(manifest.shards)
    for shard in manifest.shards if first is not None else manifest.shards[:-1]:
        if shard["lists"] != lists_per_shard:
            name = folder / shard["name"]
            raise ValueError(f"{name}: has {shard['lists']} lists instead of {lists_per_shard}; remove it")
    manifest.save()
    for leftover in (*old, *folder.glob(".*.parquet.*.tmp")):
        leftover.unlink()
    while first is not None:
        path = _shard(folder, len(manifest.shards))
        with replacing(path) as file:
            written = write_parquet(chain([first], islice(stream, lists_per_shard - 1)), file, row_group)
        manifest.add(path, written)
        first = next(stream, None)
    manifest.complete, manifest.counts = True, dict(counts or {})
    manifest.save()
    return manifest


def write_parquet(lists: Iterable[RankingList], stream: BinaryIO, row_group: int) -> int:
    """Writes canonical rows in flat memory; returns the number of lists.

    Numbers are float64, so that nothing is rounded. A row group holds at most `row_group` lists, and ends when it has
    100,000 items. Pages carry checksums, and the footer a digest of the contents.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    types = (pa.string(), pa.string(), texts, texts, numbers, numbers)
    schema = pa.schema([pa.field(n, t, nullable=t is numbers) for n, t in zip(FIELDS, types, strict=True)])
    lists_written = items = 0
    digest = hashlib.sha256()
    group: list[dict[str, Any]] = []
    with pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True) as writer:
        for ranking_list in lists:
            group.append(record(ranking_list))
            digest.update(ranking_list.content())
            lists_written, items = lists_written + 1, items + len(ranking_list)
            if len(group) == row_group or items >= GROUP_ITEMS:
                writer.write_table(pa.Table.from_pylist(group, schema))
                group, items = [], 0
        if group:
            writer.write_table(pa.Table.from_pylist(group, schema))
        writer.add_key_value_metadata(
            {"crossjem_pl.content": digest.hexdigest(), COLUMNS_KEY: ",".join(FIELDS)}
        )
    return lists_written


def record(ranking_list: RankingList) -> dict[str, Any]:
    """The values of a list by the columns of canonical rows."""
    return {name: getattr(ranking_list, name) for name in FIELDS}


def _shards(folder: Path) -> list[Path]:
    """The shards of a folder in sorted order, links that lead nowhere among them: reading them names them."""
    paths = (p for p in folder.iterdir() if p.name[0] != "." and ending(p) in _ENDINGS)
    return sorted(path for path in paths if not path.is_dir())


def _shard(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.parquet"


def _rows(path: Path) -> int:
    """The lists of a shard by its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error}); remove it") from None
