"""`write_lists`: lists to any format that can be written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from crossjem_pl.data.formats.canonical import CANONICAL_ENDINGS, write_canonical
from crossjem_pl.data.formats.trec import write_list_qrels, write_list_run
from crossjem_pl.files import ending
from crossjem_pl.lists import RankingList

__all__ = ["TARGETS", "target_format", "write_lists"]

TARGETS: dict[str, tuple[str, ...]] = {
    "canonical": CANONICAL_ENDINGS,
    "run": (".run", ".run.gz", ".trec", ".trec.gz"),
    "qrels": (".qrels", ".qrels.gz"),
}
"""Formats that can be written, and the endings by which "auto" picks them."""


def target_format(path: str | os.PathLike[str], format: str = "auto") -> str:
    """The format to write: `format` itself, or by the ending of `path`.

    Raises:
        ValueError: an unknown format, or an ending that tells none.
    """
    if format in TARGETS:
        return format
    known = "; ".join(f"{name} ({', '.join(endings)})" for name, endings in TARGETS.items())
    if format != "auto":
        raise ValueError(f"unknown format to write {format!r}; there are: {known}")
    kind = ending(Path(path))
    for name, endings in TARGETS.items():
        if kind in endings:
            return name
    raise ValueError(f"{path}: the ending tells no format to write; there are: {known}")


def write_lists(
    lists: Iterable[RankingList],
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    unique: bool = True,
    tag: str = "crossjem_pl",
) -> int:
    """Writes lists in flat memory and returns their number.

    The file appears whole or not at all: it is written under a temporary name in its folder (made if missing)
    and renamed, replacing a file of that name.

    Args:
        lists: the lists.
        path: the file.
        format: "canonical" (.jsonl, .jsonl.gz or .parquet), "run" (a TREC run of the scores), "qrels" (of the
            labels), or "auto": by the ending.
        unique: check that no query id occurs twice (about 100 bytes a list).
        tag: the tag of a run.

    Raises:
        ValueError: no lists; two lists with one query id; a list that lacks what the format needs.
    """
    target = Path(path)
    format = target_format(target, format)
    checked = _Checked(lists, target, unique)
    if format == "canonical":
        write_canonical(checked, target)
    elif format == "run":
        write_list_run(checked, target, tag)
    else:
        write_list_qrels(checked, target)
    return checked.count


class _Checked:
    """The lists, counted and checked as they pass by."""

    def __init__(self, lists: Iterable[RankingList], target: Path, unique: bool) -> None:
        self.count = 0
        self._lists = lists
        self._target = target
        self._unique = unique

    def __iter__(self) -> Iterator[RankingList]:
        seen: set[str] = set()
        for one in self._lists:
            if self._unique:
                if one.query_id in seen:
                    raise ValueError(
                        f"list {one.query_id!r}, field 'query_id': two lists to write have this id"
                    )
                seen.add(one.query_id)
            self.count += 1
            yield one
        if not self.count:
            raise ValueError(f"{self._target}: there are no lists to write")
