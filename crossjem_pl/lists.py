"""`RankingList`: one query with its candidate items. The unit of data everywhere in the package."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crossjem_pl.hashing import content_id

__all__ = ["PairGroups", "RankingList", "as_identifier", "as_number", "as_text", "counted", "shown"]

_FLOAT32_MAX = 3.4028234663852886e38


def shown(value: Any) -> str:
    """The value as messages show it: its `repr`, at most 80 characters."""
    text = repr(value[:80] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def counted(count: int, noun: str) -> str:
    """The number with its noun: "1 list", "2,000 lists"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def as_text(value: Any) -> str:
    """The value; a ValueError says so if it is no text, blank, or holds half a surrogate pair."""
    if not isinstance(value, str) or not value or value.isspace():
        raise ValueError(f"expected a non-empty string, got {shown(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"half a surrogate pair, which is no text: {shown(value)}") from None
    return value


def as_identifier(value: Any) -> str:
    """A text that is not blank, or the decimal digits of an integer; a ValueError says so if it is neither."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else as_text(value)


def as_number(value: Any) -> float:
    """The number as a float; a ValueError says so if it is none, not finite, or too large for float32."""
    try:  # numpy's numbers have __float__ too
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= _FLOAT32_MAX:
        large = ", too large for float32" if math.isfinite(number) else ""
        raise ValueError(f"expected a finite number, got {shown(value)}{large}")
    return number


@dataclass(frozen=True, slots=True)
class RankingList:
    """A query with its N candidate items (a "single-query listwise batch").

    Args:
        query_id: identifier of the query, non-empty.
        query: text of the query, not blank.
        item_ids: N identifiers, non-empty, unique inside the list.
        items: N item texts, not blank.
        labels: N graded relevance labels (finite, any scale, higher is better) or None.
        scores: N teacher scores or None. By convention probabilities in [0, 1], as in the paper; any finite number is
            accepted, and the loss that consumes them says what it expects.

    Raises:
        ValueError: names the list and the field, for an empty list, an empty query or item, duplicate or empty ids,
            unequal lengths, or a label or score that is not a finite number.
    """

    query_id: str
    query: str
    item_ids: tuple[str, ...]
    items: tuple[str, ...]
    labels: tuple[float, ...] | None = None
    scores: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("item_ids", "items", "labels", "scores"):
            value = getattr(self, name)
            if value is None and name in ("labels", "scores"):
                continue
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise self._error(name, f"expected a sequence, got {type(value).__name__}")
            object.__setattr__(self, name, tuple(value))
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
                f"list {query_id!r}, field 'items': expected a sequence of texts, got the text {shown(items)}"
            )
        return cls(query_id, query, tuple(str(i) for i in range(len(items))), tuple(items))

    @classmethod
    def from_pairs(cls, pairs: Iterable[Sequence[Any]]) -> list[RankingList]:
        """Lists of (query, item), (query, item, label) or (query, item, label, score) rows, see `PairGroups`.

        >>> pairs = [("red", "red shoe", 1), ("blue", "sea", 1), ("red", "sea", 0)]
        >>> [(one.query, one.items, one.labels) for one in RankingList.from_pairs(pairs)]
        [('red', ('red shoe', 'sea'), (1.0, 0.0)), ('blue', ('sea',), (1.0,))]

        Raises:
            ValueError: names the pair, counted from 1, and the field.
        """
        groups = PairGroups()
        for number, pair in enumerate(pairs, 1):
            if isinstance(pair, str) or not 2 <= len(pair) <= 4:
                raise ValueError(f"pair {number}: expected query, item, label and score, got {shown(pair)}")
            groups.add(f"pair {number}", *pair)
        return [ranking_list for _, ranking_list in groups]

    @classmethod
    def from_pandas(
        cls,
        frame: Any,
        query: str = "query",
        item: str = "item",
        label: str = "label",
        score: str = "score",
        query_id: str = "query_id",
        item_id: str = "item_id",
    ) -> list[RankingList]:
        """Lists of a pandas frame with a row for each (query, item), see `PairGroups`.

        The arguments name columns: those of the texts have to be there, the others are used where they are.

        Raises:
            ValueError: names the row, counted from 1, and the field; or the column that is missing.
        """
        for name in (query, item):
            if name not in frame.columns:
                raise ValueError(f"no column {name!r}; the frame has {', '.join(map(str, frame.columns))}")
        fields = ("query", "item", "label", "score", "query_id", "item_id")
        names = zip(fields, (query, item, label, score, query_id, item_id), strict=True)
        columns = {field: frame[name].tolist() for field, name in names if name in frame.columns}
        groups = PairGroups()
        for number, values in enumerate(zip(*columns.values(), strict=True), 1):
            groups.add(f"row {number}", **dict(zip(columns, values, strict=True)))
        return [ranking_list for _, ranking_list in groups]

    def select(self, positions: Sequence[int]) -> RankingList:
        """The same query with the items at `positions`, in that order."""
        return replace(self, **self._picked(positions))

    def _picked(self, positions: Sequence[int]) -> dict[str, Any]:
        columns = {name: getattr(self, name) for name in ("item_ids", "items", "labels", "scores")}
        return {name: tuple(v[i] for i in positions) for name, v in columns.items() if v is not None}

    def content(self) -> bytes:
        """All fields as bytes, for digests."""
        texts = "\0".join((self.query_id, self.query, *self.item_ids, *self.items)).encode()
        numbers = (array("d", values or ()).tobytes() for values in (self.labels, self.scores))
        return b"\0".join((texts, *numbers))

    def _error(self, name: str, problem: str) -> ValueError:
        return ValueError(f"list {shown(self.query_id)}, field {name!r}: {problem}")

    def _check_texts(self) -> None:
        if not self.items:
            raise self._error("items", "the list has no items")
        if len(self.item_ids) != len(self.items):
            raise self._error("item_ids", f"{len(self.item_ids)} ids for {len(self.items)} items")
        for name in ("query_id", "query"):
            try:
                as_text(getattr(self, name))
            except ValueError as error:
                raise self._error(name, str(error)) from None
        for name in ("item_ids", "items"):
            self._each(name, as_text)
        if len(set(self.item_ids)) != len(self.item_ids):
            repeated = next(i for n, i in enumerate(self.item_ids) if i in self.item_ids[:n])
            raise self._error("item_ids", f"id {shown(repeated)} occurs more than once")

    def _check_numbers(self, name: str) -> None:
        values = getattr(self, name)
        if values is None:
            return
        if len(values) != len(self.items):
            raise self._error(name, f"{len(values)} values for {len(self.items)} items")
        object.__setattr__(self, name, self._each(name, as_number))

    def _each(self, name: str, convert: Callable[[Any], Any]) -> tuple[Any, ...]:
        """The values of a field, each converted; an error names list, field and position."""
        converted: list[Any] = []
        try:
            converted.extend(map(convert, getattr(self, name)))
        except ValueError as error:
            raise self._error(name, f"position {len(converted)}: {error}") from None
        return tuple(converted)


@dataclass(slots=True)
class _Group:
    """The pairs of one query: by item id the text, label, score and where the pair was given."""

    query: str
    where: str
    items: dict[str, tuple[str, Any, Any, str]] = field(default_factory=dict)


class PairGroups:
    """Groups (query, item) pairs into ranking lists, in memory; the pairs of one query may stand anywhere.

    Iterating gives (where the query was first given, its list), queries and items in the order of their first pair;
    after the ValueError of a query whose pairs make no list, the next one. Without ids, `content_id` of the texts
    stands in. A pair that is given again with the same label and score is merged with the first and counted in
    `merged`.
    """

    def __init__(self) -> None:
        self.merged = 0
        self._groups: dict[str, _Group] = {}

    def __iter__(self) -> Iterator[tuple[str, RankingList]]:
        return map(self._made, self._groups.items())

    def add(
        self,
        where: str,
        query: str,
        item: str,
        label: Any = None,
        score: Any = None,
        query_id: str | int | None = None,
        item_id: str | int | None = None,
    ) -> bool:
        """Takes one pair; whether it is the first of its query. `where` is its place for messages: "a.csv, line 3".

        Label and score are finite numbers, or None in all pairs of the query; ids of None are made from the texts.

        Raises:
            ValueError: names the place and the field: a query id with another text than before, or a pair that was
                given before with another text, label or score.
        """
        for name, text in (("query", query), ("item", item)):
            _checked(where, name, as_text, text)
        identifier = (
            content_id(query) if query_id is None else _checked(where, "query_id", as_identifier, query_id)
        )
        first = identifier not in self._groups
        group = self._groups.setdefault(identifier, _Group(query, where))
        if group.query != query:
            raise ValueError(
                f"{where}, field 'query': query {shown(identifier)} has the text {shown(query)} here and "
                f"{shown(group.query)} in {group.where}"
            )
        key = content_id(item) if item_id is None else _checked(where, "item_id", as_identifier, item_id)
        if key not in group.items:
            group.items[key] = (item, label, score, where)
            return first
        *before, place = group.items[key]
        for name, new, old in zip(("item", "label", "score"), (item, label, score), before, strict=True):
            if new != old:
                raise ValueError(
                    f"{where}, field {name!r}: query {shown(query)}, item {shown(item)} has {shown(new)} here and "
                    f"{shown(old)} in {place}"
                )
        self.merged += 1
        return False

    @staticmethod
    def _made(entry: tuple[str, _Group]) -> tuple[str, RankingList]:
        query_id, group = entry
        texts, labels, scores, places = zip(*group.items.values(), strict=True)
        columns: dict[str, Any] = {}
        for name, values in (("labels", labels), ("scores", scores)):
            missing = [value is None for value in values]
            if not any(missing):
                columns[name] = values
            elif not all(missing):
                raise ValueError(
                    f"{places[missing.index(True)]}, field {name[:-1]!r}: is missing, but other pairs of the query "
                    f"{shown(group.query)} have one: give every pair of a query one, or none"
                )
        try:
            return group.where, RankingList(query_id, group.query, tuple(group.items), texts, **columns)
        except ValueError as error:
            raise ValueError(f"{group.where}: {error}") from None


def _checked(where: str, name: str, convert: Callable[[Any], str], value: Any) -> str:
    """The converted value; an error names the place and the field."""
    try:
        return convert(value)
    except ValueError as error:
        raise ValueError(f"{where}, field {name!r}: {error}") from None
