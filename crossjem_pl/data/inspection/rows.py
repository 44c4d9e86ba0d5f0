"""Reading on after a malformed row: each mistake is noted, the lists of the other rows come out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossjem_pl.data.formats import LAYOUTS, ReadCounts, detect_layout
from crossjem_pl.data.formats.canonical import canonical_list
from crossjem_pl.data.formats.columns import columns_list
from crossjem_pl.data.formats.content import ContentIds
from crossjem_pl.data.formats.mteb import mteb_lists
from crossjem_pl.data.formats.rows import Row, read_rows
from crossjem_pl.data.inspection.problems import Findings
from crossjem_pl.files import shard_files
from crossjem_pl.lists import RankingList

__all__ = ["RowReader"]

_TEXTS = {
    "canonical": ("query", "items"),
    "columns": ("query", "docs"),
    "mteb": ("query", "positive", "negative"),
}
_ITEMS = {"canonical": "items", "columns": "docs"}


class RowReader:
    """The lists of a source with the rows that they come from.

    `read_lists` raises at the first mistake; this reader notes it in `findings` and goes on with the next row.
    Only what breaks the file itself (a line that is no JSON, damaged gzip or Parquet) ends the reading of
    that file.

    Args:
        path: file or folder, as for `read_lists`.
        findings: where mistakes are noted.
        labels_field: column of the labels, None for none.
        scores_field: column of the scores, None for none.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no layout fits the columns, or the first row of the source is no row at all.
    """

    def __init__(
        self,
        path: Path,
        findings: Findings,
        labels_field: str | None = "labels",
        scores_field: str | None = "scores",
    ) -> None:
        self.layout = detect_layout(path)
        self.rows = 0
        self.refused_rows = 0
        self._path, self._findings = path, findings
        self._fields = (labels_field, scores_field)
        self._counts = ReadCounts()
        self._ids = ContentIds()

    def __iter__(self) -> Iterator[tuple[Row, RankingList]]:
        required, optional = LAYOUTS[self.layout]
        replaced = dict(zip(("labels", "scores"), self._fields, strict=True))
        used = {replaced.get(name, name) for name in (*required, *optional)} - {None}
        for file in shard_files(self._path):
            rows = read_rows(file, {name for name in used if name is not None})
            while True:
                try:
                    row = next(rows, None)
                except ValueError as error:
                    self._findings.add("unreadable-file", str(error))
                    break
                if row is None:
                    break
                self.rows += 1
                for column in row.columns:
                    if column not in used:
                        self._counts.leave(column)
                yield from self._lists(row)
        merged = self._counts.merged_items + self._counts.merged_queries
        if merged:
            self._findings.add("merged-repeats", str(self._path), merged)
        for column in self._counts.not_carried:
            self._findings.add("columns-not-read", column)

    def place(self, row: Row) -> str:
        """ "line 3", with the name of the shard in front where the source is a folder."""
        inside = f"{row.unit} {row.number}"
        return inside if row.path == self._path else f"{row.path.name}, {inside}"

    def _lists(self, row: Row) -> Iterator[tuple[Row, RankingList]]:
        try:
            lists = self._read(row)
        except ValueError as error:
            self.refused_rows += 1
            found = list(self._mistakes(row))
            for code, example in found:
                self._findings.add(code, f"{self.place(row)}, {example}")
            if not found:
                self._findings.add("malformed-row", str(error).replace(row.where, self.place(row)))
            return
        for one in lists:
            yield row, one

    def _read(self, row: Row) -> list[RankingList]:
        if self.layout == "canonical":
            return [canonical_list(row, *self._fields)]
        if self.layout == "mteb":
            return list(mteb_lists(row, self._ids, self._counts))
        return [columns_list(row, *self._fields, self._ids, self._counts)]

    def _mistakes(self, row: Row) -> Iterator[tuple[str, str]]:
        """All mistakes of a refused row that have a kind of their own: (code, place inside the row)."""
        for field in _TEXTS[self.layout]:
            for place, value in _entries(row.values.get(field)):
                if isinstance(value, str) and not value.strip():
                    yield "blank-text", f"field {field!r}{place}"
        if self.layout == "mteb":
            return
        items = row.values.get(_ITEMS[self.layout])
        ids = row.values.get("item_ids")
        if isinstance(ids, list):
            counts = Counter(str(value) for value in ids)
            for value, count in counts.items():
                for _ in range(count - 1):
                    yield "repeated-item-id", f"field 'item_ids': id {value!r} occurs more than once"
        numbers = [field for field in self._fields if field is not None]
        for field in (*numbers, *(["item_ids"] if self.layout == "canonical" else [])):
            values = row.values.get(field)
            if not isinstance(values, list):
                continue
            if isinstance(items, list) and len(values) != len(items):
                yield "unequal-lengths", f"field {field!r}: {len(values)} values for {len(items)} items"
            for place, value in _entries(values) if field in numbers else ():
                if not _is_finite(value):
                    yield "not-finite", f"field {field!r}{place}: {value!r}"


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """A value, or the entries of a list, with the words for their place."""
    if isinstance(value, list):
        yield from ((f", position {i}", entry) for i, entry in enumerate(value))
    else:
        yield "", value


def _is_finite(value: Any) -> bool:
    try:
        return not isinstance(value, str) and math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False
