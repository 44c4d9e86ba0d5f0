"""The computations behind a report, each by itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crossjem_pl.evaluation.report.buckets import break_down, word_overlap
from crossjem_pl.evaluation.report.calibration import calibrate, observations
from crossjem_pl.evaluation.report.curves import Curve, read_learning_curve, smoothed
from crossjem_pl.evaluation.report.latency import Timed, frontier, nearest_size, read_latency


def table(values: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"a": values, "b": [0.5] * len(values)}, index=[f"q{i}" for i in range(len(values))])


def test_few_values_are_a_bucket_each() -> None:
    per_query = table([0.0, 1.0, 1.0, 0.5])
    found = break_down("words", {"q0": 2, "q1": 1, "q2": 2}, per_query, "RR@10")
    assert [(one.label, one.queries) for one in found.buckets] == [("1", 1), ("2", 2)]
    assert found.left_out == 1
    assert found.buckets[1].means["a"][0] == 0.5
    assert found.buckets[1].means["b"] == (0.5, 0.5, 0.5)


def test_many_values_fall_into_buckets_of_like_size_that_share_no_value() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(1, 40, size=500).tolist()
    found = break_down("words", {f"q{i}": v for i, v in enumerate(values)}, table([1.0] * 500), "RR@10")
    assert len(found.buckets) == 5
    assert sum(one.queries for one in found.buckets) == 500
    assert all(70 < one.queries < 130 for one in found.buckets)
    bounds = [int(part) for one in found.buckets for part in one.label.split("–")]
    assert bounds == sorted(set(bounds))
    assert (bounds[0], bounds[-1]) == (min(values), max(values))


def test_a_value_that_most_lists_have_is_not_split() -> None:
    values = {f"q{i}": 1.0 if i < 90 else float(i) for i in range(100)}
    found = break_down("items", values, table([1.0] * 100), "RR@10")
    assert [(one.label, one.queries) for one in found.buckets] == [("1", 90), ("90–99", 10)]


def test_fractions_are_shown_as_such() -> None:
    values = {"q0": 1.0, "q1": 1.25}
    assert [one.label for one in break_down("x", values, table([1, 0]), "RR@10").buckets] == ["1.00", "1.25"]
    with pytest.raises(ValueError, match="no judged query has a value of 'x'"):
        break_down("x", {"other": 1.0}, table([1, 0]), "RR@10")


def test_word_overlap() -> None:
    assert word_overlap(["red shoes", "Blue SHOES", "shoes"]) == 5 / 3
    assert word_overlap(["one", "two three"]) == 1
    with pytest.raises(ValueError, match="no word"):
        word_overlap(["  "])


def test_calibrated_probabilities_have_a_small_error_and_shifted_ones_their_shift() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=200_000)
    truth = rng.uniform(size=p.size) < p
    found = calibrate(p, truth)
    assert found.items.tolist() == [20_000] * 10
    assert found.error < 0.01
    assert found.share_relevant == pytest.approx(truth.mean())
    assert calibrate(p, np.zeros(p.size)).error == pytest.approx(p.mean())


def test_equal_probabilities_share_a_bin() -> None:
    found = calibrate([0.2] * 7 + [0.9] * 3, [1] + [0] * 6 + [1, 1, 0])
    assert found.items.tolist() == [7, 3]
    assert found.observed == pytest.approx([1 / 7, 2 / 3])
    assert found.error == pytest.approx((abs(0.2 * 7 - 1) + abs(0.9 * 3 - 2)) / 10)
    assert calibrate([0.5], [1]).items.tolist() == [1]
    for values, truth, message in (
        ([], [], "vectors"),
        ([0.1], [0, 1], "one length"),
        ([1.5], [1], "outside"),
    ):
        with pytest.raises(ValueError, match=message):
            calibrate(values, truth)


def test_observations_are_sigmoids_and_unjudged_items_are_not_relevant() -> None:
    scores = {"a": {"x": 0.0, "y": -1000.0, "z": 1000.0}, "unjudged": {"x": 1.0}}
    predicted, relevant = observations(scores, {"a": {"x": 2, "z": 0}})
    assert predicted.tolist() == [0.5, 0.0, 1.0]
    assert relevant.tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="judged"):
        observations(scores, {"b": {}})


def test_curves_of_a_resumed_run_are_put_together(tmp_path: Path) -> None:
    header = "epoch,lr,step,train/loss,val/RR@10\n"
    (tmp_path / "metrics-1.csv").write_text(
        header + "0,,9,1.0,\n0,,19,0.9,\n0,,19,,0.3\n0,,29,9.0,\n0,,39,9.0,\n"
    )
    (tmp_path / "metrics-2.csv").write_text(header + "0,,29,0.8,\n0,,39,7.0,\n")
    (tmp_path / "metrics-10.csv").write_text(header)  # killed before it logged anything
    (tmp_path / "metrics.csv").write_text(header + ",0.1,30,,\n0,,39,0.7,\n0,,49,0.6,\n0,,49,,0.5\n")
    (tmp_path / "metrics-old.csv").write_text("notes")
    found = read_learning_curve(tmp_path)
    assert found is not None
    assert found.files == ("metrics-1.csv", "metrics-2.csv", "metrics.csv")
    assert found.loss is not None
    assert found.loss.steps.tolist() == [9, 19, 29, 39, 49]
    assert found.loss.values.tolist() == [1.0, 0.9, 0.8, 0.7, 0.6]
    assert found.metrics["RR@10"].steps.tolist() == [19, 49]
    assert found.metrics["RR@10"].values.tolist() == [0.3, 0.5]
    assert found.replaced == 3


def test_no_metrics_file_is_no_curve(tmp_path: Path) -> None:
    assert read_learning_curve(tmp_path) is None
    (tmp_path / "metrics.csv").write_text("")
    assert read_learning_curve(tmp_path) is None


def test_smoothing_keeps_constants_and_lines_inside() -> None:
    steps = np.arange(100)
    assert smoothed(Curve(steps, np.full(100, 3.0))).values == pytest.approx(np.full(100, 3.0))
    line = smoothed(Curve(steps, steps.astype(float))).values
    assert line[10:90] == pytest.approx(steps[10:90])
    assert line[0] == pytest.approx(1.0)  # of 0, 1 and 2


def test_frontier() -> None:
    points = {"slow": (50, 0.9), "fast": (5, 0.6), "worse": (60, 0.8), "twin": (5, 0.5), "mid": (20, 0.9)}
    timed = [Timed(name, ms, mean, mean, mean) for name, (ms, mean) in points.items()]
    assert [one.name for one in frontier(timed)] == ["fast", "mid"]


def test_latency_files(tmp_path: Path) -> None:
    path = tmp_path / "latency.json"
    path.write_text(json.dumps({"milliseconds": {"100": {"a": [2.0, 1.0]}, "10": {"b": [1]}}}))
    found = read_latency(path)
    assert list(found.milliseconds) == [10, 100]
    assert found.rankers == ("b", "a")
    assert found.machine is None
    assert [nearest_size(found, n) for n in (1, 31, 32, 5000)] == [10, 10, 100, 100]
    for text, message in (
        ("[", "not JSON"),
        ("{}", "field 'milliseconds'"),
        ('{"milliseconds": {}}', "holds no times"),
        ('{"milliseconds": {"few": {}}}', "size 'few'"),
        ('{"milliseconds": {"5": {"a": []}}}', "ranker 'a': expected a list"),
        ('{"milliseconds": {"5": {"a": [0]}}}', "above 0, got 0"),
        ('{"milliseconds": {"5": {"a": ["1"]}}}', "above 0, got '1'"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_latency(path)
