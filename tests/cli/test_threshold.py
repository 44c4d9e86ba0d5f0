"""crossjem threshold, rank --filter and the metrics that go with them, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.data.trec import write_qrels, write_run
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, QueryHead
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.rankers.threshold import THRESHOLD_FILE, read_threshold
from tests.cli.conftest import Ran
from tests.conftest import example_lists
from tests.rankers.literal import sharpened


@pytest.fixture
def model(tiny_bert: str, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    ranker = CrossJEM(tiny_bert, QueryHead(), max_query_tokens=16, max_item_tokens=16, max_union_tokens=128)
    save_ranker(sharpened(ranker), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    write_lists(example_lists(40, seed=3), tmp_path / "lists.jsonl")
    return tmp_path / "lists.jsonl"


def test_a_threshold_is_chosen_stored_and_used(
    model: Path, lists: Path, crossjem: Callable[..., Ran]
) -> None:
    status, out, _ = crossjem("threshold", model, lists, "--device", "cpu")
    assert status == 0
    stored = read_threshold(model / THRESHOLD_FILE)
    assert (stored.rule, stored.target, stored.data, stored.lists) == ("keep", 0.8, "lists.jsonl", 40)
    assert stored.figures["kept_share"] is not None
    assert 0.8 <= stored.figures["kept_share"] < 0.85
    meaning = "keeps 0.8 of a query's relevant items on average"
    assert f"threshold {stored.threshold:.6g}: {meaning}" in out
    assert "It rests on 40 lists with 40 positives" in out
    for figure in ("negative_accuracy", "own_overall_accuracy", "auc"):
        assert f"{stored.figures[figure]:.4f}" in out

    texts = [text for one in example_lists(5, seed=3) for text in one.items]
    ranking = ("rank", model, "red shoes", *texts)
    shown = crossjem(*ranking, "--filter").out
    kept = int(next(line for line in shown.splitlines() if f" of {len(texts)} items" in line).split()[0])
    assert f"which {meaning} (on {stored.lists} lists)" in shown
    for options, told in (
        (
            ("--threshold", stored.threshold, "--activation", "sigmoid"),
            f"{kept} of {len(texts)} items: those that",
        ),
        (("--threshold", "1e9"), f"0 of {len(texts)} items"),
        (("--threshold=-1e9", "--top-k", 1), f"1 of {len(texts)} items: the best 1 of those that score"),
    ):
        assert told in crossjem(*ranking, *options).out


def test_a_precision_in_place_of_a_share(model: Path, lists: Path, crossjem: Callable[..., Ran]) -> None:
    out = crossjem("threshold", model, lists, "--precision", "0.2").out
    stored = read_threshold(model / THRESHOLD_FILE)
    assert (stored.rule, stored.target) == ("precision", 0.2)
    assert stored.figures["precision"] is not None
    assert stored.figures["precision"] >= 0.2
    assert "has a precision of 0.2" in out
    assert "each list its own" not in out


def test_lists_without_positives_are_told_of(
    model: Path, tmp_path: Path, crossjem: Callable[..., Ran]
) -> None:
    barren = RankingList("none", "red", ("a", "b"), ("blue", "red"), labels=(0, 0.5))
    write_lists([*example_lists(5), barren], tmp_path / "some.jsonl")
    command = ("threshold", model, tmp_path / "some.jsonl")
    assert "1 of the lists have no positive" in crossjem(*command, "--keep", "0.5").out
    status, out, _ = crossjem(*command, "--relevant-from", "0.5")
    assert status == 0
    assert "no positive" not in out
    assert read_threshold(model / THRESHOLD_FILE).positives == 6


def test_mistakes_are_named(model: Path, tmp_path: Path, crossjem: Callable[..., Ran]) -> None:
    one, bare, five = (tmp_path / f"{name}.jsonl" for name in ("one", "bare", "five"))
    write_lists(example_lists(1), one)
    write_lists([RankingList.from_texts("red", ["a"], "bare")], bare)
    write_lists(example_lists(5), five)
    for words, named in (
        (("threshold", "/no/model", one), "/no/model"),
        (("threshold", model, tmp_path / "none.jsonl"), "none.jsonl"),
        (("threshold", model, bare), "list 'bare' has no labels"),
        (("threshold", model, one), "1 of 1 lists"),
        (("threshold", model, five, "--keep", "80"), "keep must be above 0 and at most 1, got 80"),
        (("rank", model, "red", "shoes", "--filter"), "crossjem threshold MODEL LISTS"),
    ):
        status, _, error = crossjem(*words)
        assert status == 2
        assert named in error
    assert not (model / THRESHOLD_FILE).exists()


def test_evaluate_takes_the_metrics_of_a_filter(tmp_path: Path, crossjem: Callable[..., Ran]) -> None:
    lists = list(simulate(10, 20, seed=0))
    write_run(lists, tmp_path / "run.trec")
    write_qrels(lists, tmp_path / "qrels")
    command = ("evaluate", tmp_path / "run.trec", tmp_path / "qrels", "--out", tmp_path / "out")
    out = crossjem(*command, "--metrics", "AUC", "NegAcc@80", "NegAcc(threshold='run')@80").out
    assert "| metric | mean over queries | all pairs |" in out
    stored = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert stored["pooled"]["AUC"] > 0.8
