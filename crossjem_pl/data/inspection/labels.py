"""Labels: how they are distributed, which lists teach nothing, and whether the stored order gives them away."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crossjem_pl.data.distributions import IntegerCounts, NumberSample, Summary
from crossjem_pl.data.inspection.problems import EXAMPLES, Findings
from crossjem_pl.lists import RankingList

__all__ = ["LabelFigures", "LabelInspector"]

_ENOUGH = 10
_ALWAYS = 0.9


@dataclass(frozen=True)
class LabelFigures:
    """Args:
    lists: lists with labels.
    labels: distribution of the labels, None without any.
    counts: (label, items) ascending, or None where there are more than 50 distinct labels.
    positives: items with a label above 0 a list.
    first_positive: mean rank of the first positive in the stored order, over lists with positives and others.
    first_positive_random: what that mean would be if the items stood in random order.
    positives_first: lists whose positives stand before all other items.
    """

    lists: int
    labels: Summary | None
    counts: tuple[tuple[float, int], ...] | None
    positives: Summary | None
    first_positive: float | None
    first_positive_random: float | None
    positives_first: int


class LabelInspector:
    """Looks at the labels of lists. A label above 0 is positive.

    "positives-first" is found if the positives lead at least 9 in 10 of the lists that have both kinds, there
    are at least 10 of those, and a random order would lead to less than half as many.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._labels = NumberSample()
        self._positives = IntegerCounts()
        self._lists = self._without = self._mixed = self._leading = 0
        self._first = self._first_random = self._leading_random = 0.0
        self._without_at: list[str] = []
        self._leading_at: list[str] = []

    def look(self, where: str, one: RankingList) -> None:
        named = f"{where}: {one.query_id}"
        if one.labels is None:
            self._without += 1
            if len(self._without_at) < EXAMPLES:
                self._without_at.append(named)
            return
        self._lists += 1
        self._labels.add(one.labels)
        items = len(one)
        ranks = [rank for rank, label in enumerate(one.labels, 1) if label > 0]
        self._positives.add([len(ranks)])
        if not ranks:
            self._findings.add("no-positive", named)
        elif len(ranks) == items:
            if items > 1:
                self._findings.add("all-positive", named)
        else:
            self._mixed += 1
            self._first += ranks[0]
            self._first_random += (items + 1) / (len(ranks) + 1)
            self._leading_random += 1 / math.comb(items, len(ranks))
            if ranks[-1] == len(ranks):
                self._leading += 1
                if len(self._leading_at) < EXAMPLES:
                    self._leading_at.append(named)

    def figures(self) -> LabelFigures:
        """Adds what only the whole tells to the findings and returns the figures."""
        if self._lists:
            self._findings.add_all("labels-missing", self._without_at, self._without)
            for code in ("no-positive", "all-positive"):
                self._findings.of(code, self._lists)
        mixed = self._mixed
        telling = self._leading >= _ALWAYS * mixed and self._leading_random < _ALWAYS / 2 * mixed
        if mixed >= _ENOUGH and telling:
            self._findings.add_all("positives-first", self._leading_at, self._leading)
            self._findings.of("positives-first", mixed)
        distinct = self._labels.distinct
        return LabelFigures(
            lists=self._lists,
            labels=self._labels.summary(),
            counts=None if distinct is None else tuple(sorted(distinct.items())),
            positives=self._positives.summary(),
            first_positive=self._first / mixed if mixed else None,
            first_positive_random=self._first_random / mixed if mixed else None,
            positives_first=self._leading,
        )
