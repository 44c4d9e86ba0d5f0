"""AUC and accuracies against brute force and hand-worked values, and as metrics of a run."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossjem_pl.data.formats import write_qrels, write_run
from crossjem_pl.evaluation import compare_runs
from crossjem_pl.evaluation.classification import (
    accuracies_at,
    accuracies_at_recall,
    auc_roc,
    auc_roc_per_list,
    recall_thresholds,
)
from crossjem_pl.evaluation.measures import evaluate_run
from crossjem_pl.evaluation.metrics import compute, tie_order

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


# --- AUC ---------------------------------------------------------------------------------------------------


def test_auc_is_the_share_of_pairs_in_order() -> None:
    lists = random_lists(200, seed=0)
    batch = tensors(lists)
    found = auc_roc_per_list(*batch)
    assert found.dtype == torch.float64
    expected = [brute_auc(one) for one in lists]
    assert 20 < sum(map(math.isnan, expected)) < 150
    assert found.tolist() == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert float(auc_roc(*batch)) == pytest.approx(
        brute_auc([pair for one in lists for pair in one]), abs=1e-12
    )


def test_auc_worked_by_hand() -> None:
    # positives 0.8 and 0.4; negatives 0.6, 0.4: (1 + 1 + 0 + 1/2) / 4
    batch = tensors([[(0.8, 1), (0.6, 0), (0.4, 1), (0.4, 0)]])
    assert float(auc_roc(*batch)) == auc_roc_per_list(*batch).item() == 0.625


def test_auc_takes_infinite_scores_and_asks_for_comparable_ones() -> None:
    ends = tensors([[(math.inf, 1), (-math.inf, 0), (0, 0), (0, 1)], [(math.inf, 0), (math.inf, 1)]])
    assert auc_roc_per_list(*ends).tolist() == [0.875, 0.5]
    shifted = tensors([[(1.0, 1), (0.0, 0)], [(11.0, 1), (10.0, 0)]])
    assert auc_roc_per_list(*shifted).tolist() == [1, 1]
    assert float(auc_roc(*shifted)) == 0.75


def test_auc_of_one_class_is_undefined() -> None:
    batch = tensors([[(1.0, 1), (0.0, 1)], [(1.0, 1)]])
    assert auc_roc_per_list(*batch).isnan().all()
    assert auc_roc(*batch).isnan()


def test_auc_of_many_pairs_is_exact() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (300, 1000), generator=generator)
    scores = torch.rand(300, 1000, generator=generator) + labels
    mask = torch.ones_like(labels, dtype=torch.bool)
    assert float(auc_roc(scores, labels, mask)) == 1, "every positive is above 1, every negative below"
    assert float(auc_roc(-scores, labels, mask)) == 0
    assert float(auc_roc(scores * 0, labels, mask)) == 0.5


# --- accuracies --------------------------------------------------------------------------------------------


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
    found = accuracies_at_recall(*tensors(lists), keep)
    expected = [brute_accuracies(one, keep) for one in lists]
    counts = (found.kept_positives, found.positives, found.dropped_negatives, found.negatives)
    assert list(zip(*(c.tolist() for c in counts), strict=True)) == expected
    assert found.excluded == sum(positives == 0 for _, positives, _, _ in expected)
    kept, positives, dropped, negatives = (sum(column) for column in zip(*expected, strict=True))
    assert found.pooled("positive") == pytest.approx(kept / positives)
    assert found.pooled("positive") >= keep
    assert found.pooled("negative") == pytest.approx(dropped / negatives)
    assert found.pooled("overall") == pytest.approx((kept + dropped) / (positives + negatives))
    shares = [d / n for _, _, d, n in expected if n]
    assert found.mean("negative") == pytest.approx(sum(shares) / len(shares))
    assert found.kept.tolist() == [k + n - d for k, _, d, n in expected]


def test_accuracies_worked_by_hand() -> None:
    # 5 positives, 80% are 4: the threshold is 0.4, which a negative reaches too
    one = [(0.9, 1.0), (0.8, 1), (0.7, 0), (0.6, 1), (0.4, 1), (0.4, 0), (0.3, 0), (0.2, 1), (0.1, 0)]
    batch = tensors([one, [(5.0, 0), (4.0, 0)]])
    assert recall_thresholds(*batch).tolist() == pytest.approx([0.4, math.nan], nan_ok=True)
    found = accuracies_at_recall(*batch)
    assert [found.per_list(kind)[0].item() for kind in ("positive", "negative", "overall")] == [
        0.8,
        0.5,
        6 / 9,
    ]
    assert [found.per_list(kind)[1].isnan().item() for kind in ("positive", "negative", "overall")] == [
        True
    ] * 3
    assert found.excluded == 1
    assert found.pooled("negative") == found.mean("negative") == 0.5


def test_a_share_of_whole_items_is_not_rounded_up() -> None:
    batch = tensors([[(float(n), 1.0) for n in range(10)]])
    for tenths in range(1, 11):
        assert recall_thresholds(*batch, tenths / 10).item() == 10 - tenths


def test_one_threshold_for_all_counts_every_list() -> None:
    batch = tensors([[(2.0, 1), (1.0, 0)], [(3.0, 0), (1.5, 0), (0.0, 0)]])
    found = accuracies_at(*batch, 1.5)
    assert (found.excluded, found.kept.tolist()) == (0, [1, 2])
    assert found.pooled("negative") == 0.5
    assert found.mean("negative") == pytest.approx((1 + 1 / 3) / 2)
    assert found.mean("positive") == 1
    other = accuracies_at(*batch, torch.tensor([1.5, math.nan]))
    assert (other.excluded, other.negatives.tolist()) == (1, [1, 0])


def test_labels_and_levels_of_relevance() -> None:
    batch = tensors([[(3.0, 0), (2.0, 1), (1.0, 2), (0.0, 1)]])
    assert accuracies_at_recall(*batch, 1.0, rel=2).pooled("negative") == pytest.approx(1 / 3)
    assert float(auc_roc(*batch, rel=2)) == pytest.approx(1 / 3)


def test_bad_input_is_named() -> None:
    scores, labels, mask = tensors([[(1.0, 1), (0.0, 0)]])
    with pytest.raises(ValueError, match=r"\[lists, items\]"):
        auc_roc(scores, labels[:, :1], mask)
    with pytest.raises(ValueError, match="bool"):
        auc_roc_per_list(scores, labels, mask.long())
    with pytest.raises(ValueError, match="list 0 of the batch has a NaN"):
        auc_roc(scores * math.nan, labels, mask)
    with pytest.raises(ValueError, match=r"threshold must be a number or \[1\], got \(2,\)"):
        accuracies_at(scores, labels, mask, torch.zeros(2))
    for keep in (0, -1, 1.1, math.nan):
        with pytest.raises(ValueError, match="keep must be above 0 and at most 1"):
            accuracies_at_recall(scores, labels, mask, keep)


# --- as metrics of a run -----------------------------------------------------------------------------------

NAMES = ["RR", "AUC", "PosAcc@80", "NegAcc@80", "Acc@80", "NegAcc(threshold='run')@80", "AUC(rel=2)"]


def as_run(lists: Lists) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    run = {f"q{q:04}": {f"d{i}": score for i, (score, _) in enumerate(one)} for q, one in enumerate(lists)}
    qrels = {
        f"q{q:04}": {f"d{i}": int(label) for i, (_, label) in enumerate(one)} for q, one in enumerate(lists)
    }
    return run, qrels


def test_a_run_has_values_per_query_and_over_all_pairs() -> None:
    lists = random_lists(100, seed=2)
    run, qrels = as_run(lists)
    found = evaluate_run(run, qrels, NAMES)
    batch = tensors(lists)
    own = accuracies_at_recall(*batch)
    expected = {"AUC": auc_roc_per_list(*batch), "PosAcc@80": own.per_list("positive")}
    expected |= {"NegAcc@80": own.per_list("negative"), "Acc@80": own.per_list("overall")}
    for name, values in expected.items():
        assert found.per_query[name].tolist() == pytest.approx(values.tolist(), nan_ok=True)
        assert found.means[name] == pytest.approx(values.nanmean().item())
        assert found.undefined[name] == values.isnan().sum()
    assert found.pooled["AUC"] == float(auc_roc(*batch))
    assert found.pooled["NegAcc@80"] == own.pooled("negative")
    assert found.pooled["AUC(rel=2)"] == float(auc_roc(*batch, rel=2))
    assert found.pooled["NegAcc(threshold='run')@80"] != found.pooled["NegAcc@80"]
    assert set(found.pooled) == set(NAMES) - {"RR"}
    assert "RR" not in found.undefined


def test_items_that_are_not_judged_are_negatives_and_missing_queries_count_0() -> None:
    run = {"a": {"x": 2.0, "y": 1.0, "z": 3.0}, "unjudged": {"x": 1.0}}
    found = evaluate_run(run, {"a": {"x": 1, "gone": 1}, "b": {"x": 1}}, ["AUC", "NegAcc@100"])
    assert found.per_query["AUC"].tolist() == [0.5, 0]
    assert found.pooled == {"AUC": 0.5, "NegAcc@100": 0.5}
    assert found.means["AUC"] == 0.25
    assert (found.missing, found.unjudged) == (("b",), ("unjudged",))


def test_what_is_written_says_what_is_left_out(tmp_path: Path) -> None:
    run, qrels = as_run([[(2.0, 1), (1.0, 0)], [(2.0, 0), (0.0, 0)]])
    found = evaluate_run(run, qrels, ["RR@10", "AUC", "Acc@80"])
    found.write(tmp_path)
    table = (tmp_path / "metrics.md").read_text()
    assert "| metric | mean over queries | all pairs |" in table
    assert "| RR@10 | 0.5000 |  |" in table
    assert "| AUC | 1.0000 | 0.8333 |" in table
    assert "1 of them have no AUC and are left out of its mean." in table
    stored = json.loads((tmp_path / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert stored["per_query"]["q0001"] == {"RR@10": 0.0, "AUC": None, "Acc@80": None}
    assert stored["undefined"] == {"AUC": 1, "Acc@80": 1}
    assert stored["pooled"]["AUC"] == pytest.approx(5 / 6)


def test_judgements_without_a_positive_leave_all_undefined() -> None:
    names = ["AUC", "NegAcc@80", "NegAcc(threshold='run')@80"]
    found = evaluate_run({"q": {"a": 1.0}}, {"q": {"a": 0}}, names)
    assert all(math.isnan(found.means[name]) and math.isnan(found.pooled[name]) for name in names)
    assert "| AUC | undefined | undefined |" in found.to_markdown()
    assert found.to_dict()["means"] == dict.fromkeys(names)


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


def test_monitoring_says_that_it_has_no_such_metric() -> None:
    scores, labels, mask = tensors([[(1.0, 1), (0.0, 0)]])
    with pytest.raises(ValueError, match="'AUC' is for evaluate_run only"):
        compute(["AUC"], scores, labels, mask, tie_order([["a", "b"]]))


def test_systems_are_compared_by_them(tmp_path: Path) -> None:
    rng = random.Random(3)
    labels = [[float(n < 3) for n in range(10)] for _ in range(30)]
    for name, noise in (("good", 0.3), ("bad", 3.0)):
        run, qrels = as_run([[(label + rng.gauss(0, noise), label) for label in one] for one in labels])
        write_run(run, tmp_path / f"{name}.trec")
        write_qrels(qrels, tmp_path / "qrels")
    runs = [tmp_path / "bad.trec", tmp_path / "good.trec"]
    found = compare_runs(runs, names=["AUC", "NegAcc@80"], qrels=tmp_path / "qrels")
    for result in found.systems[1].metrics.values():
        assert result.difference is not None
        assert result.difference.significant
        assert result.difference.mean > 0.2
