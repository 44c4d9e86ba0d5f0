"""Metrics of runs: the tie rule for every provider, missing and unjudged queries, what is written."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import ir_measures
import pytest
import pytrec_eval

from crossjem_pl.evaluation.measures import evaluate_run, rank_items

QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"a": 0}, "q3": {"x": 1}}


def test_missing_queries_count_as_zero_and_are_reported() -> None:
    found = evaluate_run({"q1": {"a": 2, "b": 1}, "q3": {}, "zz": {"a": 1.0}}, QRELS, ["MRR@10", "R@5"])
    assert found.missing == ("q2", "q3")
    assert found.unjudged == ("zz",)
    assert found.per_query.index.tolist() == ["q1", "q2", "q3"]
    assert found.means == {"MRR@10": pytest.approx(1 / 3), "R@5": pytest.approx(0.5 / 3)}


def test_means_are_those_of_ir_measures_when_nothing_ties() -> None:
    rng = random.Random(0)
    qrels = {f"q{q}": {f"d{d}": rng.choice((0, 0, 1, 2)) for d in range(20)} for q in range(30)}
    qrels["q3"] = dict.fromkeys(qrels["q3"], 0)
    run = {
        q: {d: rng.random() for d in rng.sample(sorted(labels), 12)}
        for q, labels in qrels.items()
        if q != "q7"
    }
    names = ["RR@10", "AP@10", "nDCG@10", "nDCG", "P@5", "R@5", "Success@3"]
    expected = ir_measures.calc_aggregate([ir_measures.parse_measure(n) for n in names], qrels, run)
    means = evaluate_run(run, qrels, names).means
    assert means == pytest.approx({str(m): v for m, v in expected.items()}, abs=1e-12)


def test_all_providers_see_trec_evals_ranking() -> None:
    run = {"q": {"a": 1.0, "b": 1.0, "c": 1.0, "é": 1.0}}
    for item, rank in (("é", 1), ("c", 2), ("b", 3), ("a", 4)):
        qrels = {"q": {item: 1}}
        found = evaluate_run(run, qrels, ["RR", "RR@10"]).means
        reference = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(run)["q"]["recip_rank"]
        assert found["RR"] == found["RR@10"] == pytest.approx(1 / rank) == reference
    assert rank_items({"a": 1.0, "b": 2.0, "c": 1.0}) == ["b", "c", "a"]


def test_written_files_hold_the_result(tmp_path: Path) -> None:
    found = evaluate_run({"q1": {"a": 2, "b": 1}, "zz": {"a": 1.0}}, QRELS, ["RR@10"])
    found.write(tmp_path / "new")
    stored = json.loads((tmp_path / "new/metrics.json").read_text())
    assert stored["means"] == {"RR@10": pytest.approx(1 / 3)}
    assert stored["per_query"]["q1"] == {"RR@10": 1.0}
    assert stored["queries"] == 3
    assert stored["missing"] == ["q2", "q3"]
    table = (tmp_path / "new/metrics.md").read_text()
    assert "| RR@10 | 0.3333 |" in table
    assert "2 of them are missing" in table
    assert "1 queries of the run are not judged" in table


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="hold no query"):
        evaluate_run({"q": {"a": 1.0}}, {}, ["RR"])
    with pytest.raises(ValueError, match="share no query"):
        evaluate_run({"q": {"a": 1.0}}, QRELS, ["RR"])
    with pytest.raises(ValueError, match=r"query 'q1', item 'b'.*not finite"):
        evaluate_run({"q1": {"a": 1.0, "b": math.nan}}, QRELS, ["RR"])
    with pytest.raises(ValueError, match=r"query 'q1', item 'a'.*not finite"):
        evaluate_run({"q1": {"a": 1e39}}, QRELS, ["RR"])
    with pytest.raises(ValueError, match=r"'q1', item 'a': 0.5 is not a whole number"):
        evaluate_run({"q1": {"a": 1.0}}, {"q1": {"a": 0.5}}, ["RR"])  # type: ignore[dict-item]
