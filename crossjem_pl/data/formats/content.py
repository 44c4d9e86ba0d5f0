"""Lists from rows that carry texts but no ids: ids from the content, exact repeats merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from crossjem_pl.data.formats.counts import ReadCounts
from crossjem_pl.data.formats.rows import Row
from crossjem_pl.hashing import content_id
from crossjem_pl.lists import RankingList

__all__ = ["ContentIds", "content_id", "list_from_texts"]


class ContentIds:
    """Query ids of rows without one: `content_id` of the query, with -2, -3, ... for repeats."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def query_id(self, query: str, counts: ReadCounts) -> str:
        """The id of the next list with this query text."""
        identifier = content_id(query)
        self._seen[identifier] += 1
        times = self._seen[identifier]
        if times == 1:
            return identifier
        counts.repeated_queries += 1
        return f"{identifier}-{times}"


def list_from_texts(
    row: Row,
    field: str,
    query_id: str,
    query: str,
    texts: Sequence[str],
    labels: Sequence[float] | None,
    scores: Sequence[float] | None,
    counts: ReadCounts,
) -> RankingList:
    """One list whose item ids are `content_id`s. An exact repeat of an item is merged with it and counted.

    Raises:
        ValueError: names file, line and `field`, if one text has two labels or two scores, or there is no
            text.
    """
    first: dict[str, int] = {}
    for i, text in enumerate(texts):
        j = first.setdefault(text, i)
        for name, values in (("label", labels), ("score", scores)):
            if values is not None and values[i] != values[j]:
                raise row.error(
                    field,
                    f"positions {j} and {i} hold the same text, {text!r}, with {name}s {values[j]:g} and "
                    f"{values[i]:g}",
                )
    if not first:
        raise row.error(field, "the list has no items")
    counts.merged_items += len(texts) - len(first)
    keep = list(first.values())
    return RankingList(
        query_id,
        query,
        tuple(content_id(text) for text in first),
        tuple(first),
        None if labels is None else tuple(labels[i] for i in keep),
        None if scores is None else tuple(scores[i] for i in keep),
    )
