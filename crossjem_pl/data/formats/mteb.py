"""MTEB's re-ranking rows: `query, positive, negative` (Muennighoff et al., 2023, arXiv 2210.07316)."""

from __future__ import annotations

from collections.abc import Iterator

from crossjem_pl.data.formats.content import ContentIds, content_id, list_from_texts
from crossjem_pl.data.formats.counts import ReadCounts
from crossjem_pl.data.formats.rows import Row
from crossjem_pl.lists import RankingList

__all__ = ["OPTIONAL", "REQUIRED", "mteb_lists"]

REQUIRED = ("query", "positive", "negative")
OPTIONAL = ("query_id",)


def mteb_lists(row: Row, ids: ContentIds, counts: ReadCounts) -> Iterator[RankingList]:
    """The lists of one row: positives with label 1, negatives with label 0; one list for each query text.

    The items stand in the order of their ids: always the same order, which tells nothing of the labels, while
    the row's own would put every relevant item first.

    Each of the three fields is a text or a list of texts. Item ids are `content_id`s. The query id is the
    row's `query_id` if it has one (with -2, -3, ... for the further texts of a `query` list), else from the
    text.

    Raises:
        ValueError: names file, line and field, for malformed values, a text that is both positive and
            negative, or a row with neither.
    """
    queries = row.one_or_more_texts("query")
    positive = row.one_or_more_texts("positive")
    negative = row.one_or_more_texts("negative")
    both = set(positive) & set(negative)
    if both:
        raise row.error("negative", f"text is both positive and negative: {min(both)!r}")
    if not queries:
        raise row.error("query", "the list of queries is empty")
    if not positive and not negative:
        raise row.error("positive", "the row has no positive and no negative texts")
    distinct = list(dict.fromkeys(queries))
    counts.merged_queries += len(queries) - len(distinct)
    given = row.identifier("query_id") if row.has("query_id") else None
    texts = sorted(positive + negative, key=content_id)
    relevant = set(positive)
    labels = [float(text in relevant) for text in texts]
    for n, query in enumerate(distinct, 1):
        numbered = given if n == 1 else f"{given}-{n}"
        query_id = ids.query_id(query, counts) if given is None else str(numbered)
        yield list_from_texts(row, "positive", query_id, query, texts, labels, None, counts)
