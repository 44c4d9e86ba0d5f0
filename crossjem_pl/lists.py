"""`RankingList`: one query with its candidate items. The unit of data everywhere in the package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["RankingList"]


@dataclass(frozen=True, slots=True)
class RankingList:
    """A query with its N candidate items (a "single-query listwise batch").

    Args:
        query_id: identifier of the query, non-empty.
        query: text of the query, not blank.
        item_ids: N identifiers, non-empty, unique inside the list.
        items: N item texts, not blank.
        labels: N graded relevance labels (finite, any scale, higher is better) or None.
        scores: N teacher scores or None. By convention probabilities in [0, 1], as in the paper; any finite
            number is accepted, and the loss that consumes them says what it expects.

    Raises:
        ValueError: names the list and the field, for an empty list, an empty query or item, duplicate or
            empty ids, unequal lengths, or a label or score that is not a finite number.
    """

    query_id: str
    query: str
    item_ids: tuple[str, ...]
    items: tuple[str, ...]
    labels: tuple[float, ...] | None = None
    scores: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for field in ("item_ids", "items", "labels", "scores"):
            value = getattr(self, field)
            if value is None and field in ("labels", "scores"):
                continue
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise self._error(field, f"expected a sequence, got {type(value).__name__}")
            object.__setattr__(self, field, tuple(value))
        self._check_texts()
        self._check_numbers("labels")
        self._check_numbers("scores")

    def __len__(self) -> int:
        return len(self.items)

    @classmethod
    def from_texts(cls, query: str, items: Sequence[str], query_id: str = "query") -> RankingList:
        """A list from bare texts; the item ids are the positions "0", "1", ..."""
        if isinstance(items, str):  # a sequence of characters to Python
            raise ValueError(
                f"list {query_id!r}, field 'items': expected a sequence of texts, got the text {items!r}"
            )
        return cls(query_id, query, tuple(str(i) for i in range(len(items))), tuple(items))

    def select(self, positions: Sequence[int]) -> RankingList:
        """The same query with the items at `positions`, in that order."""

        def pick(values: tuple[float, ...] | None) -> tuple[float, ...] | None:
            return None if values is None else tuple(values[i] for i in positions)

        return replace(
            self,
            item_ids=tuple(self.item_ids[i] for i in positions),
            items=tuple(self.items[i] for i in positions),
            labels=pick(self.labels),
            scores=pick(self.scores),
        )

    def _error(self, field: str, problem: str) -> ValueError:
        return ValueError(f"list {self.query_id!r}, field {field!r}: {problem}")

    def _check_texts(self) -> None:
        for field, value in (("query_id", self.query_id), ("query", self.query)):
            if not isinstance(value, str) or not value.strip():
                raise self._error(field, f"expected a non-empty string, got {value!r}")
        if not self.items:
            raise self._error("items", "the list has no items")
        if len(self.item_ids) != len(self.items):
            raise self._error("item_ids", f"{len(self.item_ids)} ids for {len(self.items)} items")
        for field in ("item_ids", "items"):
            for i, value in enumerate(getattr(self, field)):
                if not isinstance(value, str) or not value.strip():
                    raise self._error(field, f"position {i}: expected a non-empty string, got {value!r}")
        if len(set(self.item_ids)) != len(self.item_ids):
            seen: set[str] = set()
            twice = next(i for i in self.item_ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise self._error("item_ids", f"id {twice!r} occurs more than once")

    def _check_numbers(self, field: str) -> None:
        values = getattr(self, field)
        if values is None:
            return
        if len(values) != len(self.items):
            raise self._error(field, f"{len(values)} values for {len(self.items)} items")
        for i, value in enumerate(values):
            # bool is an int; numpy floats are accepted because they register as float or define __float__
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise self._error(field, f"position {i}: expected a number, got {value!r}") from None
            if isinstance(value, str) or not math.isfinite(number):
                raise self._error(field, f"position {i}: expected a finite number, got {value!r}")
        object.__setattr__(self, field, tuple(float(v) for v in values))
