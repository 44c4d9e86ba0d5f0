"""Items at or above a threshold: given, or stored with the model for its very weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

import huggingface_hub
import pytest
import torch

from crossjem_pl.evaluation.threshold import choose_threshold
from crossjem_pl.inference import Reranker
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
    ranker = CrossJEM(tiny_bert, QueryHead(), 1, "shared", max_query_tokens=6, max_item_tokens=6)
    model = Reranker(sharpened(ranker), "cpu")
    model.save_pretrained(tmp_path / "model")
    write_threshold(choose_threshold(lists, model.score(lists), ranker), tmp_path / "model")
    return tmp_path / "model"


def load(folder: Path | str) -> Reranker:
    return Reranker.from_pretrained(folder, device="cpu")


def change_weights(model: Reranker) -> None:
    with torch.no_grad():
        next(model.ranker.parameters()).view(-1)[0] += 1


# --- a threshold that is given -----------------------------------------------------------------------------


def test_filter_is_rank_cut_at_the_threshold(folder: Path) -> None:
    model = load(folder)
    ranked = model.rank("red shoes", ITEMS)
    for row in ranked:
        at = [other for other in ranked if other.score >= row.score]
        assert model.filter("red shoes", ITEMS, row.score) == at, "at or above: the item itself is kept"
        above = math.nextafter(row.score, math.inf)
        assert model.filter("red shoes", ITEMS, above) == [o for o in ranked if o.score > row.score]
    assert model.filter("red shoes", ITEMS, -math.inf) == ranked
    assert model.filter("red shoes", ITEMS, math.inf) == []
    assert model.filter("red shoes", ITEMS, -math.inf, top_k=2) == ranked[:2]


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_the_threshold_is_compared_before_the_activation(folder: Path, activation: str) -> None:
    model = load(folder)
    middle = model.rank("red shoes", ITEMS)[2].score
    found = model.filter("red shoes", ITEMS, middle, activation=activation)  # type: ignore[arg-type]
    assert found == model.rank("red shoes", ITEMS, 3, activation)  # type: ignore[arg-type]


def test_filter_batch_is_filter_for_each(folder: Path) -> None:
    model = load(folder)
    queries, items = ["red shoes", "dog", "car"], [ITEMS, ITEMS[2:], ["blue"]]
    ranked = model.rank("red shoes", ITEMS)
    limit = (ranked[1].score + ranked[2].score) / 2
    together = model.filter_batch(queries, items, limit)
    for query, texts, found in zip(queries, items, together, strict=True):
        alone = model.filter(query, texts, limit)
        assert [item.index for item in found] == [item.index for item in alone]
    assert len(together[0]) == 2


# --- one that is stored ------------------------------------------------------------------------------------


def test_the_stored_threshold_keeps_what_it_was_measured_to_keep(
    folder: Path, lists: list[RankingList]
) -> None:
    model = load(folder)
    stored = model.threshold
    assert stored == read_threshold(folder / THRESHOLD_FILE)
    assert stored is not None
    found = model.filter_batch([one.query for one in lists], [one.items for one in lists])
    assert sum(map(len, found)) / len(lists) == pytest.approx(stored.figures["kept_per_list"])
    kept = [any((one.labels or ())[i.index] for i in items) for one, items in zip(lists, found, strict=True)]
    assert sum(kept) / len(lists) == pytest.approx(stored.figures["kept_share"])
    one = lists[0]
    assert [i.index for i in model.filter(one.query, one.items)] == [i.index for i in found[0]]


def test_without_a_threshold_the_command_is_named(folder: Path) -> None:
    (folder / THRESHOLD_FILE).unlink()
    model = load(folder)
    assert model.threshold is None
    with pytest.raises(ValueError, match="crossjem threshold MODEL LISTS"):
        model.filter("red shoes", ITEMS)
    with pytest.raises(ValueError, match="crossjem threshold MODEL LISTS"):
        model.filter_batch(["red shoes"], [ITEMS])
    assert len(model.filter("red shoes", ITEMS, -math.inf)) == 5


def test_a_model_that_was_trained_again_has_no_threshold(folder: Path) -> None:
    model = load(folder)
    change_weights(model)
    with pytest.raises(ValueError, match=r"chosen for other weights.*crossjem threshold"):
        model.filter("red shoes", ITEMS)
    kept = (folder / THRESHOLD_FILE).read_bytes()
    model.save_pretrained(folder)
    assert (folder / THRESHOLD_FILE).read_bytes() == kept
    again = load(folder)
    assert len(again.rank("red shoes", ITEMS)) == 5, "ranking needs no threshold"
    with pytest.raises(ValueError, match="chosen for other weights"):
        again.filter("red shoes", ITEMS)


def test_a_saved_reranker_takes_its_threshold_along(folder: Path, tmp_path: Path) -> None:
    model = load(folder)
    model.save_pretrained(tmp_path / "copy")
    assert load(tmp_path / "copy").threshold == model.threshold
    change_weights(model)
    model.save_pretrained(tmp_path / "changed")
    assert not (tmp_path / "changed" / THRESHOLD_FILE).exists()


def test_a_threshold_comes_with_a_hub_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = {("some/model", THRESHOLD_FILE): str(folder / THRESHOLD_FILE)}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name: str(folder))
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda name, file: cached.get((name, file))
    )
    assert load("some/model").threshold == read_threshold(folder / THRESHOLD_FILE)
    assert load("other/model").threshold is None


# --- errors ------------------------------------------------------------------------------------------------


def test_bad_input_is_named(folder: Path) -> None:
    model = load(folder)
    with pytest.raises(ValueError, match="threshold: expected a number, got NaN"):
        model.filter("red shoes", ITEMS, math.nan)
    with pytest.raises(ValueError, match="top_k must be at least 1, got 0"):
        model.filter("red shoes", ITEMS, top_k=0)
    with pytest.raises(ValueError, match="activation must be"):
        model.filter("red shoes", ITEMS, activation="relu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 queries but 1 lists of items"):
        model.filter_batch(["red", "blue"], [ITEMS])
    with pytest.raises(ValueError, match="the list has no items"):
        model.filter("red shoes", [])
    content = json.loads((folder / THRESHOLD_FILE).read_text())
    (folder / THRESHOLD_FILE).write_text(json.dumps(content | {"threshold": "high"}))
    with pytest.raises(ValueError, match=r"threshold\.json, field 'threshold': 'high'"):
        load(folder)
