"""Simulated clicks on the first items of a ranking: closed form, drawn sessions, errors."""

from __future__ import annotations

from typing import Any

import pytest

from crossjem_pl.data.simulator import click_probability, quick_back_probability, simulate
from crossjem_pl.evaluation.clicks import click_metrics
from crossjem_pl.lists import RankingList

ONE = RankingList("q", "red shoes", ("a", "b", "c"), ("x", "y", "z"), scores=(1.0, 0.5, 0.0))


def test_values_worked_by_hand() -> None:
    # p(1) = 0.005 + 0.995 * 0.75 = 0.75125, p(0.5) = 0.005 + 0.995 * 0.75 / 16; b(1) = 0.05, b(0.5) = 0.425
    found = click_metrics({"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, [ONE], k=2)
    clicks = 0.75125 + 0.051640625
    back = 0.75125 * 0.05 + 0.051640625 * 0.425
    assert found["click_rate"] == pytest.approx(clicks / 2)
    assert found["good_click_rate"] == pytest.approx((clicks - back) / 2)
    assert found["quick_back_rate"] == pytest.approx(back / clicks)


def test_the_better_ranking_has_fewer_quick_backs() -> None:
    lists = list(simulate(50, 30, seed=0))
    truth = {one.query_id: dict(zip(one.item_ids, one.scores or (), strict=True)) for one in lists}
    worst = {query: {item: -score for item, score in items.items()} for query, items in truth.items()}
    good, bad = click_metrics(truth, lists), click_metrics(worst, lists)
    assert good["quick_back_rate"] < 0.2 < 0.5 < bad["quick_back_rate"]
    assert good["good_click_rate"] > 10 * bad["good_click_rate"]
    everything, again = (click_metrics(run, lists, k=30) for run in (truth, worst))
    assert everything["quick_back_rate"] == pytest.approx(again["quick_back_rate"])
    filtered = {q: {i: s for i, s in items.items() if s >= 0.8} for q, items in truth.items()}
    assert click_metrics(filtered, lists)["quick_back_rate"] < good["quick_back_rate"]


def test_ties_go_to_the_higher_id_and_what_is_not_shared_is_named() -> None:
    other = RankingList("p", "boots", ("a",), ("x",), scores=(0.3,))
    found = click_metrics({"q": {"a": 1.0, "b": 1.0, "c": 1.0}, "zz": {"a": 1.0}}, [other, ONE], k=1)
    assert found["click_rate"] == click_probability(0.0)
    assert found["quick_back_rate"] == pytest.approx(quick_back_probability(0.0))
    assert (found["missing"], found["unknown"], found["queries"], found["shown"]) == (["p"], ["zz"], 2, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lists": [RankingList("q", "red", ("a",), ("x",))]}, "list 'q', field 'scores': clicks need"),
        (
            {"lists": [RankingList("q", "red", ("a",), ("x",), scores=(1.5,))]},
            r"list 'q', field 'scores', position 0: 1\.5 is outside",
        ),
        ({"run": {"q": {"strange": 1.0}}}, "list 'q' has no item 'strange'"),
        ({"lists": [ONE, ONE]}, "'q' occurs more than once"),
        ({"run": {"p": {"a": 1.0}}}, "share no query: 'q'"),
        ({"lists": []}, "no lists"),
        ({"k": 0}, "k must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        click_metrics(**{"run": {"q": {"a": 1.0}}, "lists": [ONE]} | change)
