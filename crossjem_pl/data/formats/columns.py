"""The `query, docs, labels` columns of sentence-transformers' listwise cross-encoder losses."""

from __future__ import annotations

from crossjem_pl.data.formats.content import ContentIds, list_from_texts
from crossjem_pl.data.formats.counts import ReadCounts
from crossjem_pl.data.formats.rows import Row
from crossjem_pl.lists import RankingList

__all__ = ["OPTIONAL", "REQUIRED", "columns_list"]

REQUIRED = ("query", "docs")
OPTIONAL = ("query_id", "labels", "scores")


def columns_list(
    row: Row, labels_field: str | None, scores_field: str | None, ids: ContentIds, counts: ReadCounts
) -> RankingList:
    """The list of one row: `query` a text, `docs` N texts, `labels` and `scores` N numbers or missing.

    Item ids are `content_id`s; the query id is the row's `query_id` if it has one, else from the text. A
    field with a name of the user's own must be there in every row.

    Raises:
        ValueError: names file, line and field, for malformed values or one text with two labels or scores.
    """
    docs = row.texts("docs")

    def numbers(field: str | None, standard: str) -> list[float] | None:
        if field is None or (field == standard and not row.has(field)):
            return None
        return row.numbers(field, len(docs), "docs")

    labels, scores = numbers(labels_field, "labels"), numbers(scores_field, "scores")
    query = row.text("query")
    query_id = row.identifier("query_id") if row.has("query_id") else ids.query_id(query, counts)
    return list_from_texts(row, "docs", query_id, query, docs, labels, scores, counts)
