from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, LinearHead, MatchHead, MaxSimHead, QueryHead, ScoringHead
from crossjem_pl.rankers.crossjem.heads import sinusoids
from crossjem_pl.rankers.crossjem.segments import segment_max, segment_mean, segment_sum
from crossjem_pl.rankers.encoders import first_position
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests.rankers import encoder_families
from tests.rankers.literal import (
    Joint,
    item_layer_states,
    item_states,
    joint_pass,
    match_scores,
    maxsim_scores,
    paper_scores,
    query_scores,
    random_lists,
    sharpened,
    sinusoid,
    split_states,
)

TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}

HEADS: dict[str, Callable[[], ScoringHead]] = {
    "linear": LinearHead,
    "linear-positions": lambda: LinearHead(positions=True),
    "linear-cls-no-bias": lambda: LinearHead(pool_cls=True, bias=False),
    "query": QueryHead,
    "query-scale": lambda: QueryHead(3.0),
    "maxsim": MaxSimHead,
    "maxsim-linear": lambda: MaxSimHead(2.0, linear=True),
    "match": lambda: uneven(MatchHead(4.0)),
}


def uneven(head: MatchHead) -> MatchHead:
    """The head with three scales that are not alike, as after training."""
    with torch.no_grad():
        head.scale.mul_(torch.tensor([1.0, 0.5, 2.0]))
    return head


def build(folder: str, head: str, item_layers: int, **options: object) -> CrossJEM:
    torch.manual_seed(1)
    limits: dict[str, Any] = {
        "max_query_tokens": 6,
        "max_item_tokens": 6,
        "max_union_tokens": 64,
        "dropout": 0.0,
    }
    return sharpened(CrossJEM(folder, HEADS[head](), item_layers, **{**limits, **options}))


def literal(head: ScoringHead, joint: Joint, own: list[Tensor] | None) -> Tensor:
    """The scores of a head, in python loops; `own` holds the item layers' states."""
    if isinstance(head, LinearHead):
        return paper_scores(joint, head.classifier, positions=head.positions, pool_cls=head.pool_cls, own=own)
    states = item_states(joint) if own is None else own
    if isinstance(head, QueryHead):
        return query_scores(joint, states, float(head.scale))
    if isinstance(head, MatchHead):
        return match_scores(joint, states, head.scale)
    assert isinstance(head, MaxSimHead)
    scores = maxsim_scores(joint, states, float(head.scale))
    return scores if head.linear is None else scores + paper_scores(joint, head.linear.classifier, own=own)


@torch.no_grad()
@pytest.mark.parametrize("item_layers", [0, 1, 2])
@pytest.mark.parametrize("head", sorted(HEADS))
def test_equals_a_literal_reference(tiny_bert: str, head: str, item_layers: int) -> None:
    ranker = build(tiny_bert, head, item_layers)
    lists = random_lists(6, seed=2)
    together = ranker(ranker.collate(lists))
    for row, one in zip(together, lists, strict=True):
        joint = joint_pass(ranker, one)
        own = item_layer_states(ranker, joint) if item_layers else None
        torch.testing.assert_close(row[: len(one)], literal(ranker.head, joint, own), **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("query_bias", [0.0, -1.5])
@pytest.mark.parametrize("head", sorted(HEADS))
def test_split_layers_equal_a_literal_reference(tiny_bert: str, head: str, query_bias: float) -> None:
    attention = {"union_positions": "item", "union_attention": "item"} if query_bias else {}
    ranker = build(tiny_bert, head, 0, split_layers=1, query_bias=query_bias, **attention)
    lists = random_lists(6, seed=2)
    together = ranker(ranker.collate(lists))
    for row, one in zip(together, lists, strict=True):
        joint, own = split_states(ranker, joint_pass(ranker, one))
        torch.testing.assert_close(row[: len(one)], literal(ranker.head, joint, own), **TOLERANCE)


@pytest.mark.parametrize("attention", ["full", "item"])
def test_split_layers_with_and_without_gradients_agree(tiny_bert: str, attention: str) -> None:
    """Training on a CPU multiplies out what inference leaves to the fused kernel."""
    ranker = build(tiny_bert, "query", 0, split_layers=1, union_attention=attention)
    batch = ranker.collate(random_lists(6, seed=4))
    with_gradients = ranker(batch)
    with torch.no_grad():
        torch.testing.assert_close(ranker(batch), with_gradients.detach(), **TOLERANCE)
    with_gradients.sum().backward()
    assert ranker.split_layers is not None
    assert all(p.grad is not None for p in ranker.split_layers.parameters() if p.requires_grad)


@torch.no_grad()
def test_items_that_share_no_token_do_not_feel_the_split(tiny_bert: str) -> None:
    whole, split = (
        build(tiny_bert, "query", 0, union_positions="item", union_attention="item", split_layers=k)
        for k in (0, 1)
    )
    apart = RankingList.from_texts("cat", ["red shoe", "blue boots", "dog"])
    shared = RankingList.from_texts("cat", ["red shoe", "blue shoe", "dog"])
    torch.testing.assert_close(whole(whole.collate([apart])), split(split.collate([apart])), **TOLERANCE)
    difference = (whole(whole.collate([shared])) - split(split.collate([shared])))[0].abs()
    assert difference[:2].min() > 1e-4
    assert difference[2] < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("family", encoder_families.FAMILIES)
def test_split_layers_of_other_encoders(family: str, tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    item: dict[str, object] = {"union_positions": "item", "union_attention": "item", "query_bias": -1.0}
    ranker = build(folder, "query", 0, split_layers=1, **item)
    one = random_lists(1, seed=4)[0]
    joint = joint_pass(ranker, one, segments=family in ("bert", "electra"), first=int(family == "roberta"))
    expected = literal(ranker.head, *split_states(ranker, joint))
    torch.testing.assert_close(ranker(ranker.collate([one]))[0], expected, **TOLERANCE)
    save_ranker(ranker, tmp_path / "saved")
    again = load_ranker(str(tmp_path / "saved")).eval()
    torch.testing.assert_close(again(again.collate([one]))[0], expected, **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("family", encoder_families.FAMILIES)
def test_item_layers_of_other_encoders(family: str, tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    ranker = build(folder, "query", 2)
    one = random_lists(1, seed=4)[0]
    first = int(family == "roberta")  # its pad id is 0
    joint = joint_pass(ranker, one, segments=family in ("bert", "electra"), first=first)
    expected = literal(ranker.head, joint, item_layer_states(ranker, joint))
    torch.testing.assert_close(ranker(ranker.collate([one]))[0], expected, **TOLERANCE)
    save_ranker(ranker, tmp_path / "saved")
    again = load_ranker(str(tmp_path / "saved")).eval()
    torch.testing.assert_close(again(again.collate([one]))[0], expected, **TOLERANCE)


@pytest.mark.parametrize("family", encoder_families.FAMILIES)
def test_item_layers_start_as_the_last_layers_and_their_positions(family: str, tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    torch.manual_seed(0)
    ranker = CrossJEM(folder, QueryHead(), 1, max_query_tokens=6, max_item_tokens=6, max_union_tokens=64)
    assert ranker.item_layers is not None
    stack = ranker.encoder.get_submodule("transformer.layer" if family == "distilbert" else "encoder.layer")
    assert isinstance(stack, nn.ModuleList)
    copied, last = ranker.item_layers.layers[0].state_dict(), stack[-1].state_dict()
    assert copied.keys() == last.keys()
    for name, value in last.items():
        assert torch.equal(copied[name], value)
        assert copied[name].data_ptr() != value.data_ptr(), "the copy is trained on its own"
    first = first_position(ranker.encoder_config)
    table = ranker.encoder.get_parameter("embeddings.position_embeddings.weight")[first : first + 6]
    if family == "electra":  # 16 wide embeddings, 32 wide layers
        table = table @ ranker.encoder.get_parameter("embeddings_project.weight").T
    torch.testing.assert_close(ranker.item_layers.positions.weight, table)
    assert table.detach().abs().max() > 0
    assert ranker.encoder_config._attn_implementation == "sdpa", "the joint layers keep their attention"


def test_more_item_positions_than_the_encoder_has_start_at_zero(tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / "electra", "electra")
    limits: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 120, "max_union_tokens": 120}
    ranker = CrossJEM(folder, QueryHead(), 1, "shared", **limits).eval()
    assert ranker.item_layers is not None
    weight = ranker.item_layers.positions.weight
    assert weight[:96].any(dim=1).all()
    assert not weight[96:].any()
    one = RankingList.from_texts("red shoes", ["red shoe " * 60, "boots"])
    assert torch.isfinite(ranker(ranker.collate([one]))).all()


@pytest.mark.parametrize(("item_layers", "split"), [(0, 0), (1, 0), (2, 0), (0, 1)])
@pytest.mark.parametrize("head", sorted(HEADS))
def test_contributions_sum_to_the_scores(tiny_bert: str, head: str, item_layers: int, split: int) -> None:
    ranker = build(tiny_bert, head, item_layers, split_layers=split, max_items_per_pass=5)
    apart = item_layers or split
    for one in random_lists(3, seed=6, most_items=30):  # two of them take several passes
        with torch.no_grad():
            scores = ranker(ranker.collate([one]))[0]
        explained = ranker.explain(one)
        assert [e.item for e in explained] == list(one.items)
        sums = torch.tensor([sum(part.value for part in e.contributions) for e in explained])
        torch.testing.assert_close(sums, scores, **TOLERANCE)
        torch.testing.assert_close(torch.tensor([e.score for e in explained]), scores, **TOLERANCE)
        for explanation in explained:
            own = ranker.tokenizer.hf.tokenize(explanation.item)[:6]
            named = [part.token for part in explanation.contributions if part.part == "item"]
            assert sorted(named) == sorted(own if apart else set(own))
            if apart:
                assert named == own, "in the item's order"
            context = [part.token for part in explanation.contributions if part.part in ("query", "special")]
            assert context == context_tokens(ranker, one)


def context_tokens(ranker: CrossJEM, one: RankingList) -> list[str]:
    query = ranker.tokenizer.hf.tokenize(one.query)[:6]
    linear = ranker.head.linear if isinstance(ranker.head, MaxSimHead) else ranker.head
    if not isinstance(linear, LinearHead):
        return []
    return [*query, "[SEP]", *(["[CLS]"] if linear.pool_cls else [])]


@torch.no_grad()
@pytest.mark.parametrize("head", ["linear", "query", "maxsim-linear", "match"])
def test_word_order_shows_only_with_item_layers(tiny_bert: str, head: str) -> None:
    one = RankingList.from_texts("red shoes", ["blue red shoe", "shoe red blue", "shoe red red blue", "car"])
    scores = build(tiny_bert, head, 0)
    same = scores(scores.collate([one]))[0]
    torch.testing.assert_close(same[:3], same[:1].expand(3), rtol=0, atol=1e-6)
    assert abs(float(same[0] - same[3])) > 1e-3
    layered = build(tiny_bert, head, 1)
    different = layered(layered.collate([one]))[0]
    gaps = [abs(float(different[i] - different[j])) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert min(gaps) > 1e-4


@torch.no_grad()
def test_sinusoids_in_a_mean_show_repeats_and_not_word_order(tiny_bert: str) -> None:
    one = RankingList.from_texts("red shoes", ["blue red shoe", "shoe red blue", "shoe red blue shoe"])
    ranker = build(tiny_bert, "linear-positions", 0)
    scores = ranker(ranker.collate([one]))[0]
    # the mean of sinusoids of positions 0, 1, 2 does not tell which token was where
    torch.testing.assert_close(scores[:3], scores[:1].expand(3), rtol=0, atol=1e-5)
    one = RankingList.from_texts("red shoes", ["blue red shoe", "blue blue red shoe"])
    scores = ranker(ranker.collate([one]))[0]
    assert abs(float(scores[0] - scores[1])) > 1e-4, "positions 0, 1, 2 against 0, 2, 3"


@torch.no_grad()
@pytest.mark.parametrize("item_layers", [0, 1])
@pytest.mark.parametrize("head", sorted(HEADS))
def test_bfloat16_autocast_gives_float32_scores_near_full_precision(
    tiny_bert: str, head: str, item_layers: int
) -> None:
    torch.manual_seed(1)
    ranker = CrossJEM(
        tiny_bert, HEADS[head](), item_layers, max_query_tokens=6, max_item_tokens=6, max_union_tokens=64
    ).eval()
    batch = ranker.collate(random_lists(4, seed=2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = ranker(batch)
    full = ranker(batch)
    assert low.dtype == torch.float32
    assert torch.isfinite(low).all()
    assert not torch.equal(low, full), "autocast did run"
    torch.testing.assert_close(low, full, rtol=0.02, atol=0.05)


def test_query_head_scale_starts_where_it_is_told_and_learns(tiny_bert: str) -> None:
    ranker = build(tiny_bert, "query-scale", 0)
    assert isinstance(ranker.head, QueryHead)
    assert ranker.head.scale.item() == 3.0
    batch = ranker.collate(random_lists(2, seed=0))
    scores = ranker(batch)
    assert scores.abs().max() <= 3.0
    scores.sum().backward()
    cosines = scores.detach().sum() / 3.0
    torch.testing.assert_close(ranker.head.scale.grad, cosines, rtol=1e-4, atol=1e-4)


def test_sinusoids_are_those_of_the_formula() -> None:
    for width in (1, 7, 32):
        expected = torch.stack([sinusoid(position, width) for position in range(9)])
        torch.testing.assert_close(sinusoids(9, width), expected, rtol=1e-5, atol=1e-5)


def test_segments_agree_with_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(40, 3, generator=generator)
    segment = torch.randint(0, 6, (40,), generator=generator)  # segment 6 stays empty
    groups = [values[segment == i] for i in range(7)]
    torch.testing.assert_close(segment_sum(values, segment, 7), torch.stack([g.sum(0) for g in groups]))
    means = torch.stack([g.mean(0) if len(g) else torch.zeros(3) for g in groups])
    torch.testing.assert_close(segment_mean(values, segment, 7), means)
    maxima = torch.stack([g.amax(0) if len(g) else torch.full((3,), -torch.inf) for g in groups])
    assert torch.equal(segment_max(values, segment, 7), maxima)
    torch.testing.assert_close(
        segment_sum(values[:, 0], segment, 7), torch.stack([g[:, 0].sum() for g in groups])
    )
