"""What simulated users do with the first items of a ranking: clicks, good clicks and quick-backs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from crossjem_pl.data.simulator import click_probability, quick_back_probability
from crossjem_pl.evaluation.metrics import rank_items
from crossjem_pl.lists import RankingList

__all__ = ["click_metrics"]


def click_metrics(
    run: Mapping[str, Mapping[str, float]], lists: Iterable[RankingList], k: int = 10
) -> dict[str, Any]:
    """Shows the first k items of each ranking to the simulator's users.

    With r_i the relevance of the item at rank i, a user clicks with p(r_i) and comes back at once from a click
    with b(r_i) (`click_probability`, `quick_back_probability`). Expected per impression, in closed form:

        clicks = sum over i <= k of p(r_i),  quick-backs = sum over i <= k of p(r_i) b(r_i),
        good clicks = clicks - quick-backs.

    Users look at every shown item, so the order inside the first k plays no part, and a run that holds fewer
    items, one that was filtered for instance, shows fewer.

    Args:
        run: query id -> item id -> score; items rank as in `evaluate_run`.
        lists: lists whose scores are the true relevance in [0, 1], as the simulator writes them.
        k: items shown.

    Returns:
        Over all queries together: `click_rate` and `good_click_rate` per shown item, `quick_back_rate` per click
        (the figure of the CROSS-JEM paper's A/B test, appendix G); `k`, `queries`
        and the items `shown` per query; `missing`: lists that the run does not hold, for which nothing is shown, and
        `unknown`: queries of the run without a list, which count nowhere.

    Raises:
        ValueError: for k below 1, no lists, a query with two lists, an item of the run that its list lacks, lists
            that share no query with the run, a list without scores or with one outside [0, 1]; names the list.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    shown: dict[str, list[float]] = {}
    for ranking_list in lists:
        query = ranking_list.query_id
        if query in shown:
            raise ValueError(f"list {query!r} occurs more than once")
        shown[query] = _relevance_of_shown(ranking_list, run.get(query, {}), k)
    if not shown:
        raise ValueError("there are no lists")
    missing = [query for query in shown if not run.get(query)]
    if len(missing) == len(shown):
        raise ValueError(f"the run and the lists share no query: {missing[0]!r} is a list without a ranking")
    items = [relevance for of_list in shown.values() for relevance in of_list]
    clicks = sum(map(click_probability, items))
    back = sum(click_probability(relevance) * quick_back_probability(relevance) for relevance in items)
    return {
        "k": k,
        "click_rate": clicks / len(items),
        "good_click_rate": (clicks - back) / len(items),
        "quick_back_rate": back / clicks,
        "queries": len(shown),
        "shown": len(items) / len(shown),
        "missing": missing,
        "unknown": sorted(query for query in run if query not in shown),
    }


def _relevance_of_shown(ranking_list: RankingList, scores: Mapping[str, float], k: int) -> list[float]:
    """True relevance of the items that are shown."""
    name = f"list {ranking_list.query_id!r}"
    if ranking_list.scores is None:
        raise ValueError(f"{name}, field 'scores': clicks need the items' relevance, it has none")
    for i, score in enumerate(ranking_list.scores):
        if not 0 <= score <= 1:
            raise ValueError(f"{name}, field 'scores', position {i}: {score} is outside [0, 1]")
    relevance = dict(zip(ranking_list.item_ids, ranking_list.scores, strict=True))
    first = rank_items(scores)[:k]
    unknown = next((item for item in first if item not in relevance), None)
    if unknown is not None:
        raise ValueError(f"{name} has no item {unknown!r}, which the run ranks")
    return [relevance[item] for item in first]
