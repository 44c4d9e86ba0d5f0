"""Queries and items that occur more than once."""

from __future__ import annotations

from dataclasses import dataclass

from crossjem_pl.data.formats.rows import Row
from crossjem_pl.data.inspection.hashes import HashMap, normalise, text_key
from crossjem_pl.data.inspection.leakage import TrainingTexts
from crossjem_pl.data.inspection.problems import Findings
from crossjem_pl.lists import RankingList

__all__ = ["RepeatFigures", "RepeatInspector"]

_ENOUGH = 20
_MOSTLY = 0.5


@dataclass(frozen=True)
class RepeatFigures:
    """Args:
    distinct_queries: query texts, normalised.
    distinct_items: item texts, normalised.
    distinct_item_ids: item ids.
    """

    distinct_queries: int
    distinct_items: int
    distinct_item_ids: int


class RepeatInspector:
    """Looks for queries and items that occur before, by id and by normalised text.

    Remembers a hash of every query id, query text, item id and item text: 16 bytes each, see `HashMap`.
    Where more than half of the item ids that come again have another text (and at least 20 do), ids are
    taken for numbers inside their list: one note in place of the warnings.

    Args:
        findings: where repeats are noted.
        texts: filled with the texts, so that other files can be compared with them.
    """

    def __init__(self, findings: Findings, texts: TrainingTexts) -> None:
        self._findings, self._texts = findings, texts
        self._query_ids, self._item_ids = HashMap(), HashMap()
        self._files: dict[str, int] = {}
        self._ids_again = self._ids_differing = 0

    def look(self, where: str, row: Row, one: RankingList) -> None:
        # "line" or "shard.parquet, row": what stands before the number
        file = self._files.setdefault(where.rpartition(" ")[0], len(self._files))
        place = file << 40 | row.number
        named = f"{where}: {one.query_id}"
        query = normalise(one.query)
        before = self._query_ids.first(text_key(one.query_id), place)
        same_text = self._texts.queries.first(text_key(query), place)
        if before is not None:
            self._findings.add("repeated-query-id", f"{named}, first in {self._named(before)}")
        elif same_text is not None:
            first = self._named(same_text)
            self._findings.add("repeated-query", f"{named}, {one.query!r}, first in {first}")
        self._items(named, query, one)

    def figures(self) -> RepeatFigures:
        """Decides between identifiers and numbers inside a list, and returns the figures."""
        self._findings.of("item-id-texts", self._ids_again)
        self._findings.of("numbered-items", self._ids_again)
        differing = self._ids_differing
        if differing >= _ENOUGH and differing > _MOSTLY * self._ids_again:
            self._findings.drop("item-id-texts")
        else:
            self._findings.drop("numbered-items")
        return RepeatFigures(len(self._texts.queries), len(self._texts.items), len(self._item_ids))

    def _items(self, named: str, query: str, one: RankingList) -> None:
        own: dict[str, int] = {}
        for i, (item_id, item) in enumerate(zip(one.item_ids, one.items, strict=True)):
            text = normalise(item)
            key = text_key(text)
            j = own.setdefault(text, i)
            if j != i:
                both = f"{named}, items {one.item_ids[j]} and {item_id}: {item!r}"
                self._findings.add("repeated-item", both)
                if one.labels is not None and one.labels[i] != one.labels[j]:
                    labels = f"{one.labels[j]:g} and {one.labels[i]:g}"
                    self._findings.add("conflicting-labels", f"{both}, labels {labels}")
            known = self._item_ids.first(text_key(item_id), key)
            if known is not None:
                self._ids_again += 1
                if known != key:
                    self._ids_differing += 1
                    for code in ("item-id-texts", "numbered-items"):
                        self._findings.add(code, f"{named}, item {item_id}: {item!r}")
            self._texts.items.first(key)
            if one.labels is not None and one.labels[i] > 0:
                self._texts.positives.first(text_key(query, text))

    def _named(self, place: int) -> str:
        return f"{list(self._files)[place >> 40]} {place & (1 << 40) - 1}"
