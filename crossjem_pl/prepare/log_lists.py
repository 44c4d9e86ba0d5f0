"""Rows of a click log gathered to lists: one query's keywords with their labels and scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from crossjem_pl.data.rows import Row
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.clicks import Event
from crossjem_pl.prepare.hashing import fraction
from crossjem_pl.prepare.log_options import LogOptions

__all__ = ["Sources", "gather", "position", "record"]

Place = tuple[int, int]  # which source, and the number of the row in it


@dataclass(frozen=True)
class Sources:
    """Where rows come from, held once: a record carries two numbers in place of a path."""

    names: dict[str, int] = field(default_factory=dict)

    def place(self, row: Row) -> Place:
        """The two numbers of a row."""
        return self.names.setdefault(f"{row.path}, {row.unit}", len(self.names)), row.number

    def where(self, place: Place) -> str:
        """ "FILE, line 3", for a message."""
        return f"{list(self.names)[place[0]]} {place[1]}"


@dataclass(slots=True)
class _Pair:
    keyword: str
    place: Place
    good: int = 0
    total: float = 0.0
    scores: int = 0


@dataclass(slots=True)
class _Query:
    text: str
    place: Place
    pairs: dict[str, _Pair] = field(default_factory=dict)


def position(query_id: str) -> float:
    """Where a query's list stands among all lists: a hash in [0, 1)."""
    return fraction(query_id, "order")


def record(event: Event, place: Place) -> list[Any]:
    """What is kept of a row until `gather`; plain JSON."""
    return [event.query_id, event.query, event.keyword_id, event.keyword, event.good, event.score, *place]


def gather(
    records: Iterable[Sequence[Any]], options: LogOptions, sources: Sources, left: Counter[str]
) -> Iterator[RankingList]:
    """The lists of records that hold all rows of their queries, in the order of `position`.

    Args:
        records: what `record` made, in any order.
        options: how rows become lists.
        sources: names the rows, for messages.
        left: counts what was gathered and left out.

    Raises:
        ValueError: names the rows where one id has two texts, where one pair has two scores that should agree,
            or where a keyword has no score and another one of its query has.
    """
    queries: dict[str, _Query] = {}
    for query_id, query, keyword_id, keyword, good, score, *numbers in records:
        place = (numbers[0], numbers[1])
        of_query = queries.setdefault(query_id, _Query(query, place))
        if of_query.text != query:
            raise _two_texts(sources, "query_id", query_id, query, place, of_query.text, of_query.place)
        pair = of_query.pairs.get(keyword_id)
        if pair is None:
            pair = of_query.pairs[keyword_id] = _Pair(keyword, place)
        else:
            left["repeated_rows"] += 1
        if pair.keyword != keyword:
            raise _two_texts(sources, "keyword_id", keyword_id, keyword, place, pair.keyword, pair.place)
        pair.good += good
        if score is not None:
            if options.scores == "mean" or not pair.scores:
                pair.total += score
                pair.scores += 1
            elif pair.total != score:
                raise ValueError(
                    f"{sources.where(place)}, field 'score': query {query!r} and keyword {keyword!r} have the score "
                    f"{score:g}, and {pair.total:g} in another row; take their mean with --scores mean"
                )
    for query_id in sorted(queries, key=lambda one: (position(one), one)):
        made = _list(query_id, queries[query_id], options, sources, left)
        if made is not None:
            yield made


def _two_texts(
    sources: Sources, field: str, identifier: str, text: str, place: Place, other: str, first: Place
) -> ValueError:
    return ValueError(
        f"{sources.where(place)}, field {field!r}: id {identifier!r} is of {text!r}, and of {other!r} in "
        f"{sources.where(first)}"
    )


def _list(
    query_id: str, query: _Query, options: LogOptions, sources: Sources, left: Counter[str]
) -> RankingList | None:
    if len(query.pairs) < options.min_items:
        left["short_lists"] += 1
        return None
    pairs = sorted(query.pairs.items())
    labels = tuple(float(pair.good >= options.min_good_clicks) for _, pair in pairs)
    if options.require_click and not any(labels):
        left["unclicked_lists"] += 1
        return None
    scores = None
    if any(pair.scores for _, pair in pairs):
        bare = next((pair for _, pair in pairs if not pair.scores), None)
        if bare is not None:
            raise ValueError(
                f"{sources.where(bare.place)}, field 'score': keyword {bare.keyword!r} of query {query.text!r} "
                "has no score in any row, other keywords of the query have one"
            )
        scores = tuple(pair.total / pair.scores for _, pair in pairs)
    return RankingList(
        query_id,
        query.text,
        tuple(keyword_id for keyword_id, _ in pairs),
        tuple(pair.keyword for _, pair in pairs),
        labels,
        scores,
    )
