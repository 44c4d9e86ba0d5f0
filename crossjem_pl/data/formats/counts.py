"""What a reader did besides reading: merges, repeats, and what it left behind."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ReadCounts"]


@dataclass
class ReadCounts:
    """Filled while lists are read; complete when the iterator is exhausted.

    Args:
        lists: lists that were read.
        items: items in them.
        merged_items: items of a list that were an exact repeat (same text, label and score) and became one.
        merged_queries: texts of a `query` list that repeated another one of the same row and became one.
        repeated_queries: rows without a `query_id` whose query text had occurred before; their ids end in -2,
            -3...
        cut_items: items below the `depth` that was asked for.
        judgements_outside: judged (query, item) pairs of the qrels that are in no list.
        not_carried: columns of the source that no list holds, in order of appearance.
    """

    lists: int = 0
    items: int = 0
    merged_items: int = 0
    merged_queries: int = 0
    repeated_queries: int = 0
    cut_items: int = 0
    judgements_outside: int = 0
    not_carried: list[str] = field(default_factory=list)

    def leave(self, column: str) -> None:
        """Notes a column that is not carried."""
        if column not in self.not_carried:
            self.not_carried.append(column)
