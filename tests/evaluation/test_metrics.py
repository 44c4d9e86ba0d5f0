"""Metrics against ir-measures, trec_eval and values worked by hand, over one process and two, and what is written."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import ir_measures
import pytest
import torch
import torch.distributed as dist

from crossjem_pl.evaluation import metrics
from crossjem_pl.evaluation.metrics import evaluate_run, rank_items
from tests.processes import run_two

TREC = ["RR", "AP", "AP@5", "nDCG", "nDCG@3", "P@5", "R@2", "RR(rel=2)", "AP(rel=2)@10"]
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
    order = metrics.tie_order([list(items) for items in run.values()])
    return {"scores": scores, "labels": labels, "mask": mask, "tie_order": order}, ideal


def of_ir_measures(run: Run, qrels: Qrels, names: list[str]) -> dict[str, torch.Tensor]:
    """Values per query by ir-measures, which gets a run without ties: `rank_items`' ranks for scores."""
    untied = {
        query: {item: -float(rank) for rank, item in enumerate(rank_items(scores))}
        for query, scores in run.items()
    }
    measures = {ir_measures.parse_measure(name): name for name in names}
    values: dict[str, dict[str, float]] = {name: {} for name in names}
    for metric in ir_measures.iter_calc(list(measures), qrels, untied):
        values[measures[metric.measure]][metric.query_id] = float(metric.value)
    return {name: torch.tensor([values[name][query] for query in run], dtype=torch.float64) for name in names}


@pytest.mark.parametrize("candidates_only", [False, True])
def test_agrees_with_ir_measures_on_1000_random_lists(candidates_only: bool) -> None:
    run, qrels = random_run(1000, seed=0)
    if candidates_only:
        qrels = {q: {item: qrels[q].get(item, 0) for item in items} for q, items in run.items()}
    batch, judged = tensors(run, qrels)
    reported = evaluate_run(run, qrels, NAMES + GRADED).per_query.loc[list(run)]
    found = metrics.compute(NAMES + GRADED, **batch, judged=None if candidates_only else judged)
    for name, expected in of_ir_measures(run, qrels, NAMES + GRADED).items():
        assert 0.02 < expected.mean() < 0.98, name
        assert found[name].dtype == torch.float32
        torch.testing.assert_close(found[name].double(), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(torch.tensor(reported[name].to_numpy()), expected, atol=1e-12, rtol=0)
    # trec_eval itself gets the scores as they are
    assert sum(len(set(items.values())) < len(items) for items in run.values()) > 250, "lists with ties"
    assert sum(max(labels.values()) < 1 for labels in qrels.values()) > 125, "lists without a relevant item"
    reported, measures = evaluate_run(run, qrels, TREC).per_query, map(ir_measures.parse_measure, TREC)
    for metric in ir_measures.pytrec_eval.iter_calc(list(measures), qrels, run):
        assert reported.at[metric.query_id, str(metric.measure)] == pytest.approx(metric.value, abs=1e-6)


def test_relevant_from_holds_in_reports_as_in_monitoring() -> None:
    run, qrels = random_run(200, seed=5)
    names = ["RR@10", "AP@10", "P@5", "R@5", "nDCG@10", "RR(rel=3)"]
    batch, judged = tensors(run, qrels)
    monitored = metrics.RankingMetrics(names, relevant_from=2)
    monitored.update(list(run), [list(items) for items in run.values()], *list(batch.values())[:3], judged)
    explicit = ["RR(rel=2)@10", "AP(rel=2)@10", "P(rel=2)@5", "R(rel=2)@5", "nDCG@10", "RR(rel=3)"]
    expected = [float(values.mean()) for values in of_ir_measures(run, qrels, explicit).values()]
    reported = evaluate_run(run, qrels, [*names, "Success@3", "AUC", "Acc@80"], relevant_from=2)
    assert list(monitored.compute().values()) == pytest.approx(expected, abs=1e-6)
    assert [reported.means[name] for name in names] == pytest.approx(expected, abs=1e-12)
    others = evaluate_run(run, qrels, ["Success(rel=2)@3", "AUC(rel=2)", "Acc(rel=2)@80"]).means
    assert list(reported.means.values())[6:] == list(others.values())
    fractions = {query: {item: n / 4 for item, n in judged.items()} for query, judged in qrels.items()}
    found = evaluate_run(run, fractions, names[:5], relevant_from=0.5).means
    assert list(found.values()) == pytest.approx(expected[:5], abs=1e-12)


def part_of_run(rank: int, folder: str) -> None:
    """One of two processes: its share of 21 lists in batches of 4, the first list in both shares."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    run, qrels = random_run(21, seed=6)
    queries = [list(run)[i] for i in (*range(rank, 21, 2), 0)]
    monitored = metrics.RankingMetrics(NAMES)
    for _ in range(2):  # a second epoch starts anew
        monitored.reset()
        for first in range(0, len(queries), 4):
            block = queries[first : first + 4]
            batch, judged = tensors({q: run[q] for q in block}, {q: qrels[q] for q in block})
            ids = [list(run[q]) for q in block]
            monitored.update(block, ids, batch["scores"], batch["labels"], batch["mask"], judged)
        found = monitored.compute()
    empty = metrics.RankingMetrics(["RR"])
    if rank == 1:  # the other process has no list
        empty.update(block, ids, batch["scores"], batch["labels"], batch["mask"])
    (Path(folder) / f"{rank}.json").write_text(json.dumps([found, empty.compute()]))
    dist.destroy_process_group()


def test_two_processes_give_the_means_of_one(tmp_path: Path) -> None:
    run_two(part_of_run, str(tmp_path))
    run, qrels = random_run(21, seed=6)
    (found, alone), (again, too) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert found == again == pytest.approx(evaluate_run(run, qrels, NAMES).means, abs=1e-6)
    assert alone == too
    assert alone["RR"] >= 0


@pytest.mark.skipif(shutil.which("perl") is None, reason="ERR is computed by a Perl program")
def test_ir_measures_programs_take_any_ids_and_parameters() -> None:
    """ERR@k by hand: with grade g at rank 2 and nothing above, (2^g - 1) / 16 / 2."""
    run = {q: {"a b": 2.0, "c-1": 1.0, "ü": 0.0} for q in ("x-1", "y-1", "z")}
    qrels = {"x-1": {"c-1": 1, "gone": 3}, "y-1": {"c-1": 2}, "z": {"gone": 1}}
    found = evaluate_run(run, qrels, ["ERR@3", "NumRet", "NumRet(rel=2)"], relevant_from=2).per_query
    assert found["ERR@3"].tolist() == pytest.approx([1 / 32, 3 / 32, 0.0], abs=1e-5)
    assert found[["NumRet", "NumRet(rel=2)"]].to_numpy().tolist() == [[3, 0], [3, 1], [3, 0]]
    gains = evaluate_run({"q": {"a": 1.0, "b": 2.0}}, {"q": {"a": 1, "b": 0}}, ["nDCG(gains={0:0,1:3})@10"])
    assert list(gains.means.values()) == pytest.approx([1 / math.log2(3)])
    with pytest.raises(ValueError, match="refuses the judgements"):
        evaluate_run(run, {"z": {"ü": 9}}, ["ERR@3"])


def one_list(scores: list[float], labels: list[float]) -> dict[str, Any]:
    return {
        "scores": torch.tensor([scores]),
        "labels": torch.tensor([labels], dtype=torch.float32),
        "mask": torch.ones(1, len(scores), dtype=torch.bool),
        "tie_order": metrics.tie_order([[str(i) for i in range(len(scores))]]),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_scores_go_to_the_higher_id(dtype: torch.dtype) -> None:
    """Scores that differ in float64 alone are equal; every provider of ir-measures sees this ranking."""
    batch = one_list([1.0 + 1e-9, 1.0, 1.0], [1, 0, 0])
    assert metrics.compute(["RR"], **batch | {"scores": batch["scores"].to(dtype)})[
        "RR"
    ].item() == pytest.approx(1 / 3)
    assert metrics.tie_order([["a", "é", "z", "Z"], ["10", "9"]]).tolist() == [[2, 0, 1, 3], [1, 0, 2, 3]]
    run = {"q": {"a": 1.0 + 1e-9, "b": 1.0, "c": 1.0, "é": 1.0}}
    for item, rank in (("é", 1), ("c", 2), ("b", 3), ("a", 4)):
        means = evaluate_run(run, {"q": {item: 1}}, ["RR", "RR@10", "Success@2"]).means
        assert list(means.values()) == pytest.approx([1 / rank, 1 / rank, float(rank <= 2)])


def test_nothing_depends_on_item_order_or_padding() -> None:
    run, qrels = random_run(50, seed=2)
    rng = random.Random(3)
    shuffled = {q: dict(rng.sample(list(items.items()), len(items))) for q, items in run.items()}
    first, again = (metrics.compute(NAMES, **tensors(r, qrels)[0]) for r in (run, shuffled))
    batch, _ = tensors(run, qrels)
    padded: dict[str, Any] = {
        key: torch.nn.functional.pad(value, (0, 9), value=True if key == "mask" else 7)
        for key, value in batch.items()
    }
    padded["mask"][:, -9:] = False
    for name, values in metrics.compute(NAMES, **padded).items():
        torch.testing.assert_close(values, first[name])
        torch.testing.assert_close(again[name], first[name])


def test_padding_may_hold_nan_and_scores_may_be_minus_infinity() -> None:
    batch = one_list([-math.inf, 0.0, math.nan], [1, 0, math.nan])
    batch["mask"][0, 2] = False
    found = metrics.compute(["RR", "nDCG"], **batch)
    assert found["RR"].item() == 0.5
    assert found["nDCG"].item() == pytest.approx(1 / math.log2(3))


def test_float_labels_are_gains() -> None:
    batch = one_list([2.0, 1.0], [0.25, 0.75])
    dcg, ideal = 0.25 + 0.75 / math.log2(3), 0.75 + 0.25 / math.log2(3)
    found = metrics.compute(["nDCG", "RR"], **batch | {"labels": batch["labels"].double()}, relevant_from=0.5)
    assert found["nDCG"].item() == pytest.approx(dcg / ideal, abs=1e-12)
    assert found["nDCG"].dtype == torch.float64
    assert found["RR"].item() == 0.5


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
        metrics.compute(names, **one_list([2.0, 1.0], [0, 1]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.ones(1, 3)}, r"\[lists, items\]"),
        ({"mask": torch.ones(1, 2)}, "bool"),
        ({"scores": torch.tensor([[0.0, math.nan]])}, "list 0 of the batch has a NaN"),
        ({"judged": torch.ones(2, 4)}, "1 lists"),
        ({"relevant_from": 0}, "must be above 0"),
        ({"relevant_from": math.nan}, "must be above 0"),
    ],
)
def test_bad_tensors_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.compute(["RR"], **one_list([2.0, 1.0], [0, 1]) | change)


QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"a": 0}, "q3": {"x": 1}}


def test_missing_queries_count_as_zero_and_are_written(tmp_path: Path) -> None:
    found = evaluate_run({"q1": {"a": 2, "b": 1}, "q3": {}, "zz": {"a": 1.0}}, QRELS, ["MRR@10", "R@5"])
    assert (found.missing, found.unjudged) == (("q2", "q3"), ("zz",))
    assert found.means == {"MRR@10": pytest.approx(1 / 3), "R@5": pytest.approx(0.5 / 3)}
    found.write(tmp_path / "new")
    stored = json.loads((tmp_path / "new/metrics.json").read_text())
    assert stored["means"] == found.means
    assert stored["per_query"]["q1"] == {"MRR@10": 1.0, "R@5": 0.5}
    assert (stored["queries"], stored["missing"], stored["unjudged"]) == (3, ["q2", "q3"], ["zz"])
    assert stored["relevant_from"] == 1
    table = (tmp_path / "new/metrics.md").read_text()
    assert "| MRR@10 | 0.3333 |  |" in table
    assert "2 of them are missing" in table


@pytest.mark.parametrize(
    ("run", "qrels", "names", "message"),
    [
        ({"q": {"a": 1.0}}, {}, ["RR"], "hold no query"),
        ({"q": {"a": 1.0}}, QRELS, ["RR"], "share no query"),
        ({"q1": {"a": 1.0, "b": math.nan}}, QRELS, ["RR"], "query 'q1', item 'b'.*not finite"),
        ({"q1": {"a": 1e39}}, QRELS, ["RR"], "query 'q1', item 'a'.*not finite"),
        ({"q1": {"a": 1.0}}, {"q1": {"a": math.inf}}, ["RR"], "relevance inf is not finite"),
        ({"q1": {"a": 1.0}}, QRELS, ["AUC(rel=0)"], "must be above 0, got 0"),
        ({"q1": {"a": 1.0}}, {"q1": {"a": 0.5}}, ["Success@3"], "'q1', item 'a': 0.5 is not a whole number"),
    ],
)
def test_bad_runs_are_refused(run: Run, qrels: Qrels, names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_run(run, qrels, names)


def test_every_list_has_a_query_id() -> None:
    batch = one_list([2.0, 1.0], [0, 1])
    with pytest.raises(ValueError, match="2 query ids, 1 lists of ids"):
        metrics.RankingMetrics(["RR"]).update(["q", "r"], [["0", "1"]], *list(batch.values())[:3])


def test_a_metric_of_ones_own_needs_a_free_name() -> None:
    for name in ("RR", "AUC", "no spaces"):
        with pytest.raises(ValueError, match=f"cannot be named '{name}'"):
            metrics.register_metric(name, lambda ranked, judged, k, rel: ranked[:, 0])
    with pytest.raises(ValueError, match="metric 'nowhere:Hits@5': No module named 'nowhere'"):
        metrics.parse_measures(["nowhere:Hits@5"])
