"""A cascade is its second ranker on the items that its first ranks best, and its first behind them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25, Cascade, MonoBERT, Ranker
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests.conftest import example_lists
from tests.rankers.cases import CASES, LIMITS


@pytest.fixture
def stages(tiny_models_folder: Path) -> tuple[Ranker, Ranker]:
    torch.manual_seed(0)
    return CASES["crossjem"](tiny_models_folder).eval(), CASES["monobert"](tiny_models_folder).eval()


@torch.no_grad()
def score(ranker: Ranker, one: RankingList) -> torch.Tensor:
    return ranker.eval()(ranker.collate([one]))[0]


@pytest.mark.parametrize("k", [1, 4, 100])
def test_equals_its_two_rankers_run_by_hand(stages: tuple[Ranker, Ranker], k: int) -> None:
    for one in example_lists(6, most_items=12):
        one = one.select([i for i, text in enumerate(one.items) if text not in one.items[:i]])
        first, found = score(stages[0], one), score(Cascade(*stages, k=k), one)
        order = first.argsort(descending=True)
        best, rest = order[:k], order[k:]
        torch.testing.assert_close(
            found[best], score(stages[1], one.select(best.tolist())), rtol=1e-5, atol=1e-6
        )
        if len(rest):
            assert found[rest].max() < found[best].min()
            expected = found[best].min() - (first[best].min() - first[rest])
            torch.testing.assert_close(found[rest], expected, rtol=1e-5, atol=1e-6)


def test_ties_at_the_border_do_not_depend_on_the_order_of_the_items(stages: tuple[Ranker, Ranker]) -> None:
    one = RankingList.from_texts(
        "red", ["sofa", "lamp", "boots", "sofa", "car", "lamp"]
    )  # BM25 gives all of them 0
    ranker = Cascade(BM25(), stages[1], k=2)
    scores = score(ranker, one)
    assert scores[1] == scores[5]
    assert scores[0] == scores[3]
    assert set(scores.topk(2).indices.tolist()) == {2, 4}, "boots and car come first in the alphabet"
    torch.testing.assert_close(score(ranker, one.select([5, 4, 3, 2, 1, 0])), scores.flip(0))


def test_is_built_from_folders_and_becomes_one(stages: tuple[Ranker, Ranker], tmp_path: Path) -> None:
    for name, ranker in zip(("one", "two"), stages, strict=True):
        save_ranker(ranker, tmp_path / name)
    made = Cascade(str(tmp_path / "one"), str(tmp_path / "two"), k=3)
    one = example_lists(1, most_items=9)[0]
    save_ranker(made, tmp_path / "cascade")
    assert [path.parent.name for path in tmp_path.rglob("cascade/**/*.safetensors")] == ["cascade"]
    for name in ("one", "two"):
        (tmp_path / name / "config.json").unlink()  # the folder holds all that it needs
    again = load_ranker(str(tmp_path / "cascade"))
    torch.testing.assert_close(score(again, one), score(Cascade(*stages, k=3), one))
    ranked = Reranker(tmp_path / "cascade").rank(one.query, one.items)
    assert [row.index for row in ranked] == score(again, one).argsort(descending=True, stable=True).tolist()


def test_mistakes_are_named(stages: tuple[Ranker, Ranker], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        Cascade(*stages, k=0)
    with pytest.raises(FileNotFoundError, match="no model 'runs/none/model': there is no such folder"):
        Cascade(stages[0], "runs/none/model")
    save_ranker(Cascade(*stages), tmp_path)
    (tmp_path / "second" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"second/config\.json: the 'crossjem_pl' part is no object"):
        load_ranker(str(tmp_path))


def test_texts_that_either_ranker_cuts_are_counted(stages: tuple[Ranker, Ranker], tiny_bert: str) -> None:
    short = MonoBERT(tiny_bert, **{**LIMITS, "max_item_tokens": 2})
    one = RankingList.from_texts("red shoes", ["sofa lamp red boots shoes", "red", "sofa lamp"])
    assert [Cascade(stages[0], last).collate([one]).truncated_items for last in (stages[1], short)] == [0, 1]
