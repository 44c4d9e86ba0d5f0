"""What simulated users do with the first items of a ranking: clicks, good clicks and quick-backs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from crossjem_pl.data.simulator import click_probability, quick_back_probability
from crossjem_pl.evaluation.metrics import rank_items
from crossjem_pl.lists import RankingList

__all__ = ["ClickMetrics", "click_metrics"]


@dataclass(frozen=True)
class ClickMetrics:
    """What `click_metrics` found; rates over all queries together, NaN where there is nothing to count.

    Args:
        k: items shown per query at the most.
        per_query: one row per list (index `query_id`, in the order of the lists), per impression of the query:
            `shown` items, and `clicks`, `good_clicks` and `quick_backs` on them, float64.
        missing: lists that the run does not hold: nothing is shown for them.
        unknown: queries of the run without a list. They count nowhere.
    """

    k: int
    per_query: pd.DataFrame
    missing: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def rates(self) -> dict[str, float]:
        """Clicks and good clicks (those that are no quick-backs) per shown item, and the share of quick-backs.

        The last is the figure of the CROSS-JEM paper's A/B test ("users who close the ad quickly, indicating
        non-relevance", appendix G).
        """
        pairs = {"click_rate": ("clicks", "shown"), "good_click_rate": ("good_clicks", "shown")}
        pairs["quick_back_rate"] = ("quick_backs", "clicks")
        totals = self.per_query.sum()
        return {n: float(totals[a] / totals[b]) if totals[b] else math.nan for n, (a, b) in pairs.items()}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: the rates (None where not defined), k, number of queries, the two lists of ids."""
        rates = {name: None if math.isnan(rate) else rate for name, rate in self.rates.items()}
        ids = {"missing": list(self.missing), "unknown": list(self.unknown)}
        return {"k": self.k, **rates, "queries": len(self.per_query), **ids}

    def to_markdown(self) -> str:
        """A table of the rates, and a line for queries that are missing or unknown."""
        names = ("clicks per shown item", "good clicks per shown item", "quick-backs per click")
        rows = [f"| {name} | {rate:.4f} |" for name, rate in zip(names, self.rates.values(), strict=True)]
        shown = f"{len(self.per_query)} queries, {self.per_query['shown'].mean():.1f} items shown on average."
        lines = [f"| simulated clicks on the first {self.k} | rate |", "| --- | ---: |", *rows, "", shown]
        if self.missing:
            lines.append(f"{len(self.missing)} of them are missing from the run: nothing is shown for them.")
        if self.unknown:
            lines.append(f"{len(self.unknown)} queries of the run have no list and are left out.")
        return "\n".join(lines) + "\n"


def click_metrics(
    run: Mapping[str, Mapping[str, float]], lists: Iterable[RankingList], k: int = 10
) -> ClickMetrics:
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

    Raises:
        ValueError: for k below 1, no lists, a query with two lists, an item of the run that its list lacks, lists
            that share no query with the run, a list without scores or with one outside [0, 1]; names the list.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    rows: dict[str, tuple[float, float, float]] = {}
    for ranking_list in lists:
        query = ranking_list.query_id
        if query in rows:
            raise ValueError(f"list {query!r} occurs more than once")
        relevance = _relevance_of_shown(ranking_list, run.get(query, {}), k)
        clicks = [click_probability(r) for r in relevance]
        back = sum(click * quick_back_probability(r) for click, r in zip(clicks, relevance, strict=True))
        rows[query] = (len(relevance), sum(clicks), back)
    if not rows:
        raise ValueError("there are no lists")
    missing = tuple(query for query in rows if not run.get(query))
    if len(missing) == len(rows):
        raise ValueError(f"the run and the lists share no query: {missing[0]!r} is a list without a ranking")
    table = pd.DataFrame.from_dict(
        rows, orient="index", columns=["shown", "clicks", "quick_backs"], dtype=float
    )
    table.insert(2, "good_clicks", table["clicks"] - table["quick_backs"])
    table.index.name = "query_id"
    return ClickMetrics(k, table, missing, tuple(sorted(query for query in run if query not in rows)))


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
