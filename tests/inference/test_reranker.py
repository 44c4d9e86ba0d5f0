from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from crossjem_pl.inference import RankedItem, Reranker
from crossjem_pl.inference.configuration import Scorer
from crossjem_pl.inference.reranker import Activation
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, MonoBERT, QueryHead
from tests.conftest import example_lists
from tests.rankers.literal import classifier, random_lists, sharpened

LIMITS: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6}
ITEMS = ["blue boots", "red shoes", "a cheap flight to paris", "shoe store", "dog food"]


@pytest.fixture(scope="module")
def reranker(tiny_bert: str) -> Reranker:
    torch.manual_seed(0)
    ranker = CrossJEM(tiny_bert, QueryHead(), union_positions="item", union_attention="item", **LIMITS)
    return Reranker(sharpened(ranker), "cpu")


def by_hand(reranker: Reranker, query: str, items: Sequence[str]) -> list[float]:
    with torch.no_grad():
        return reranker.ranker(reranker.ranker.collate([RankingList.from_texts(query, items)]))[0].tolist()


# --- ranking -----------------------------------------------------------------------------------------------


def test_rank_sorts_the_items_by_the_rankers_scores(reranker: Reranker) -> None:
    scores = by_hand(reranker, "red running shoes", ITEMS)
    ranked = reranker.rank("red running shoes", ITEMS)
    assert [item.index for item in ranked] == sorted(range(5), key=lambda i: -scores[i])
    assert [item.text for item in ranked] == [ITEMS[item.index] for item in ranked]
    assert [item.score for item in ranked] == pytest.approx(sorted(scores, reverse=True), abs=1e-5)
    assert all(type(item) is RankedItem and type(item.score) is float for item in ranked)
    for top_k in (1, 3, 5, 100):
        assert reranker.rank("red running shoes", ITEMS, top_k=top_k) == ranked[:top_k]


def test_equal_scores_keep_the_order_of_the_input(tiny_bert: str) -> None:
    reranker = Reranker(sharpened(CrossJEM(tiny_bert, max_union_tokens=64, **LIMITS)), "cpu")
    ranked = reranker.rank("red shoes", ["dog food", "red shoes", "dog food", "Dog  Food"])
    assert [item.index for item in ranked if item.index != 1] == [0, 2, 3]
    same = reranker.rank("red shoes", ["car"] * 50)
    assert [item.index for item in same] == list(range(50))


@pytest.mark.parametrize("batch_size", [3, 64])
def test_rank_batch_equals_rank(reranker: Reranker, batch_size: int) -> None:
    lists = [*random_lists(9, seed=0), RankingList.from_texts("red shoes", ITEMS[:2])]
    lists.append(RankingList.from_texts("red shoes", ITEMS[2:]))  # the same query: they stay apart
    batched = Reranker(reranker.ranker, "cpu", batch_size=batch_size)
    together = batched.rank_batch([one.query for one in lists], [one.items for one in lists])
    for one, found in zip(lists, together, strict=True):
        alone = reranker.rank(one.query, one.items)
        scores = {item.index: item.score for item in alone}
        assert [item.score for item in found] == pytest.approx([item.score for item in alone], abs=1e-5)
        assert [i.score for i in found] == pytest.approx([scores[i.index] for i in found], abs=1e-5)
    top = batched.rank_batch([one.query for one in lists], [one.items for one in lists], top_k=4)
    assert top == [found[:4] for found in together]
    assert batched.rank_batch([], []) == batched.score([]) == []


# --- scores ------------------------------------------------------------------------------------------------


def test_score_gives_float32_in_the_order_of_the_items(reranker: Reranker) -> None:
    lists = example_lists(5, seed=1)
    scores = reranker.score(lists)
    assert [s.shape for s in scores] == [(len(one),) for one in lists]
    assert {(s.dtype, s.device.type, s.requires_grad) for s in scores} == {(torch.float32, "cpu", False)}
    for one, found in zip(lists, scores, strict=True):
        assert found.tolist() == pytest.approx(by_hand(reranker, one.query, one.items), abs=1e-5)


def test_predict_scores_pairs_in_their_order(reranker: Reranker, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Scorer._score_batch
    pairs = [("red shoes", "boots"), ("car", "red car"), ("red shoes", "shoe store"), ("car", "boots")]
    shoes = by_hand(reranker, "red shoes", ["boots", "shoe store"])
    car = by_hand(reranker, "car", ["red car", "boots"])
    passes: list[int] = []

    def counted(self: Scorer, lists: Sequence[RankingList]) -> Any:
        passes.append(len(lists))
        return batch(self, lists)

    monkeypatch.setattr(Scorer, "_score_batch", counted)
    single = Reranker(reranker.ranker, "cpu", batch_size=1)
    for size in (None, 2):
        scores = single.predict(pairs, batch_size=size)
        assert scores.dtype == "float32"
        assert scores.tolist() == pytest.approx([shoes[0], car[0], shoes[1], car[1]], abs=1e-5)
    assert passes == [1, 1, 2]
    assert reranker.predict(pairs[1]) == pytest.approx(by_hand(reranker, "car", ["red car"])[0], abs=1e-5)
    assert reranker.predict([]).shape == (0,)


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_activations(reranker: Reranker, activation: Activation) -> None:
    plain = reranker.rank("red shoes", ITEMS)
    found = reranker.rank("red shoes", ITEMS, activation=activation)
    total = sum(math.exp(item.score) for item in plain)
    for raw, item in zip(plain, found, strict=True):
        expected = 1 / (1 + math.exp(-raw.score)) if activation == "sigmoid" else math.exp(raw.score) / total
        assert item.score == pytest.approx(expected, abs=1e-6)
        assert item.index == raw.index, "the order stays"
    top = reranker.rank("red shoes", ITEMS, top_k=2, activation=activation)
    assert top == found[:2], "softmax is over the whole list"


def test_the_ranker_is_put_into_eval_mode(tiny_bert: str) -> None:
    ranker = CrossJEM(tiny_bert, max_union_tokens=64, dropout=0.5, **LIMITS).train()
    reranker = Reranker(ranker, "cpu")
    assert reranker.rank("red shoes", ITEMS) == reranker.rank("red shoes", ITEMS)
    assert not ranker.training


def test_cut_texts_are_counted(tiny_bert: str, caplog: pytest.LogCaptureFixture) -> None:
    reranker = Reranker(CrossJEM(tiny_bert, max_union_tokens=64, **LIMITS), "cpu", batch_size=1)
    reranker.rank("red shoes", ITEMS)
    assert reranker.truncated == 0
    long = "red shoe " * 5
    reranker.rank_batch([long, "car"], [[long, "dog", long], [long]])
    assert reranker.truncated == 4
    reranker.rank("car", [long])
    assert reranker.truncated == 5, "it adds up"
    (told,) = [r.getMessage() for r in caplog.records if r.name.startswith("crossjem_pl")]
    assert told == "4 texts cut to the model's limits", "told once"


# --- explanations and folders ------------------------------------------------------------------------------


def test_explanations_sum_to_the_scores(reranker: Reranker, tiny_bert: str) -> None:
    explained = reranker.explain("red shoes", ITEMS)
    assert [e.item for e in explained] == ITEMS
    scores = by_hand(reranker, "red shoes", ITEMS)
    assert [e.score for e in explained] == pytest.approx(scores, abs=1e-5)
    assert [sum(part.value for part in e.contributions) for e in explained] == pytest.approx(scores, abs=1e-5)
    with pytest.raises(ValueError, match="monobert cannot explain: its score is not a sum over tokens"):
        Reranker(MonoBERT(tiny_bert, **LIMITS), "cpu").explain("red shoes", ITEMS)


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "items", "message"),
    [
        ("  ", ITEMS, "field 'query': expected a non-empty string, got '  '"),
        ("red shoes", [], "field 'items': the list has no items"),
        ("red shoes", ["boots", ""], "field 'items': position 1: expected a non-empty string, got ''"),
        ("red shoes", [None], "field 'items': position 0: expected a non-empty string, got None"),
        ("red shoes", ["boots", "\u200b\u200d"], r"field 'items'.*no tokens"),
        ("red shoes", "blue boots", "field 'items': expected a sequence of texts, got the text 'blue boots'"),
    ],
)
def test_texts_that_cannot_be_ranked_are_named(
    reranker: Reranker, query: str, items: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        reranker.rank(query, items)
    with pytest.raises(ValueError, match=f"query 1.*{message}" if "no tokens" not in message else message):
        reranker.rank_batch(["red", query], [["a"], items])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"queries": "ab", "items": [["x"], ["y"]]},
            "queries: expected a sequence of texts, got the text 'ab'",
        ),
        ({"queries": ["red", "blue"], "items": [ITEMS]}, "2 queries but 1 lists of items"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"min_score": math.nan}, "min_score must be a number or 'stored', got nan"),
        ({"activation": "relu"}, "activation must be None, 'sigmoid' or 'softmax', got 'relu'"),
    ],
)
def test_bad_arguments_are_named(reranker: Reranker, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reranker.rank_batch(**{"queries": ["red"], "items": [ITEMS], **arguments})


def test_bad_options_are_named(reranker: Reranker, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        Reranker(reranker.ranker, "cpu", batch_size=0)
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16, float16, got 'int8'"):
        Reranker(reranker.ranker, "cpu", "int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"has no config\.json"):
        Reranker(tmp_path)
    with pytest.raises(ValueError, match="device 'nonsense' is not available"):
        Reranker(reranker.ranker, "nonsense")
    with pytest.raises(ValueError, match="batch_size must be at least 1, got -1"):
        reranker.predict([("red", "shoes")], batch_size=-1)
    for pair in (("red", "shoes", "blue"), ("red", " ")):
        with pytest.raises(ValueError, match="pair 1: expected a query and an item"):
            reranker.predict([("red", "shoes"), pair])


def test_scores_that_are_not_finite_are_an_error(tiny_bert: str) -> None:
    ranker = CrossJEM(tiny_bert, max_union_tokens=64, **LIMITS)
    with torch.no_grad():
        classifier(ranker).weight[0, 0] = math.nan
    with pytest.raises(ValueError, match="list 'query 0': a score is not finite"):
        Reranker(ranker, "cpu").rank("red shoes", ITEMS)


def test_a_fork_after_several_threads_is_told_and_one_thread_works(tiny_bert: str) -> None:
    """Without the check the child would wait for good."""
    reranker = Reranker(MonoBERT(tiny_bert), "cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = reranker.rank("red shoes", ["boots", "sofa"])
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                reranker.rank("red shoes", ["boots", "sofa"])
                os.write(writing, b"nothing was raised")
            except RuntimeError as error:
                torch.set_num_threads(1)
                same = reranker.rank("red shoes", ["boots", "sofa"])[0].index == expected[0].index
                os.write(writing, f"{same} {error}".encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert re.match("True .*forked.*'spawn' or 'forkserver'", pipe.read())
        os.wait()
    finally:
        torch.set_num_threads(before)
