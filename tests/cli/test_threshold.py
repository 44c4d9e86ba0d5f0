"""crossjem threshold, rank --filter and the metrics that go with them, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from crossjem_pl.cli import main
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.data.trec import write_qrels, write_run
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, QueryHead
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.rankers.threshold import THRESHOLD_FILE, read_threshold
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
    model: Path, lists: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["threshold", str(model), str(lists), "--device", "cpu"]) == 0
    stored = read_threshold(model / THRESHOLD_FILE)
    out = capsys.readouterr().out
    assert (stored.rule, stored.target, stored.data, stored.lists) == ("keep", 0.8, "lists.jsonl", 40)
    assert stored.figures["kept_share"] is not None
    assert 0.8 <= stored.figures["kept_share"] < 0.85
    assert f"threshold {stored.threshold:.6g}: keeps 0.8 of a query's relevant items on average" in out
    assert f"{stored.figures['negative_accuracy']:.4f}" in out
    assert f"{stored.figures['own_overall_accuracy']:.4f}" in out
    assert "It rests on 40 lists with 40 positives" in out
    assert f"{stored.figures['auc']:.4f}" in out

    texts = [text for one in example_lists(5, seed=3) for text in one.items]
    capsys.readouterr()
    assert main(["rank", str(model), "red shoes", *texts, "--filter"]) == 0
    shown = capsys.readouterr().out
    kept = int(next(line for line in shown.splitlines() if f" of {len(texts)} items" in line).split()[0])
    assert f"which keeps 0.8 of a query's relevant items on average (on {stored.lists} lists)" in shown
    threshold = ["--threshold", str(stored.threshold)]
    assert main(["rank", str(model), "red shoes", *texts, *threshold, "--activation", "sigmoid"]) == 0
    assert f"{kept} of {len(texts)} items: those that score at least" in capsys.readouterr().out
    assert main(["rank", str(model), "red shoes", *texts, "--threshold", "1e9"]) == 0
    assert f"0 of {len(texts)} items" in capsys.readouterr().out
    assert main(["rank", str(model), "red shoes", *texts, "--threshold=-1e9", "--top-k", "1"]) == 0
    assert f"1 of {len(texts)} items: the best 1 of those that score" in capsys.readouterr().out


def test_a_precision_in_place_of_a_share(
    model: Path, lists: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["threshold", str(model), str(lists), "--precision", "0.2"]) == 0
    stored = read_threshold(model / THRESHOLD_FILE)
    assert (stored.rule, stored.target) == ("precision", 0.2)
    assert stored.figures["precision"] is not None
    assert stored.figures["precision"] >= 0.2
    out = capsys.readouterr().out
    assert "has a precision of 0.2" in out
    assert "each list its own" not in out


def test_lists_without_positives_are_told_of(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    barren = RankingList("none", "red", ("a", "b"), ("blue", "red"), labels=(0, 0.5))
    write_lists([*example_lists(5), barren], tmp_path / "some.jsonl")
    assert main(["threshold", str(model), str(tmp_path / "some.jsonl"), "--keep", "0.5"]) == 0
    assert "1 of the lists have no positive" in capsys.readouterr().out
    command = ["threshold", str(model), str(tmp_path / "some.jsonl"), "--relevant-from", "0.5"]
    assert main(command) == 0
    assert "no positive" not in capsys.readouterr().out
    assert read_threshold(model / THRESHOLD_FILE).positives == 6


def test_mistakes_are_named(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lists(example_lists(1), tmp_path / "one.jsonl")
    write_lists([RankingList.from_texts("red", ["a"], "bare")], tmp_path / "bare.jsonl")
    for arguments, named in (
        (["threshold", "/no/model", str(tmp_path / "one.jsonl")], "/no/model"),
        (["threshold", str(model), str(tmp_path / "none.jsonl")], "none.jsonl"),
        (["threshold", str(model), str(tmp_path / "bare.jsonl")], "list 'bare' has no labels"),
        (["threshold", str(model), str(tmp_path / "one.jsonl")], "1 of 1 lists"),
        (["rank", str(model), "red", "shoes", "--filter"], "crossjem threshold MODEL LISTS"),
    ):
        assert main(arguments) == 2
        assert named in capsys.readouterr().err
    write_lists(example_lists(5), tmp_path / "five.jsonl")
    assert main(["threshold", str(model), str(tmp_path / "five.jsonl"), "--keep", "80"]) == 2
    assert "keep must be above 0 and at most 1, got 80" in capsys.readouterr().err
    assert not (model / THRESHOLD_FILE).exists()


def test_evaluate_takes_the_metrics_of_a_filter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = list(simulate(10, 20, seed=0))
    write_run(lists, tmp_path / "run.trec")
    write_qrels(lists, tmp_path / "qrels")
    command = ["evaluate", *(str(tmp_path / name) for name in ("run.trec", "qrels"))]
    command += ["--out", str(tmp_path / "out")]
    assert main([*command, "--metrics", "AUC", "NegAcc@80", "NegAcc(threshold='run')@80"]) == 0
    out = capsys.readouterr().out
    assert "| metric | mean over queries | all pairs |" in out
    stored = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert stored["pooled"]["AUC"] > 0.8
