"""Choosing a threshold on labelled lists, what is measured there, and the stored file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossjem_pl.evaluation.threshold import choose_threshold
from crossjem_pl.hashing import weights_sha256
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, CrossJEM, MonoBERT
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from crossjem_pl.rankers.threshold import THRESHOLD_FILE, StoredThreshold, read_threshold, write_threshold
from tests.conftest import example_lists
from tests.evaluation.test_classification import Lists, kept_share, pairs_of, precision, random_lists


@pytest.fixture(scope="module")
def ranker(tiny_bert: str) -> CrossJEM:
    torch.manual_seed(0)
    return CrossJEM(tiny_bert, max_query_tokens=16, max_item_tokens=16, max_union_tokens=128)


def labelled(pairs: Lists) -> tuple[list[RankingList], list[Tensor]]:
    made = [
        RankingList(
            f"q{q}",
            "red shoes",
            tuple(f"d{i}" for i in range(len(one))),
            tuple(f"text {i}" for i in range(len(one))),
            labels=tuple(label for _, label in one),
        )
        for q, one in enumerate(pairs)
    ]
    return made, [torch.tensor([score for score, _ in one]) for one in pairs]


def test_what_is_measured(ranker: CrossJEM) -> None:
    pairs = random_lists(80, seed=6)
    lists, scores = labelled(pairs)
    stored = choose_threshold(lists, scores, ranker, target=0.7, data="some lists")
    figures = {name: value for name, value in stored.figures.items() if value is not None}
    assert len(figures) == len(stored.figures)
    assert stored.threshold == pairs_of(pairs).threshold_at_recall(0.7)
    assert figures["kept_share"] == pytest.approx(kept_share(pairs, stored.threshold))
    assert figures["precision"] == pytest.approx(precision(pairs, stored.threshold))
    for name in ("kept_share", "precision"):
        assert figures[f"{name}_low"] < figures[name] < figures[f"{name}_high"]
    items = [(score, label) for one in pairs for score, label in one]
    kept = sum(score >= stored.threshold for score, _ in items)
    assert figures["kept_per_list"] == pytest.approx(kept / 80)
    assert figures["items_per_list"] == pytest.approx(len(items) / 80)
    right = sum((score >= stored.threshold) == (label >= 1) for score, label in items)
    assert figures["overall_accuracy"] == pytest.approx(right / len(items))
    assert figures["own_positive_accuracy"] >= 0.7
    assert stored.positives == sum(label >= 1 for _, label in items)
    assert stored.positives + stored.negatives == len(items)
    assert stored.lists == 80
    assert stored.lists_without_positives == sum(all(label < 1 for _, label in one) for one in pairs) > 0


def test_the_precision_rule(ranker: CrossJEM) -> None:
    pairs = [[(2.0, 1.0), (1.0, 0.0), (0.0, 0.0)]] * 5 + [[(0.5, 1.0), (0.2, 0.0)]] * 5
    lists, scores = labelled(pairs)
    stored = choose_threshold(lists, scores, ranker, rule="precision", target=1.0)
    assert stored.threshold == 1.5
    assert stored.figures["precision"] == stored.figures["precision_low"] == 1
    assert stored.figures["lists_left_empty"] == 0.5
    assert "own_positive_accuracy" not in stored.figures
    assert stored.meaning == "has a precision of 1"


def test_bad_input_is_named(ranker: CrossJEM) -> None:
    lists, scores = labelled([[(2.0, 1.0), (1.0, 0.0)], [(3.0, 0.0)]])
    with pytest.raises(ValueError, match="1 of 2 lists have an item with a label of at least 1"):
        choose_threshold(lists, scores, ranker)
    with pytest.raises(ValueError, match="list 'q1': 2 scores, 1 items"):
        choose_threshold(lists, [scores[0], scores[0]], ranker)
    with pytest.raises(ValueError, match="list 'q0' has a NaN score"):
        choose_threshold(lists, [scores[0] * math.nan, scores[1]], ranker)
    bare = RankingList.from_texts("red", ["a"], "bare")
    with pytest.raises(ValueError, match="list 'bare', field 'labels'"):
        choose_threshold([*lists, bare], [*scores, torch.zeros(1)], ranker)


@pytest.fixture
def stored(ranker: CrossJEM) -> StoredThreshold:
    lists = example_lists(6)
    return choose_threshold(lists, [torch.tensor(one.scores) for one in lists], ranker, data="dev.parquet")


def test_it_is_read_as_it_was_written(stored: StoredThreshold, tmp_path: Path) -> None:
    path = write_threshold(stored, tmp_path)
    assert path == tmp_path / THRESHOLD_FILE
    assert read_threshold(path) == stored
    with pytest.raises(FileNotFoundError, match="no model folder"):
        write_threshold(stored, tmp_path / "none")


def test_it_knows_its_data(stored: StoredThreshold, ranker: CrossJEM) -> None:
    lists = example_lists(6)
    scores = [torch.tensor(one.scores) for one in lists]
    assert choose_threshold(lists, scores, ranker).data_sha256 == stored.data_sha256
    other = [*lists[:5], lists[5].select(range(1, len(lists[5])))]
    other_scores = [*scores[:5], scores[5][1:]]
    assert choose_threshold(other, other_scores, ranker).data_sha256 != stored.data_sha256


def test_weights_are_known_again(ranker: CrossJEM, tiny_bert: str, tmp_path: Path) -> None:
    save_ranker(ranker, tmp_path / "a")
    again = load_ranker(str(tmp_path / "a"))
    assert weights_sha256(again) == weights_sha256(ranker)
    with torch.no_grad():
        next(again.parameters())[0] += 1e-6
    assert weights_sha256(again) != weights_sha256(ranker)
    limits = {"max_query_tokens": 16, "max_item_tokens": 16}
    assert weights_sha256(MonoBERT(tiny_bert, **limits)) != weights_sha256(ranker)  # type: ignore[arg-type]
    words, more = BM25(), BM25()
    words.index_items(["red shoes"])
    more.index_items(["red shoes", "boots"])
    assert weights_sha256(words) != weights_sha256(more)
    half = load_ranker(str(tmp_path / "a")).bfloat16()
    assert weights_sha256(half) != weights_sha256(ranker)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"threshold": math.nan}, "threshold"),
        ({"threshold": None}, "threshold"),
        ({"rule": "best"}, "rule"),
        ({"lists": -1}, "lists"),
        ({"positives": 1.5}, "positives"),
        ({"figures": {"auc": "good"}}, "figures"),
        ({"weights_sha256": 3}, "weights_sha256"),
        (None, "expected a JSON dict"),
        ("{", "not valid JSON"),
    ],
)
def test_a_malformed_file_is_named(
    change: object, named: str, stored: StoredThreshold, tmp_path: Path
) -> None:
    path = write_threshold(stored, tmp_path)
    content = json.loads(path.read_text())
    path.write_text(change if isinstance(change, str) else json.dumps(change and content | change))
    with pytest.raises(ValueError, match=rf"threshold\.json.*{named}"):
        read_threshold(path)
