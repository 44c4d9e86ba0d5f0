"""Writing ranking lists as a folder of Parquet shards, in flat memory; generated folders go on where they stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crossjem_pl.data.formats.canonical import OPTIONAL, REQUIRED, SCHEMA
from crossjem_pl.files import SHARD_ENDINGS, ending, replacing
from crossjem_pl.lists import RankingList

__all__ = ["MANIFEST", "ShardReport", "check_manifest", "generate_shards", "write_shards"]

MANIFEST = "manifest.json"
"""Its options, whether the folder is complete, and name, lists and bytes of every shard then."""

ROW_GROUP = 256
GROUP_ITEMS = 100_000
_MOST_SHARDS = 10**6  # names have six digits, so that they sort in order
_FORMAT = "crossjem_pl shards"


@dataclass(frozen=True)
class ShardReport:
    """What a writer left in a folder.

    Args:
        folder: the folder.
        shards: number of shards.
        lists: lists in them.
        bytes: their size on disk.
        kept: shards that were there before.
    """

    folder: Path
    shards: int
    lists: int
    bytes: int
    kept: int = 0

    def __str__(self) -> str:
        kept = f", {self.kept} of them from before" if self.kept else ""
        return f"{self.folder}: {self.lists} lists in {self.shards} shards{kept}, {self.bytes / 1e6:.1f} MB"


def write_shards(
    lists: Iterable[RankingList],
    folder: Path,
    lists_per_shard: int = 10_000,
    row_group: int = ROW_GROUP,
) -> ShardReport:
    """Writes lists to `folder/000000.parquet`, ... and a manifest; memory holds one row group.

    A shard is written under a temporary name and renamed when it is whole. A manifest that says "not complete" stands
    in the folder until the last one is, and such a folder is refused by `ShardSource`. Query ids have to be unique
    over all lists; that is not checked here, it would take memory for every list.

    Args:
        lists: at least one list.
        folder: made if missing; holds no shards yet.
        lists_per_shard: lists of a shard; the last holds the rest.
        row_group: lists of a row group, the unit that a streaming epoch shuffles; at most 100,000 items go into one.

    Raises:
        ValueError: no lists, shards in the folder, or a size below 1.
    """
    _check_sizes(lists_per_shard, row_group)
    if folder.is_dir() and (_shards(folder) or (folder / MANIFEST).exists()):
        raise ValueError(f"{folder}: the folder has shards already; choose another or remove them")
    stream = iter(lists)
    first = next(stream, None)
    if first is None:
        raise ValueError(f"{folder}: there are no lists to write")
    rest: Iterator[RankingList] = chain([first], stream)
    settings = {"lists_per_shard": lists_per_shard, "row_group": row_group, "options": {}}
    _write_manifest(folder, settings, None)
    entries: list[dict[str, Any]] = []
    while (one := next(rest, None)) is not None:
        own = chain([one], islice(rest, lists_per_shard - 1))
        entries.append(_write_shard(folder, len(entries), own, row_group))
    _write_manifest(folder, settings, entries)
    return _report(folder, entries)


def generate_shards(
    make: Callable[[int, int], Iterable[RankingList]],
    count: int,
    folder: Path,
    options: Mapping[str, str | int | float],
    lists_per_shard: int = 10_000,
    row_group: int = ROW_GROUP,
    advance: Callable[[int], object] | None = None,
) -> ShardReport:
    """Writes generated lists as `write_shards` does; a call that was interrupted goes on where it stopped.

    Shards that are there are kept, if the manifest says that they were made with the same options. One process works
    on a folder at a time: temporary files of an interrupted one are removed.

    Args:
        make: makes lists `start` to `start + count - 1` from (start, count); any slice gives the same lists.
        count: lists in all, at least 1.
        folder: made if missing.
        options: what the lists depend on, for the manifest.
        lists_per_shard: lists of a shard.
        row_group: lists of a row group.
        advance: called with a number of lists that were written, or found to be there, for a progress bar.

    Raises:
        ValueError: names the option in which the shards of the folder differ; for shards without a manifest, a shard
            with another number of lists, or a size below 1; if `make` gives too few or too many lists.
    """
    _check_sizes(lists_per_shard, row_group)
    if count < 1:
        raise ValueError(f"the number of lists must be at least 1, got {count}")
    settings = {
        "lists_per_shard": lists_per_shard,
        "row_group": row_group,
        "options": {**options, "lists": count},
    }
    _check_settings(folder, settings)
    _write_manifest(folder, settings, None)
    for leftover in folder.glob(".*.parquet.*.tmp"):
        leftover.unlink()
    entries = []
    kept = 0
    for number, start in enumerate(range(0, count, lists_per_shard)):
        expected = min(lists_per_shard, count - start)
        path = _path(folder, number)
        if path.exists():
            entries.append(_entry(path, expected))
            kept += 1
            if advance is not None:
                advance(expected)
        else:
            made = make(start, expected)
            made = made if advance is None else _advancing(made, advance)
            entries.append(_write_shard(folder, number, made, row_group, expected))
    _write_manifest(folder, settings, entries)
    return _report(folder, entries, kept)


def check_manifest(folder: Path, found: Mapping[str, int]) -> None:
    """Compares the shards of a folder, lists by file name, with its manifest; folders without one pass.

    Raises:
        ValueError: names the folder that is not complete, or the shard that is missing, is not listed, or has another
            number of lists than listed.
    """
    manifest = _read_manifest(folder)
    if manifest is None:
        return
    if not manifest.get("complete"):
        raise ValueError(
            f"{folder}: the shards are not complete ({MANIFEST} says so): finish writing them first"
        )
    listed = {entry["name"]: entry["lists"] for entry in manifest["shards"]}
    for name in sorted(listed.keys() | found.keys()):
        if name not in found:
            raise ValueError(f"{folder / name}: is missing, but {MANIFEST} lists it")
        if name not in listed:
            raise ValueError(f"{folder / name}: is not listed in {MANIFEST}")
        if listed[name] != found[name]:
            raise ValueError(f"{folder / name}: has {found[name]} lists, {MANIFEST} says {listed[name]}")


def _check_sizes(lists_per_shard: int, row_group: int) -> None:
    for name, value in (("lists_per_shard", lists_per_shard), ("row_group", row_group)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def _shards(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.name[0] != "." and ending(p) in SHARD_ENDINGS]


def _path(folder: Path, number: int) -> Path:
    if number >= _MOST_SHARDS:
        raise ValueError(f"{folder}: more than {_MOST_SHARDS} shards; give each more lists")
    return folder / f"{number:06d}.parquet"


def _write_shard(
    folder: Path, number: int, lists: Iterable[RankingList], row_group: int, expected: int | None = None
) -> dict[str, Any]:
    path = _path(folder, number)
    written = 0
    with replacing(path) as stream:
        with pq.ParquetWriter(stream, SCHEMA, compression="zstd", write_page_checksum=True) as writer:
            for group in _groups(lists, row_group):
                writer.write_table(pa.Table.from_pylist(group, SCHEMA))
                written += len(group)
        if expected is not None and written != expected:
            raise ValueError(f"{path}: expected {expected} lists to be generated, got {written}")
    return {"name": path.name, "lists": written, "bytes": path.stat().st_size}


def _groups(lists: Iterable[RankingList], row_group: int) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    items = 0
    for one in lists:
        group.append({name: getattr(one, name) for name in (*REQUIRED, *OPTIONAL)})
        items += len(one)
        if len(group) == row_group or items >= GROUP_ITEMS:
            yield group
            group, items = [], 0
    if group:
        yield group


def _advancing(lists: Iterable[RankingList], advance: Callable[[int], object]) -> Iterator[RankingList]:
    for one in lists:
        yield one
        advance(1)


def _entry(path: Path, expected: int) -> dict[str, Any]:
    """The manifest's entry of a shard that is there."""
    try:
        lists = pq.read_metadata(path).num_rows
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error}); remove it") from None
    if lists != expected:
        raise ValueError(f"{path}: has {lists} lists instead of {expected}; remove it")
    return {"name": path.name, "lists": lists, "bytes": path.stat().st_size}


def _check_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    if not folder.is_dir():
        return
    manifest = _read_manifest(folder)
    if manifest is None:
        if _shards(folder):
            raise ValueError(f"{folder}: has shards, but no {MANIFEST} that tells how they were made")
        return
    before, now = ({**part, **part["options"]} for part in (manifest, settings))
    for name in ("lists_per_shard", "row_group", *settings["options"]):
        if before.get(name) != now[name]:
            raise ValueError(
                f"{folder}: its shards were made with {name}={before.get(name)!r}, now it is {now[name]!r}; "
                "choose another folder or remove them"
            )


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest, or None where there is none, or that of another program."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    return manifest if isinstance(manifest, dict) and manifest.get("format") == _FORMAT else None


def _write_manifest(folder: Path, settings: Mapping[str, Any], entries: list[dict[str, Any]] | None) -> None:
    content = {"format": _FORMAT, **settings, "complete": entries is not None, "shards": entries or []}
    with replacing(folder / MANIFEST) as stream:
        stream.write(json.dumps(content, indent=1).encode() + b"\n")


def _report(folder: Path, entries: list[dict[str, Any]], kept: int = 0) -> ShardReport:
    lists, size = (sum(entry[key] for entry in entries) for key in ("lists", "bytes"))
    return ShardReport(folder, len(entries), lists, size, kept)
