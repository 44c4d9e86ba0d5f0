"""The lists that a run ranks worst."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from crossjem_pl.evaluation.measures import rank_items
from crossjem_pl.evaluation.report.contents import HardList
from crossjem_pl.evaluation.results import RankedItem

__all__ = ["hardest_lists"]


def hardest_lists(
    scores: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, int]],
    values: pd.Series,
    texts: tuple[Mapping[str, str], Mapping[str, Mapping[str, str]]],
    count: int,
    top: int = 5,
) -> tuple[HardList, ...]:
    """Lists with the lowest metric, among equals those whose first relevant item is furthest down.

    Lists without a relevant candidate are left out: no ranking of them is better than another.

    Args:
        scores: query id -> item id -> score of the run.
        qrels: query id -> item id -> grade.
        values: the metric by query id.
        texts: query id -> text, and query id -> item id -> text, as far as they are known.
        count: how many lists.
        top: how many of the first items to show.
    """
    firsts: dict[str, tuple[int, list[str]]] = {}
    for query, items in scores.items():
        if query not in values.index:
            continue
        order = rank_items(items)
        rank = next((i for i, item in enumerate(order, 1) if qrels[query].get(item, 0) >= 1), None)
        if rank is not None:
            firsts[query] = (rank, order)
    chosen = sorted(firsts, key=lambda query: (float(values[query]), -firsts[query][0], query))[:count]
    query_texts, item_texts = texts

    def item(query: str, item_id: str) -> RankedItem:
        return RankedItem(item_id, item_texts.get(query, {}).get(item_id), int(qrels[query].get(item_id, 0)))

    return tuple(
        HardList(
            query,
            query_texts.get(query),
            float(values[query]),
            tuple(item(query, one) for one in firsts[query][1][:top]),
            (firsts[query][0], item(query, firsts[query][1][firsts[query][0] - 1])),
            sum(qrels[query].get(one, 0) >= 1 for one in firsts[query][1]),
            len(firsts[query][1]),
        )
        for query in chosen
    )
