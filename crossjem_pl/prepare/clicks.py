"""What a row of a click log says: the query, the keyword, and whether the click was a good one.

The CROSS-JEM paper, appendix C: a pair is a good click when the user clicked on the ad in response to the query
"and did not close the ad quickly". The paper gives no time. The default here, 30 seconds, is the usual one for
satisfied clicks (Kim et al., "Modeling dwell time to predict click-level satisfaction", WSDM 2014).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, Literal

from crossjem_pl.data.formats import content_id
from crossjem_pl.data.rows import Row
from crossjem_pl.prepare.hashing import one_line

__all__ = ["MIN_DWELL", "Columns", "Event", "GoodClick", "read_event"]

MIN_DWELL = 30.0
_TRUE = frozenset(("1", "true", "t", "yes", "y"))
_FALSE = frozenset(("0", "false", "f", "no", "n"))


@dataclass(frozen=True)
class Columns:
    """Names of the columns. None for an optional one: its standard name (the field's) if the log has it."""

    query: str = "query"
    keyword: str = "keyword"
    clicked: str = "clicked"
    dwell: str | None = None
    quick_back: str | None = None
    score: str | None = None
    query_id: str | None = None
    keyword_id: str | None = None

    def resolve(self, found: Collection[str], where: str) -> Columns:
        """The columns of a log with these names: an optional column that it does not have is None.

        Raises:
            ValueError: a column that was named is missing, or two fields name one column.
        """
        names: dict[str, Any] = {}
        for field in fields(self):
            name = getattr(self, field.name)
            if name is None:
                name = field.name if field.name in found else None
            elif name not in found:
                raise ValueError(
                    f"{where}: no column {name!r} for the {field.name}; found: {', '.join(found)}"
                )
            names[field.name] = name
        resolved = Columns(**names)
        used = resolved.used()
        twice = next((name for name in used if used.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{where}: column {twice!r} is named for two things")
        return resolved

    def used(self) -> list[str]:
        """The names that are not None."""
        return [name for name in (getattr(self, field.name) for field in fields(self)) if name is not None]

    def unused(self) -> frozenset[str]:
        """Standard names of the optional columns that the log does not have."""
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) is None)


@dataclass(frozen=True)
class GoodClick:
    """When a click is a good one.

    Args:
        min_dwell: seconds from which a click is good, where only the dwell time is known.
        missing: what a click is of which neither a quick back nor a dwell time is known.
        any_click: every click is good.
    """

    min_dwell: float = MIN_DWELL
    missing: Literal["error", "good", "bad"] = "error"
    any_click: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """One row. Ids are `content_id`s of the texts where the log has no ids; `score` is None where it is empty."""

    query_id: str
    query: str
    keyword_id: str
    keyword: str
    clicked: bool
    good: bool
    score: float | None


def read_event(row: Row, columns: Columns, rule: GoodClick) -> Event | None:
    """The event of a row; None if its query or keyword is blank.

    Raises:
        ValueError: names file, line and field of a value that is not what it should be.
    """
    query, keyword = _text(row, columns.query), _text(row, columns.keyword)
    clicked = _flag(row, columns.clicked)
    if clicked is None:
        raise row.error(columns.clicked, "is empty; expected whether the keyword's ad was clicked")
    good = clicked and _good(row, columns, rule)
    score = _number(row, columns.score)
    if not query or not keyword:
        return None
    query_id = _identifier(row, columns.query_id) or content_id(query)
    keyword_id = _identifier(row, columns.keyword_id) or content_id(keyword)
    return Event(query_id, query, keyword_id, keyword, clicked, good, score)


def _good(row: Row, columns: Columns, rule: GoodClick) -> bool:
    """Whether a click is a good one: the quick-back flag decides, and the dwell time where there is no flag."""
    if rule.any_click:
        return True
    quick_back = _flag(row, columns.quick_back)
    if quick_back is not None:
        return not quick_back
    dwell = _number(row, columns.dwell)
    if dwell is not None:
        if dwell < 0:
            raise row.error(str(columns.dwell), f"expected seconds, got {dwell:g}")
        return dwell >= rule.min_dwell
    if rule.missing == "error":
        field = columns.dwell or columns.quick_back or columns.clicked
        raise row.error(
            field,
            "the click has neither a quick-back flag nor a dwell time; say what such clicks are with "
            "--missing-dwell good or --missing-dwell bad",
        )
    return rule.missing == "good"


def _empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _text(row: Row, field: str) -> str:
    """One line of text, "" if there is none."""
    return "" if _empty(row.values.get(field)) else one_line(row.text(field))


def _identifier(row: Row, field: str | None) -> str | None:
    if field is None:
        return None
    if _empty(row.values.get(field)):
        raise row.error(field, "is empty")
    return row.identifier(field).strip()


def _flag(row: Row, field: str | None) -> bool | None:
    value = None if field is None else row.values.get(field)
    if field is None or _empty(value):
        return None
    if isinstance(value, bool):
        return value
    word = f"{value:g}" if isinstance(value, (int, float)) else str(value).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise row.error(field, f"expected true or false (or 1 and 0, yes and no), got {value!r}")


def _number(row: Row, field: str | None) -> float | None:
    value = None if field is None else row.values.get(field)
    if field is None or _empty(value):
        return None
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise row.error(field, f"expected a finite number, got {value!r}")
    return number
