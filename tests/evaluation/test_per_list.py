"""The vectorised metrics against hand-worked values, against ir-measures, and their invariances."""

from __future__ import annotations

import math
import random
from typing import Any

import ir_measures
import pytest
import torch

from crossjem_pl.evaluation import per_list
from crossjem_pl.evaluation.measures import evaluate_run

NAMES = ["RR", "RR@1", "MRR@10", "AP", "MAP@5", "nDCG", "nDCG@3", "nDCG@10", "P@1", "P@5", "R@2", "R@50"]
GRADED = ["RR(rel=2)@10", "AP(rel=2)@10", "P(rel=2)@5", "R(rel=2)@5"]

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]


def random_run(queries: int, seed: int) -> tuple[Run, Qrels]:
    """Lists of 1 to 20 items: ties, items not judged, judged items outside the list, negative grades, lists
    without a relevant item, ids whose string order is not their number order."""
    rng = random.Random(seed)
    run: Run = {}
    qrels: Qrels = {}
    for query in range(queries):
        ids = [f"{rng.choice('dDé中')}{n}" for n in rng.sample(range(200), rng.randint(1, 20))]
        levels = rng.choice([1, 2, 4, 1000])
        run[f"q{query}"] = {item: rng.randrange(levels) / 7 - 3 for item in ids}
        grades = rng.choice([(0,), (0, 1), (0, 0, 0, 1, 2, 3), (-1, 0, 2)])
        judged = {item: rng.choice(grades) for item in ids if rng.random() < 0.8}
        judged |= {f"outside{n}": rng.choice(grades) for n in range(rng.randint(0, 4))}
        qrels[f"q{query}"] = judged or {ids[0]: 0}
    return run, qrels


def tensors(run: Run, qrels: Qrels) -> tuple[dict[str, Any], torch.Tensor]:
    """The run as padded tensors, padding filled with what would be the best item, and the ideal labels."""
    lists, width = len(run), max(len(items) for items in run.values())
    judged = max(len(labels) for labels in qrels.values())
    scores, labels = torch.full((lists, width), 1e9), torch.full((lists, width), 5)
    mask, ideal = torch.zeros(lists, width, dtype=torch.bool), torch.zeros(lists, judged)
    for row, (query, items) in enumerate(run.items()):
        scores[row, : len(items)] = torch.tensor(list(items.values()))
        labels[row, : len(items)] = torch.tensor([qrels[query].get(item, 0) for item in items])
        mask[row, : len(items)] = True
        ideal[row, : len(qrels[query])] = torch.tensor(list(qrels[query].values()), dtype=torch.float)
    order = per_list.tie_order([list(items) for items in run.values()])
    return {"scores": scores, "labels": labels, "mask": mask, "tie_order": order}, ideal


def test_agrees_with_ir_measures_on_1000_random_lists() -> None:
    run, qrels = random_run(1000, seed=0)
    batch, ideal = tensors(run, qrels)
    expected = evaluate_run(run, qrels, NAMES + GRADED).per_query.loc[list(run)]
    for name, values in per_list.compute(NAMES + GRADED, **batch, ideal_labels=ideal).items():
        reference = torch.tensor(expected[name].to_numpy())
        assert values.shape == (1000,)
        assert values.dtype == torch.float32
        assert 0.02 < reference.mean() < 0.98, name
        torch.testing.assert_close(values.double(), reference, atol=1e-6, rtol=0)


def test_without_ideal_labels_the_candidates_are_the_ideal() -> None:
    run, qrels = random_run(200, seed=1)
    inside = {q: {item: qrels[q].get(item, 0) for item in items} for q, items in run.items()}
    batch, _ = tensors(run, inside)
    expected = evaluate_run(run, inside, NAMES).per_query.loc[list(run)]
    for name, values in per_list.compute(NAMES, **batch).items():
        torch.testing.assert_close(
            values.double(), torch.tensor(expected[name].to_numpy()), atol=1e-6, rtol=0
        )


def test_agrees_with_trec_eval_on_1000_random_runs() -> None:
    """ir-measures gets the raw scores, ties and all; a run's mean counts the queries that it lacks as 0."""
    names = ["RR", "AP", "AP@5", "nDCG", "nDCG@3", "P@5", "R@2", "RR(rel=2)", "AP(rel=2)@10"]
    runs, each = 1000, 4
    run, qrels = random_run(runs * each, seed=4)
    missing = {query for n, query in enumerate(run) if n % 11 == 5}
    held = {query: items for query, items in run.items() if query not in missing}
    batch, ideal = tensors(held, {query: qrels[query] for query in held})
    assert sum(len(set(items.values())) < len(items) for items in held.values()) > 1000, "lists with ties"
    assert sum(max(labels.values()) < 1 for labels in qrels.values()) > 500, "lists without a relevant item"

    measures = {name: ir_measures.parse_measure(name) for name in names}
    reference = {name: dict.fromkeys(run, 0.0) for name in names}
    name_of = {measure: name for name, measure in measures.items()}
    for metric in ir_measures.pytrec_eval.iter_calc(list(measures.values()), qrels, held):
        reference[name_of[metric.measure]][metric.query_id] = metric.value
    reported = evaluate_run(held, qrels, names)
    assert set(reported.missing) == missing
    for name, values in per_list.compute(names, **batch, ideal_labels=ideal).items():
        found = dict.fromkeys(run, 0.0) | dict(zip(held, values.tolist(), strict=True))
        of_run, expected, of_report = (
            torch.tensor(list(value.values()), dtype=torch.float64).view(runs, each).mean(dim=1)
            for value in (found, reference[name], reported.per_query[name].loc[list(run)].to_dict())
        )
        assert expected.std() > 0.05, name
        torch.testing.assert_close(of_run, expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(of_report, expected, atol=1e-6, rtol=0)


def one_list(scores: list[float], labels: list[float]) -> dict[str, Any]:
    return {
        "scores": torch.tensor([scores]),
        "labels": torch.tensor([labels], dtype=torch.float32),
        "mask": torch.ones(1, len(scores), dtype=torch.bool),
        "tie_order": per_list.tie_order([[str(i) for i in range(len(scores))]]),
    }


def test_values_worked_by_hand() -> None:
    batch = one_list([0.1, 0.9, 0.5, 0.3], [3, 0, 1, 0])  # ranking: 0, 1, 0, 3
    found = per_list.compute(["RR", "AP", "AP@2", "nDCG@4", "P@2", "R@2"], **batch)
    assert found["RR"].item() == pytest.approx(1 / 2)
    assert found["AP"].item() == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert found["AP@2"].item() == pytest.approx((1 / 2) / 2)
    assert found["nDCG@4"].item() == pytest.approx(
        (1 / math.log2(3) + 3 / math.log2(5)) / (3 + 1 / math.log2(3)), abs=1e-6
    )
    assert found["P@2"].item() == found["R@2"].item() == 0.5


def test_ties_go_to_the_higher_id() -> None:
    batch = one_list([1.0, 1.0, 1.0], [1, 0, 0])
    assert per_list.reciprocal_rank(**batch).item() == pytest.approx(1 / 3)
    assert per_list.tie_order([["a", "é", "z", "Z"], ["10", "9"]]).tolist() == [[2, 0, 1, 3], [1, 0, 2, 3]]


def test_scores_that_are_equal_in_float32_tie() -> None:
    batch = one_list([1.0, 1.0], [1, 0])
    batch["scores"] = torch.tensor([[1.0 + 1e-9, 1.0]], dtype=torch.float64)
    assert per_list.reciprocal_rank(**batch).item() == 0.5
    qrels = {"q": {"0": 1, "1": 0}}
    assert evaluate_run({"q": {"0": 1.0 + 1e-9, "1": 1.0}}, qrels, ["RR@10"]).means["RR@10"] == 0.5


def test_nothing_depends_on_item_order_or_padding() -> None:
    run, qrels = random_run(50, seed=2)
    rng = random.Random(3)
    shuffled = {q: dict(rng.sample(list(items.items()), len(items))) for q, items in run.items()}
    first, again = (per_list.compute(NAMES, **tensors(r, qrels)[0]) for r in (run, shuffled))
    batch, _ = tensors(run, qrels)
    padded: dict[str, Any] = {
        key: torch.nn.functional.pad(value, (0, 9), value=True if key == "mask" else 7)
        for key, value in batch.items()
    }
    padded["mask"][:, -9:] = False
    for name, values in per_list.compute(NAMES, **padded).items():
        torch.testing.assert_close(values, first[name])
        torch.testing.assert_close(again[name], first[name])


def test_padding_may_hold_nan_and_scores_may_be_minus_infinity() -> None:
    batch = one_list([-math.inf, 0.0, math.nan], [1, 0, 9])
    batch["mask"][0, 2] = False
    assert per_list.reciprocal_rank(**batch).item() == 0.5
    batch["labels"][0, 2] = math.nan
    assert per_list.ndcg(**batch).item() == pytest.approx(1 / math.log2(3))


def test_float_labels_are_gains() -> None:
    batch = one_list([2.0, 1.0], [0.25, 0.75])
    dcg, ideal = 0.25 + 0.75 / math.log2(3), 0.75 + 0.25 / math.log2(3)
    assert per_list.ndcg(**batch).item() == pytest.approx(dcg / ideal)
    assert per_list.reciprocal_rank(**batch).item() == 0
    assert per_list.compute(["RR"], **batch, rel=0.5)["RR"].item() == 0.5
    batch["labels"] = batch["labels"].double()
    assert per_list.ndcg(**batch).dtype == torch.float64


def test_low_precision_scores_are_accepted() -> None:
    batch = one_list([2.0, 1.0], [0, 1])
    batch["scores"] = batch["scores"].bfloat16()
    assert per_list.average_precision(**batch).tolist() == [0.5]


def test_lists_without_a_relevant_item_are_zero() -> None:
    values = per_list.compute(NAMES, **one_list([2.0, 1.0], [0, -1]))
    assert {name: value.item() for name, value in values.items()} == dict.fromkeys(NAMES, 0.0)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["RR@10", "MRR@10"], "twice"),
        (["speed@10"], "speed@10"),
        (["ERR@10"], "evaluate_run only"),
        (["nDCG(dcg='exp-log2')@5"], "dcg"),
        (["P"], "cutoff"),
        (["RR@0"], "at least 1"),
        (["not a metric!"], "not a metric!"),
        ([], "sequence of metric names"),
        ("RR@10", "sequence of metric names"),
    ],
)
def test_bad_names_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        per_list.compute(names, **one_list([2.0, 1.0], [0, 1]))


def test_bad_tensors_are_refused() -> None:
    batch = one_list([2.0, 1.0], [0, 1])
    with pytest.raises(ValueError, match=r"\[lists, items\]"):
        per_list.ndcg(**batch | {"labels": torch.ones(1, 3)})
    with pytest.raises(ValueError, match="bool"):
        per_list.ndcg(**batch | {"mask": torch.ones(1, 2)})
    with pytest.raises(ValueError, match="list 0 of the batch has a NaN"):
        per_list.ndcg(**batch | {"scores": torch.tensor([[0.0, math.nan]])})
    with pytest.raises(ValueError, match="with 1 lists"):
        per_list.ndcg(**batch, ideal_labels=torch.ones(2, 4))
    with pytest.raises(ValueError, match="rel must be above 0"):
        per_list.recall(**batch, k=1, rel=0)
    with pytest.raises(ValueError, match="at least one list"):
        per_list.tie_order([])
