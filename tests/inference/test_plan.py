from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossjem_pl.inference import Reranker
from crossjem_pl.inference.agreement import agreement
from crossjem_pl.inference.plan import (
    MeasuredSplit,
    Split,
    choose_split,
    measure_splits,
    possible_splits,
    save_split,
)
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, MonoBERT, QueryHead
from crossjem_pl.rankers.folder import save_ranker
from tests.rankers.literal import random_lists, sharpened

LIMITS: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6}


def build(folder: str, **options: Any) -> CrossJEM:
    torch.manual_seed(0)
    arguments = {"max_items_per_pass": 60, "max_union_tokens": 64, **LIMITS, **options}
    return sharpened(CrossJEM(folder, QueryHead(), 0, **{"union_positions": "shared", **arguments}))


@pytest.fixture(scope="module")
def lists() -> list[RankingList]:
    bare = dict.fromkeys(text for one in random_lists(120, seed=5) for text in one.items)
    letters = string.ascii_lowercase + string.digits
    texts = [f"{letters[i % 36]}{letters[i * 7 % 36]} {text}" for i, text in enumerate(bare)]
    return [RankingList.from_texts("red shoes", texts[:150]), RankingList.from_texts("car", texts[150:290])]


def test_possible_splits_all_split_differently(tiny_bert: str, lists: list[RankingList]) -> None:
    ranker = build(tiny_bert)
    splits = possible_splits(ranker, lists)
    assert splits[0] == Split(60, 64, "sorted") == Split.of(ranker)
    assert {split.pass_order for split in splits} == {"sorted", "overlap"}
    assert any(split.max_items_per_pass == 150 for split in splits), "the longest list may be one pass"
    dealt = {
        tuple(
            tuple(
                ranker.with_limits(s.max_items_per_pass, s.max_union_tokens, s.pass_order)
                .collate([one])
                .item_pass.tolist()
            )
            for one in lists
        )
        for s in splits
    }
    assert len(dealt) == len(splits) > 6
    short = [one.select(range(5)) for one in lists]
    assert possible_splits(ranker, short) == [Split.of(ranker)], (
        "a short list is one pass whatever the limits"
    )


def test_unions_stay_within_the_encoders_positions(tiny_bert: str, lists: list[RankingList]) -> None:
    ranker = build(tiny_bert, union_positions="sequential", max_query_tokens=108, max_union_tokens=40)
    assert ranker.union_limit == 160 - 110
    assert max(s.max_union_tokens for s in possible_splits(ranker, lists)) == 50
    assert build(tiny_bert).union_limit is None
    with pytest.raises(ValueError, match="need 161 positions, the encoder has 160"):
        ranker.with_limits(10, 51, "sorted")


def test_with_limits_shares_the_weights_and_leaves_the_ranker_alone(tiny_bert: str) -> None:
    ranker = build(tiny_bert)
    other = ranker.with_limits(7, 32, "overlap")
    assert (other.max_items_per_pass, other.max_union_tokens, other.pass_order) == (7, 32, "overlap")
    assert (ranker.max_items_per_pass, ranker.max_union_tokens, ranker.pass_order) == (60, 64, "sorted")
    assert ranker.init_args["max_items_per_pass"] == 60
    assert other.init_args["max_items_per_pass"] == 7
    own = dict(ranker.named_parameters())
    assert all(own[name] is value for name, value in other.named_parameters())


def test_splits_are_measured(tiny_bert: str, lists: list[RankingList]) -> None:
    reranker = Reranker(build(tiny_bert), "cpu")
    splits = [Split(60, 64, "sorted"), Split(150, 200, "sorted"), Split(20, 64, "overlap")]
    rounds: list[int] = []

    def watched(numbers: Any) -> Any:
        for number in numbers:
            rounds.append(number)
            yield number

    measured = measure_splits(reranker, lists, splits, 2, watched)
    assert rounds == [0, 1, 2]
    own = reranker.score(lists)
    for one, split in zip(measured, splits, strict=True):
        ranker = build(tiny_bert).with_limits(
            split.max_items_per_pass, split.max_union_tokens, split.pass_order
        )
        batches = [ranker.collate([lst]) for lst in lists]
        assert one.split == split
        assert one.passes == np.mean([len(b.input_ids) for b in batches])
        assert one.tokens == np.mean([int(b.attention_mask.sum()) for b in batches])
        assert one.padded_tokens == np.mean([b.input_ids.numel() for b in batches])
        assert one.milliseconds > 0
        expected = agreement(own, Reranker(ranker, "cpu").score(lists))
        assert (one.tau, one.top10) == (expected.tau, expected.top10)
    assert [one.own for one in measured] == [True, False, False]
    assert (measured[0].tau, measured[0].top10) == (1.0, 1.0)
    assert measured[1].passes == 1
    assert measured[1].tau < 1


def test_the_fastest_that_agrees_within_the_budget_is_chosen() -> None:
    def row(items: int, milliseconds: float, tau: float) -> MeasuredSplit:
        return MeasuredSplit(Split(items, 64, "sorted"), False, 1, 9, 9, milliseconds, tau, 1)

    rows = [row(10, 9, 1.0), row(20, 6, 0.93), row(30, 2, 0.5), row(40, 7, 0.95), row(50, 1, float("nan"))]
    assert choose_split(rows) == rows[1]
    assert choose_split(rows, 6) == rows[1]
    assert choose_split(rows, min_tau=0.94) == rows[3]
    assert choose_split(rows, 5) is None
    assert choose_split(rows, 5, 0.5) == rows[2]


def test_a_saved_split_is_the_models_own(tiny_bert: str, tmp_path: Path, lists: list[RankingList]) -> None:
    ranker = build(tiny_bert)
    save_ranker(ranker, tmp_path)
    before = json.loads((tmp_path / "config.json").read_text())
    save_split(tmp_path, Split(20, 48, "overlap"))
    again = Reranker.from_pretrained(tmp_path, device="cpu")
    assert isinstance(again.ranker, CrossJEM)
    assert Split.of(again.ranker) == Split(20, 48, "overlap")
    expected = Reranker(ranker.with_limits(20, 48, "overlap"), "cpu").score(lists)
    for a, b in zip(again.score(lists), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    after = json.loads((tmp_path / "config.json").read_text())
    for config in (before, after):
        for name in ("max_items_per_pass", "max_union_tokens", "pass_order"):
            del config["crossjem_pl"]["init_args"][name]
    assert after == before, "nothing else has changed"
    assert {file.name for file in tmp_path.iterdir() if file.name.startswith(".")} == set()


def test_mistakes_are_named(tiny_bert: str, tmp_path: Path, lists: list[RankingList]) -> None:
    pointwise = MonoBERT(tiny_bert, **LIMITS)
    with pytest.raises(ValueError, match=r"MonoBERT \(monobert\) does not split lists into passes"):
        measure_splits(Reranker(pointwise, "cpu"), lists, [Split(1, 64, "sorted")])
    joint = Reranker(build(tiny_bert), "cpu")
    for arguments in (
        ([], [Split(9, 64, "sorted")], 1),
        (lists, [], 1),
        (lists, [Split(9, 64, "sorted")], 0),
    ):
        with pytest.raises(ValueError, match="nothing to measure"):
            measure_splits(joint, *arguments)
    with pytest.raises(ValueError, match="no lists to plan for"):
        possible_splits(build(tiny_bert), [])
    with pytest.raises(FileNotFoundError, match=r"config\.json is not there"):
        save_split(tmp_path, Split(9, 64, "sorted"))
    save_ranker(pointwise, tmp_path)
    with pytest.raises(ValueError, match="not the folder of a crossjem model"):
        save_split(tmp_path, Split(9, 64, "sorted"))


def test_agreement_of_rankings() -> None:
    first = [torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.arange(20.0)]
    same = agreement(first, [2 * own for own in first])
    assert (same.tau, same.top10, same.difference) == (1.0, 1.0, 19.0)
    swapped = agreement(first[:1], [torch.tensor([3.0, 4.0, 2.0, 1.0])])
    assert swapped.tau == pytest.approx(1 - 2 / 6)
    turned = agreement(first[1:], [-first[1]])
    assert (turned.tau, turned.top10) == (-1.0, 0.0)
    flat = [torch.zeros(3)]
    assert agreement(flat, [torch.ones(3)]).tau == 1.0
    assert np.isnan(agreement(flat, [torch.arange(3.0)]).tau)
    with pytest.raises(ValueError, match="no lists to compare"):
        agreement([], [])
