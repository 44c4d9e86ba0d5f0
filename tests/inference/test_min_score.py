"""Items at or above a score: given, or stored with the model for its very weights and configuration."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from crossjem_pl.evaluation.threshold import choose_threshold
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.configuration import Configuration, Passes
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, QueryHead
from crossjem_pl.rankers.threshold import THRESHOLD_FILE, read_threshold, write_threshold
from tests.conftest import example_lists
from tests.rankers.literal import sharpened

ITEMS = ["blue boots", "red shoes", "a cheap flight to paris", "shoe store", "dog food"]


@pytest.fixture(scope="module")
def lists() -> list[RankingList]:
    return example_lists(30, seed=5)


@pytest.fixture
def folder(tiny_bert: str, tmp_path: Path, lists: list[RankingList]) -> Path:
    """A model folder with a threshold."""
    torch.manual_seed(0)
    ranker = CrossJEM(tiny_bert, QueryHead(), max_query_tokens=6, max_item_tokens=6, max_union_tokens=128)
    model = Reranker(sharpened(ranker), "cpu")
    model.save_pretrained(tmp_path / "model")
    write_threshold(choose_threshold(lists, model.score(lists), ranker), tmp_path / "model")
    return tmp_path / "model"


def change_weights(model: Reranker) -> None:
    with torch.no_grad():
        next(model.ranker.parameters()).view(-1)[0] += 1


def test_the_ranking_is_cut_at_the_score(folder: Path) -> None:
    model = Reranker(folder, "cpu")
    ranked = model.rank("red shoes", ITEMS)
    for row in ranked:
        at = [other for other in ranked if other.score >= row.score]
        assert model.rank("red shoes", ITEMS, min_score=row.score) == at, "the item itself is kept"
        above = math.nextafter(row.score, math.inf)
        assert model.rank("red shoes", ITEMS, min_score=above) == [o for o in ranked if o.score > row.score]
    assert model.rank("red shoes", ITEMS, min_score=-math.inf) == ranked
    assert model.rank("red shoes", ITEMS, min_score=math.inf) == []
    assert model.rank("red shoes", ITEMS, min_score=ranked[3].score, top_k=2) == ranked[:2]
    best = model.rank("red shoes", ITEMS, top_k=3, activation="softmax")
    kept = model.rank("red shoes", ITEMS, min_score=ranked[2].score, activation="softmax")
    assert kept == best, "the score is compared before the activation"


def test_the_stored_threshold_keeps_what_it_was_measured_to_keep(
    folder: Path, lists: list[RankingList]
) -> None:
    model = Reranker(folder, "cpu")
    stored = model.threshold
    assert stored == read_threshold(folder / THRESHOLD_FILE)
    assert stored is not None
    found = model.rank_batch([x.query for x in lists], [x.items for x in lists], min_score="stored")
    assert sum(map(len, found)) / len(lists) == pytest.approx(stored.figures["kept_per_list"])
    kept = [any((one.labels or ())[i.index] for i in items) for one, items in zip(lists, found, strict=True)]
    assert sum(kept) / len(lists) == pytest.approx(stored.figures["kept_share"])


def test_without_a_threshold_the_command_is_named(folder: Path) -> None:
    (folder / THRESHOLD_FILE).unlink()
    model = Reranker(folder, "cpu")
    assert model.threshold is None
    with pytest.raises(ValueError, match="crossjem threshold MODEL LISTS"):
        model.rank("red shoes", ITEMS, min_score="stored")


def test_a_threshold_of_other_weights_is_refused_and_not_saved(folder: Path, tmp_path: Path) -> None:
    model = Reranker(folder, "cpu")
    model.save_pretrained(tmp_path / "copy")
    assert Reranker(tmp_path / "copy", "cpu").threshold == model.threshold
    model = Reranker(folder, "cpu")
    change_weights(model)
    with pytest.raises(ValueError, match=r"chosen for other weights.*crossjem threshold"):
        model.rank("red shoes", ITEMS, min_score="stored")
    assert len(model.rank("red shoes", ITEMS)) == 5, "ranking needs no threshold"
    model.save_pretrained(tmp_path / "changed")
    assert not (tmp_path / "changed" / THRESHOLD_FILE).exists()


def test_a_threshold_of_another_precision_or_other_passes_is_refused(folder: Path, tmp_path: Path) -> None:
    """Scores in bfloat16 or of other passes are other scores: what was measured does not hold for them."""
    low = Reranker(folder, "cpu", "bfloat16")
    with pytest.raises(
        ValueError, match="chosen for scores in float32, and they are computed in bfloat16 now"
    ):
        low.rank("red shoes", ITEMS, min_score="stored")
    tuned = Reranker(folder, "cpu")
    tuned.configure(Configuration(passes=Passes(3, 64, "sorted")))
    with pytest.raises(ValueError, match=r"pass limits .*'max_union_tokens': 128.* 64"):
        tuned.rank("red shoes", ITEMS, min_score="stored")
    tuned.save_pretrained(tmp_path / "tuned")
    assert not (tmp_path / "tuned" / THRESHOLD_FILE).exists()


def test_thresholds_of_version_0_1_name_no_precision_and_no_passes(folder: Path) -> None:
    path = folder / THRESHOLD_FILE
    content = json.loads(path.read_text())
    path.write_text(
        json.dumps({k: content[k] for k in content if k not in ("score_precision", "pass_limits")})
    )
    model = Reranker(folder, "cpu")
    assert model.threshold is not None
    assert model.threshold.score_precision == "float32"
    model.configure(Configuration(passes=Passes(3, 64, "sorted")))
    with pytest.raises(ValueError, match="pass limits"):
        _ = model.threshold
