"""Texts of the training lists that stand in other lists as well."""

from __future__ import annotations

from dataclasses import dataclass, field

from crossjem_pl.data.inspection.hashes import HashMap, normalise, text_key
from crossjem_pl.data.inspection.problems import Findings
from crossjem_pl.lists import RankingList

__all__ = ["LeakageFigures", "LeakageInspector", "TrainingTexts"]


@dataclass
class TrainingTexts:
    """Hashes of normalised texts, 16 bytes each.

    Args:
        queries: of queries.
        items: of items.
        positives: of (query, item with a label above 0).
    """

    queries: HashMap = field(default_factory=HashMap)
    items: HashMap = field(default_factory=HashMap)
    positives: HashMap = field(default_factory=HashMap)


@dataclass(frozen=True)
class LeakageFigures:
    """Args:
    queries: lists whose query is in the training lists.
    positives: positive items that are there with the same query.
    items: distinct item texts of these lists that are in the training lists.
    distinct_items: distinct item texts of these lists.
    """

    queries: int
    positives: int
    items: int
    distinct_items: int

    @property
    def item_share(self) -> float:
        """Share of the item texts that were seen in training."""
        return self.items / self.distinct_items if self.distinct_items else 0.0


class LeakageInspector:
    """Compares lists with those that a model is trained on, by normalised text."""

    def __init__(self, findings: Findings, training: TrainingTexts) -> None:
        self._findings, self._training = findings, training
        self._items = HashMap()
        self._lists = self._positives = self._seen = 0

    def look(self, where: str, one: RankingList) -> None:
        named = f"{where}: {one.query_id}, {one.query!r}"
        query = normalise(one.query)
        self._lists += 1
        leaked = text_key(query) in self._training.queries
        if leaked:
            self._findings.add("leaked-query", named)
        for i, item in enumerate(one.items):
            text = normalise(item)
            key = text_key(text)
            if self._items.first(key) is None:
                self._seen += key in self._training.items
            if one.labels is not None and one.labels[i] > 0:
                self._positives += 1
                if leaked and text_key(query, text) in self._training.positives:
                    self._findings.add("leaked-positive", f"{named}, item {one.item_ids[i]}: {item!r}")

    def figures(self) -> LeakageFigures:
        self._findings.of("leaked-query", self._lists)
        self._findings.of("leaked-positive", self._positives)
        return LeakageFigures(
            self._findings.count("leaked-query"),
            self._findings.count("leaked-positive"),
            self._seen,
            len(self._items),
        )
