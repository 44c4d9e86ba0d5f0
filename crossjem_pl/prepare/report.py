"""What was written and what was left out, counted under short names and told in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crossjem_pl.lists import RankingList

__all__ = ["Written", "count_list"]


@dataclass(frozen=True)
class Written:
    """One file or folder of lists. `str()` is the text for a terminal.

    Args:
        path: what was written.
        counts: numbers by name; `lists`, `items` and `positives` (items with a label above 0) always count.
        sentences: what each other count means; names without a sentence are not told.
        state: a remark behind the path, such as "was complete".
    """

    path: Path
    counts: Mapping[str, int]
    sentences: Mapping[str, str] = field(default_factory=dict)
    state: str = ""

    def __str__(self) -> str:
        lists, items, positives = (self.counts.get(name, 0) for name in ("lists", "items", "positives"))
        remark = f" ({self.state})" if self.state else ""
        lines = [f"{self.path}{remark}: {lists} lists, {items} items, {positives} of them relevant"]
        for name, sentence in self.sentences.items():
            if self.counts.get(name, 0):
                lines.append(f"  {self.counts[name]} {sentence}")
        return "\n".join(lines)


def count_list(one: RankingList, counts: dict[str, int]) -> None:
    """Adds a list to `lists`, `items`, `positives` and, if it has none, `lists_without_positive`."""
    positives = sum(label > 0 for label in one.labels or ())
    for name, number in (
        ("lists", 1),
        ("items", len(one)),
        ("positives", positives),
        ("lists_without_positive", int(positives == 0)),
    ):
        counts[name] = counts.get(name, 0) + number
