"""AUC, thresholds and accuracies against brute force and hand-worked values, and as metrics of a run."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossjem_pl.evaluation.classification import Pairs
from crossjem_pl.evaluation.metrics import evaluate_run

Lists = list[list[tuple[float, float]]]


def random_lists(count: int, seed: int) -> Lists:
    """(score, label) pairs: lists of 1 to 15 items with ties, some all positive, some all negative."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        levels, labels = (
            rng.choice([1, 3, 10, 1000]),
            rng.choice([(0.0,), (1.0,), (0.0, 1.0), (0.0, 0.0, 0.0, 2.0), (-1.0, 1.0)]),
        )
        shift = rng.randrange(20)
        made.append(
            [(rng.randrange(levels) / 8 + shift, rng.choice(labels)) for _ in range(rng.randint(1, 15))]
        )
    return made


def tensors(lists: Lists) -> tuple[Tensor, Tensor, Tensor]:
    """Padded; the padding holds what would be the best score and a positive label."""
    width = max(len(one) for one in lists)
    scores, labels = torch.full((len(lists), width), 1e9), torch.full((len(lists), width), 9.0)
    mask = torch.zeros(len(lists), width, dtype=torch.bool)
    for row, one in enumerate(lists):
        scores[row, : len(one)] = torch.tensor([score for score, _ in one])
        labels[row, : len(one)] = torch.tensor([label for _, label in one])
        mask[row, : len(one)] = True
    return scores, labels, mask


def brute_auc(pairs: list[tuple[float, float]]) -> float:
    """Share of (positive, negative) pairs in the right order, ties half; every pair is looked at."""
    good = [score for score, label in pairs if label >= 1]
    bad = [score for score, label in pairs if label < 1]
    wins = sum((p > n) + (p == n) / 2 for p in good for n in bad)
    return wins / (len(good) * len(bad)) if good and bad else math.nan


def pairs_of(lists: Lists, rel: float = 1) -> Pairs:
    return Pairs(*tensors(lists), rel=rel)


def test_auc_is_the_share_of_pairs_in_order() -> None:
    lists = random_lists(200, seed=0)
    pairs = pairs_of(lists)
    expected = [brute_auc(one) for one in lists]
    assert 20 < sum(map(math.isnan, expected)) < 150
    assert pairs.auc_per_list().dtype == torch.float64
    assert pairs.auc_per_list().tolist() == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert pairs.auc() == pytest.approx(brute_auc([pair for one in lists for pair in one]), abs=1e-12)


@pytest.mark.parametrize(
    ("lists", "per_list", "pooled"),
    [
        ([[(0.8, 1), (0.6, 0), (0.4, 1), (0.4, 0)]], [0.625], 0.625),  # (1 + 1 + 0 + 1/2) / 4
        ([[(1.0, 1), (0.0, 0)], [(11.0, 1), (10.0, 0)]], [1, 1], 0.75),  # scores of different levels
        ([[(math.inf, 1), (-math.inf, 0), (0, 0), (0, 1)]], [0.875], 0.875),
        ([[(90.0, 1), (80.0, 0)]], [1], 1),  # whose sigmoids tie
        ([[(1.0, 1), (0.0, 1)], [(1.0, 1)]], [math.nan] * 2, math.nan),
    ],
)
def test_auc_worked_by_hand(lists: Lists, per_list: list[float], pooled: float) -> None:
    pairs = pairs_of(lists)
    assert pairs.auc_per_list().tolist() == pytest.approx(per_list, nan_ok=True)
    assert pairs.auc() == pytest.approx(pooled, nan_ok=True)


def brute_accuracies(one: list[tuple[float, float]], keep: float) -> tuple[int, int, int, int]:
    good = sorted((score for score, label in one if label >= 1), reverse=True)
    bad = [score for score, label in one if label < 1]
    if not good:
        return 0, 0, 0, 0
    limit = next(s for n, s in enumerate(good, 1) if n >= keep * len(good) - 1e-9)
    return sum(s >= limit for s in good), len(good), sum(s < limit for s in bad), len(bad)


@pytest.mark.parametrize("keep", [0.05, 0.5, 0.7, 0.8, 1.0])
def test_accuracies_at_recall_against_brute_force(keep: float) -> None:
    lists = random_lists(200, seed=1)
    pairs = pairs_of(lists)
    found = pairs.accuracies(pairs.recall_thresholds(keep))
    expected = [brute_accuracies(one, keep) for one in lists]
    counts = [count.tolist() for kind in ("positive", "negative") for count in found[kind]]
    assert list(zip(*counts, strict=True)) == expected
    kept, positives, dropped, negatives = (sum(column) for column in zip(*expected, strict=True))
    assert found["positive"].pooled == pytest.approx(kept / positives)
    assert found["positive"].pooled >= keep
    assert found["overall"].pooled == pytest.approx((kept + dropped) / (positives + negatives))
    shares = [d / n if n else math.nan for _, _, d, n in expected]
    assert found["negative"].per_list.tolist() == pytest.approx(shares, nan_ok=True)


def test_the_lowest_label_of_a_positive() -> None:
    levels = pairs_of([[(3.0, 0), (2.0, 1), (1.0, 2), (0.0, 1)]], rel=2)
    dropped = levels.accuracies(levels.recall_thresholds(1.0))["negative"].pooled
    assert dropped == levels.auc() == pytest.approx(1 / 3)


def kept_share(lists: Lists, threshold: float) -> float:
    good = [one for one in ([score for score, label in one if label >= 1] for one in lists) if one]
    return sum(sum(s >= threshold for s in one) / len(one) for one in good) / len(good)


def precision(lists: Lists, threshold: float) -> float:
    kept = [label >= 1 for one in lists for score, label in one if score >= threshold]
    return sum(kept) / len(kept)


@pytest.mark.parametrize("keep", [0.01, 0.5, 0.8, 1.0])
def test_the_highest_threshold_that_keeps_the_share(keep: float) -> None:
    lists = random_lists(60, seed=4)
    found = pairs_of(lists).threshold_at_recall(keep)
    every = {score for one in lists for score, _ in one}
    higher, lower = [score for score in every if score > found], [score for score in every if score < found]
    assert kept_share(lists, found) >= keep - 1e-9
    assert kept_share(lists, sorted(higher)[1]) < keep
    # half-way between two scores, so that rounding decides nothing
    assert not lower or found == (min(higher) + max(lower)) / 2


@pytest.mark.parametrize("wanted", [0.5, 0.6, 0.8])
def test_the_lowest_threshold_with_the_precision(wanted: float) -> None:
    lists = [[(score + 9 * (label >= 1), label) for score, label in one] for one in random_lists(60, seed=5)]
    found = pairs_of(lists).threshold_at_precision(wanted)
    assert precision(lists, found) >= wanted - 1e-9
    for score in {score for one in lists for score, _ in one}:
        if score < found - 1e-6:
            assert precision(lists, score - 1e-6) < wanted


def test_bad_input_is_named() -> None:
    scores, labels, mask = tensors([[(4.0, 0), (3.0, 1), (3.0, 0)]])
    pairs = Pairs(scores, labels, mask)
    with pytest.raises(ValueError, match=r"no threshold has a precision of 0\.5; the best of any is 0\.3333"):
        pairs.threshold_at_precision(0.5)
    with pytest.raises(ValueError, match="no item has a label of at least 2"):
        Pairs(scores, labels, mask, rel=2).threshold_at_recall()
    for function in (pairs.recall_thresholds, pairs.threshold_at_recall, pairs.threshold_at_precision):
        with pytest.raises(ValueError, match="must be above 0 and at most 1"):
            function(1.5)


NAMES = ["RR", "AUC", "PosAcc@80", "NegAcc@80", "Acc@80", "NegAcc(threshold='run')@80", "AUC(rel=2)"]


def as_run(lists: Lists) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    run = {f"q{q:04}": {f"d{i}": score for i, (score, _) in enumerate(one)} for q, one in enumerate(lists)}
    qrels = {
        f"q{q:04}": {f"d{i}": int(label) for i, (_, label) in enumerate(one)} for q, one in enumerate(lists)
    }
    return run, qrels


def test_a_run_has_values_per_query_and_over_all_pairs() -> None:
    lists = random_lists(100, seed=2)
    found = evaluate_run(*as_run(lists), NAMES)
    pairs = pairs_of(lists)
    own = pairs.accuracies(pairs.recall_thresholds())
    shares = {"PosAcc@80": own["positive"], "NegAcc@80": own["negative"], "Acc@80": own["overall"]}
    for name, values in {"AUC": pairs.auc_per_list(), **{n: s.per_list for n, s in shares.items()}}.items():
        assert found.per_query[name].tolist() == pytest.approx(values.tolist(), nan_ok=True)
        assert found.means[name] == pytest.approx(values.nanmean().item())
        assert found.undefined[name] == values.isnan().sum()
    assert found.pooled == {
        "AUC": pairs.auc(),
        **{name: share.pooled for name, share in shares.items()},
        "NegAcc(threshold='run')@80": pairs.accuracies(pairs.threshold_at_recall())["negative"].pooled,
        "AUC(rel=2)": pairs_of(lists, rel=2).auc(),
    }


def test_items_that_are_not_judged_are_negatives_and_missing_queries_count_0() -> None:
    run = {"a": {"x": 2.0, "y": 1.0, "z": 3.0}, "unjudged": {"x": 1.0}}
    found = evaluate_run(run, {"a": {"x": 1, "gone": 1}, "b": {"x": 1}}, ["AUC", "NegAcc@100"])
    assert found.per_query["AUC"].tolist() == [0.5, 0]
    assert found.pooled == {"AUC": 0.5, "NegAcc@100": 0.5}
    assert (found.missing, found.unjudged) == (("b",), ("unjudged",))


def test_what_is_not_defined_is_left_out_and_written_as_null(tmp_path: Path) -> None:
    run, qrels = as_run([[(2.0, 1), (1.0, 0)], [(2.0, 0), (0.0, 0)]])
    evaluate_run(run, qrels, ["RR@10", "AUC", "Acc@80"]).write(tmp_path)
    table = (tmp_path / "metrics.md").read_text()
    assert "| AUC | 1.0000 | 0.8333 |" in table
    assert "1 of them have no AUC and are left out of its mean." in table
    stored = json.loads((tmp_path / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert stored["per_query"]["q0001"] == {"RR@10": 0.0, "AUC": None, "Acc@80": None}
    names = ["AUC", "NegAcc@80", "NegAcc(threshold='run')@80"]
    nothing = evaluate_run({"q": {"a": 1.0}}, {"q": {"a": 0}}, names)
    assert all(math.isnan(nothing.means[name]) and math.isnan(nothing.pooled[name]) for name in names)
    assert "| AUC | undefined | undefined |" in nothing.to_markdown()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NegAcc", "NegAcc@80"),
        ("Acc@0", "keep=0"),
        ("PosAcc@101", "keep=101"),
        ("NegAcc@0.8", r"keep=0\.8"),
        ("NegAcc(threshold='list')@80", "threshold='list'"),
        ("AUC@10", "cutoff"),
    ],
)
def test_bad_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_run({"q": {"a": 1.0}}, {"q": {"a": 1}}, [name])
