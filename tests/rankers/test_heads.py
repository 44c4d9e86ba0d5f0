"""Heads and item-side layers against literal references."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, LinearHead, MatchHead, QueryHead, ScoringHead
from crossjem_pl.rankers.crossjem.heads import sinusoids
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests import tiny_models
from tests.rankers import encoder_families
from tests.rankers.literal import (
    Joint,
    item_side_states,
    item_states,
    joint_pass,
    match_scores,
    paper_scores,
    query_scores,
    random_lists,
    sharpened,
    sinusoid,
)

TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
LIMITS: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6, "max_union_tokens": 64}
ITEM: dict[str, Any] = {"union_positions": "item", "union_attention": "item", "query_bias": -1.5}


def uneven(head: MatchHead) -> MatchHead:
    """The head with three scales that are not alike, as after training."""
    with torch.no_grad():
        head.scale.mul_(torch.tensor([1.0, 0.5, 2.0]))
    return head


HEADS: dict[str, Callable[[], ScoringHead]] = {
    "linear": LinearHead,
    "linear-positions": lambda: LinearHead(positions=True),
    "linear-cls-no-bias": lambda: LinearHead(pool_cls=True, bias=False),
    "query": lambda: QueryHead(3.0),
    "match": lambda: uneven(MatchHead(4.0)),
    "match-whole-query": lambda: MatchHead(4.0, 1.0, whole_query=True),
}
LAYERS: dict[str, dict[str, Any]] = {
    "union": {},
    "union-item-attention": ITEM,
    "item-side": {"item_side_layers": 1},
    "item-side-item-attention": {"item_side_layers": 1, **ITEM},
    "item-side-own-places": {"item_side_layers": 1, "own_places": True, **ITEM},
    "item-side-shared": {"item_side_layers": 1, "shared_feed_forward": True},
    "item-side-best": {"item_side_layers": 1, "own_places": True, "shared_feed_forward": True, **ITEM},
}


def build(folder: str, head: str, layers: str = "union", **options: object) -> CrossJEM:
    torch.manual_seed(1)
    return sharpened(
        CrossJEM(folder, HEADS[head](), **{**LIMITS, "dropout": 0.0, **LAYERS[layers], **options})
    )


def expected_scores(ranker: CrossJEM, one: RankingList, *, segments: bool = True, first: int = 0) -> Tensor:
    """The scores in python loops."""
    joint, own = joint_pass(ranker, one, segments=segments, first=first), None
    if ranker.item_side_layers is not None:
        joint, own = item_side_states(ranker, joint, first)
    return literal(ranker.head, joint, own)


def literal(head: ScoringHead, joint: Joint, own: list[Tensor] | None) -> Tensor:
    if isinstance(head, LinearHead):
        return paper_scores(joint, head.classifier, positions=head.positions, pool_cls=head.pool_cls, own=own)
    states = item_states(joint) if own is None else own
    if isinstance(head, QueryHead):
        return query_scores(joint, states, float(head.scale))
    assert isinstance(head, MatchHead)
    return match_scores(joint, states, head)


@torch.no_grad()
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("head", HEADS)
def test_equals_a_literal_reference(tiny_bert: str, head: str, layers: str) -> None:
    ranker = build(tiny_bert, head, layers)
    lists = random_lists(6, seed=2)
    together = ranker(ranker.collate(lists))
    for row, one in zip(together, lists, strict=True):
        torch.testing.assert_close(row[: len(one)], expected_scores(ranker, one), **TOLERANCE)


@torch.no_grad()
def test_several_item_side_layers_equal_a_literal_reference(tmp_path: Path) -> None:
    folder = str(tiny_models.write_bert(tmp_path / "bert", layers=3))
    ranker = build(folder, "match", "item-side-best", item_side_layers=2)
    one = random_lists(1, seed=2)[0]
    torch.testing.assert_close(ranker(ranker.collate([one]))[0], expected_scores(ranker, one), **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("family", encoder_families.FAMILIES)
def test_item_side_layers_of_other_encoders(family: str, tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    ranker = build(folder, "query", "item-side-best")
    one = random_lists(1, seed=4)[0]
    options: dict[str, Any] = {"segments": family in ("bert", "electra"), "first": int(family == "roberta")}
    expected = expected_scores(ranker, one, **options)
    torch.testing.assert_close(ranker(ranker.collate([one]))[0], expected, **TOLERANCE)
    save_ranker(ranker, tmp_path / "saved")
    again = load_ranker(str(tmp_path / "saved")).eval()
    torch.testing.assert_close(again(again.collate([one]))[0], expected, **TOLERANCE)


@pytest.mark.parametrize("layers", ["item-side", "item-side-own-places", "item-side-best"])
def test_gradients_do_not_change_the_scores(tiny_bert: str, layers: str) -> None:
    """Training on a CPU multiplies out what inference leaves to the fused kernel."""
    ranker = build(tiny_bert, "match", layers)
    batch = ranker.collate(random_lists(6, seed=4))
    with_gradients = ranker(batch)
    with torch.no_grad():
        torch.testing.assert_close(ranker(batch), with_gradients.detach(), **TOLERANCE)
    with_gradients.sum().backward()
    assert ranker.item_side_layers is not None
    assert all(p.grad is not None for p in ranker.item_side_layers.parameters() if p.requires_grad)


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("head", HEADS)
def test_contributions_sum_to_the_scores(tiny_bert: str, head: str, layers: str) -> None:
    ranker = build(tiny_bert, head, layers, max_items_per_pass=5)
    for one in random_lists(3, seed=6, most_items=30):  # two of them take several passes
        with torch.no_grad():
            scores = ranker(ranker.collate([one]))[0]
        explained = ranker.explain(one)
        assert [e.item for e in explained] == list(one.items)
        sums = torch.tensor([sum(part.value for part in e.contributions) for e in explained])
        torch.testing.assert_close(sums, scores, **TOLERANCE)
        torch.testing.assert_close(torch.tensor([e.score for e in explained]), scores, **TOLERANCE)
        query = ranker.tokenizer.hf.tokenize(one.query)[:6]
        for explanation in explained:
            own = ranker.tokenizer.hf.tokenize(explanation.item)[:6]
            named = [part.token for part in explanation.contributions if part.part == "item"]
            assert named == own if layers.startswith("item-side") else sorted(named) == sorted(set(own))
            context = [(part.part, part.token) for part in explanation.contributions]
            context = [pair for pair in context if pair[0] in ("query", "special")]
            pool = [*(("query", token) for token in query), ("special", "[SEP]")]
            pool = [("special", "[CLS]"), *pool] if "cls" in head else pool
            assert context == (pool if "linear" in head else [])


@torch.no_grad()
@pytest.mark.parametrize("head", ["linear", "query", "match"])
def test_word_order_shows_only_with_places_of_the_items_own(tiny_bert: str, head: str) -> None:
    one = RankingList.from_texts("red shoes", ["blue red shoe", "shoe red blue", "red shoe blue", "car"])
    for layers in ("union", "item-side", "item-side-item-attention"):
        ranker = build(tiny_bert, head, layers)
        scores = ranker(ranker.collate([one]))[0]
        torch.testing.assert_close(scores[:3], scores[:1].expand(3), rtol=0, atol=1e-5)
    ranker = build(tiny_bert, head, "item-side-own-places")
    different = ranker(ranker.collate([one]))[0]
    gaps = [abs(float(different[i] - different[j])) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert min(gaps) > 1e-4


@torch.no_grad()
def test_sinusoids_in_a_mean_show_repeats_and_not_word_order(tiny_bert: str) -> None:
    one = RankingList.from_texts("red shoes", ["blue red shoe", "shoe red blue", "blue blue red shoe"])
    ranker = build(tiny_bert, "linear-positions")
    scores = ranker(ranker.collate([one]))[0]
    # the mean of sinusoids of positions 0, 1, 2 does not tell which token was where
    torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=1e-5)
    assert abs(float(scores[0] - scores[2])) > 1e-4, "positions 0, 1, 2 against 0, 2, 3"
    for width in (1, 7, 32):
        expected = torch.stack([sinusoid(position, width) for position in range(9)])
        torch.testing.assert_close(sinusoids(9, width), expected, **TOLERANCE)


def test_a_match_head_of_an_older_folder_is_the_same_head() -> None:
    assert MatchHead(10.0).init_args == {"scale": 10.0}
    assert MatchHead(10.0, 2.5, whole_query=True).init_args == {
        "scale": 10.0,
        "precision_scale": 2.5,
        "whole_query": True,
    }
