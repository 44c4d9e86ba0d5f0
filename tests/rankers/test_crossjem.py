"""CROSS-JEM against the paper's algorithms, its passes, forms and limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, LinearHead, MatchHead, QueryHead
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests import tiny_models
from tests.rankers import encoder_families
from tests.rankers.literal import classifier, joint_pass, paper_scores, random_lists, sharpened

TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
LIMITS: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6, "max_union_tokens": 96}
ITEM: dict[str, Any] = {"union_positions": "item", "union_attention": "item", "query_bias": -1.5}
BEST: dict[str, Any] = {"form": "best", "max_items_per_pass": 100}


def build(folder: str, *arguments: Any, **options: object) -> CrossJEM:
    torch.manual_seed(0)
    return sharpened(CrossJEM(folder, *arguments, **{**LIMITS, **options}))


@torch.no_grad()
def batched_scores(ranker: CrossJEM, lists: list[RankingList], batch_size: int = 16) -> list[Tensor]:
    scores: list[Tensor] = []
    for first in range(0, len(lists), batch_size):
        part = lists[first : first + batch_size]
        scores += [row[: len(one)] for row, one in zip(ranker(ranker.collate(part)), part, strict=True)]
    return scores


# --- the paper's algorithms --------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("union", [{}, ITEM], ids=["paper", "item"])
@pytest.mark.parametrize(("positions", "pool_cls", "count"), [(False, False, 100), (True, True, 40)])
def test_equals_algorithms_1_and_2(
    tiny_bert: str, union: dict[str, Any], positions: bool, pool_cls: bool, count: int
) -> None:
    ranker = build(tiny_bert, LinearHead(positions, pool_cls), **union)
    lists = random_lists(count, seed=count)
    for one, scores in zip(lists, batched_scores(ranker, lists), strict=True):
        joint = joint_pass(ranker, one)
        expected = paper_scores(joint, classifier(ranker), positions=positions, pool_cls=pool_cls)
        torch.testing.assert_close(scores, expected, **TOLERANCE)


@torch.no_grad()
def test_every_decision_shows_in_the_scores(tiny_bert: str) -> None:
    """The comparison above would notice [CLS] in the pool, positions, or another union order."""
    one = random_lists(1, seed=3)[0]
    paper = build(tiny_bert)
    joint, weights = joint_pass(paper, one), classifier(paper)
    expected = paper_scores(joint, weights)
    variants = [
        paper_scores(joint, weights, pool_cls=True),
        paper_scores(joint, weights, positions=True),
        paper_scores(joint_pass(build(tiny_bert, union_positions="item"), one), weights),
        paper_scores(joint_pass(paper, one, backwards=True), weights),
        paper_scores(joint_pass(paper, one, segments=False), weights),
    ]
    for variant in variants:
        assert (variant - expected).abs().max() > 1e-3


# --- the batch ---------------------------------------------------------------------------------------------


def ids(ranker: CrossJEM, words: str) -> list[int]:
    return [ranker.tokenizer.hf.get_vocab()[word] for word in words.split()]


def test_input_ids_are_cls_query_sep_union_without_a_last_sep(tiny_bert: str) -> None:
    ranker = build(tiny_bert).train()  # one run
    long = RankingList.from_texts("red shoe", ["blue shoe boots", "boots boots car"], "long")
    short = RankingList.from_texts("cheap", ["dog"], "short")
    (run,) = ranker.collate([long, short]).runs
    first = [*ids(ranker, "[CLS] red shoe [SEP]"), *sorted(ids(ranker, "blue shoe boots car"))]
    second = ids(ranker, "[CLS] cheap [SEP] dog")
    assert run["input_ids"].tolist() == [first, second + [0] * 4]
    assert run["attention_mask"].tolist() == [[1] * 8, [1] * 4 + [0] * 4]
    assert run["segment_ids"].tolist() == [[0] * 4 + [1] * 4, [0] * 3 + [1] + [0] * 4]
    assert "position_ids" not in run
    (run,) = build(tiny_bert, union_positions="item").train().collate([long, short]).runs
    places = dict(zip(run["input_ids"][0].tolist(), run["position_ids"][0].tolist(), strict=True))
    assert [places[token] for token in ids(ranker, "red shoe [SEP] blue boots car")] == [1, 2, 3, 1, 1, 3]
    assert "segment_ids" not in run


def test_the_batch_counts_cut_texts(tiny_bert: str) -> None:
    ranker = build(tiny_bert, max_query_tokens=2, max_item_tokens=3)
    lists = [
        RankingList.from_texts("red shoe boots", ["red shoe boots car", "red", "dog cat car book red"], "a"),
        RankingList.from_texts("red shoe", ["red shoe boots"], "b"),
    ]
    batch = ranker.collate(lists)
    assert (batch.truncated_queries, batch.truncated_items) == (1, 2)
    assert batch.item_mask.tolist() == [[True, True, True], [True, False, False]]
    moved = batch.to("meta")
    assert {value.device.type for value in (moved.places, *moved.runs[0].values())} == {"meta"}


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, BEST], ids=["paper", "best"])
def test_padding_to_few_shapes_changes_nothing(tiny_bert: str, options: dict[str, Any]) -> None:
    ranker = build(tiny_bert, **options)
    lists = random_lists(5, seed=4)
    expected = ranker(ranker.collate(lists))
    ranker.pad_to_few_shapes()
    batch = ranker.collate(lists)
    torch.testing.assert_close(ranker(batch), expected, **TOLERANCE)
    steps = {"passes": 4, "pass_tokens": 64 if options else 32, "items": 64, "outputs": 64, "groups": 64}
    for run in batch.runs:
        assert list(run) == list(ranker.run_axes)
        for name, axes in ranker.run_axes.items():
            for axis, size in zip(axes, run[name].shape, strict=True):
                assert size % steps.get(axis, 1) == 0, f"{name}, {axis}"


@torch.no_grad()
def test_passes_of_unequal_length_run_without_much_padding(tiny_bert: str) -> None:
    ranker = build(tiny_bert, **BEST)
    lists = []
    for count in (3, 60, 4, 90, 5):
        texts = dict.fromkeys(text for one in random_lists(40, seed=count) for text in one.items)
        lists.append(RankingList.from_texts("red shoes", list(texts)[:count]))
    ranker.run_cost = 10**9
    (whole,) = ranker.collate(lists).runs
    expected = ranker(ranker.collate(lists))
    ranker.run_cost = None  # by the device: a CPU
    batch = ranker.collate(lists)
    assert sum(run["input_ids"].numel() for run in batch.runs) < 0.75 * whole["input_ids"].numel()
    torch.testing.assert_close(ranker(batch), expected, **TOLERANCE)
    assert len(ranker.train().collate(lists).runs) == len(batch.runs) > 1, "training too"


# --- several passes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seven_hundred() -> RankingList:
    texts = [text for one in random_lists(150, seed=7) for text in one.items][:700]
    assert len(texts) == 700
    return RankingList.from_texts("red running shoes", texts)


@pytest.mark.parametrize("form", ["paper", "best"])
def test_a_long_list_equals_its_passes_alone(tiny_bert: str, seven_hundred: RankingList, form: str) -> None:
    ranker = build(tiny_bert, form=form, max_items_per_pass=100, max_union_tokens=38)
    passes = ranker.passes([seven_hundred])
    plan = torch.from_numpy(passes.pass_of_row[passes.row_of_item])
    assert len(passes.queries.lengths) >= 7
    scores = batched_scores(ranker, [seven_hundred])[0]
    for number in range(len(passes.queries.lengths)):
        members = torch.nonzero(plan == number)[:, 0]
        alone = seven_hundred.select(members.tolist())
        assert len(ranker.passes([alone]).queries.lengths) == 1
        torch.testing.assert_close(scores[members], batched_scores(ranker, [alone])[0], **TOLERANCE)


@pytest.mark.parametrize("form", ["paper", "best"])
def test_lists_share_a_batch_and_their_order_does_not_matter(
    tiny_bert: str, seven_hundred: RankingList, form: str
) -> None:
    ranker = build(tiny_bert, form=form, max_items_per_pass=50)
    lists = [random_lists(1, seed=1)[0], seven_hundred, random_lists(1, seed=2)[0]]
    together = batched_scores(ranker, lists)
    for one, scores in zip(lists, together, strict=True):
        torch.testing.assert_close(scores, batched_scores(ranker, [one])[0], **TOLERANCE)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(0))
    permuted = batched_scores(ranker, [seven_hundred.select(order.tolist())])[0]
    torch.testing.assert_close(permuted, together[1][order], **TOLERANCE)


@pytest.mark.parametrize("form", ["paper", "paper-positional", "best", "best-query"])
def test_equal_texts_tie_exactly(tiny_bert: str, form: str) -> None:
    ranker = build(tiny_bert, form=form, max_items_per_pass=9)
    texts = [text for one in random_lists(8, seed=5) for text in one.items][:40]
    scores = batched_scores(ranker, [RankingList.from_texts("red shoes", [*texts, *texts[::-1]])])[0]
    assert torch.equal(scores[:40], scores[40:].flip(0))
    assert len(scores.unique()) > 20


def test_one_pass_items_is_what_fits_one_pass(tiny_bert: str) -> None:
    ranker = build(tiny_bert, max_items_per_pass=5, max_union_tokens=12)
    for one in random_lists(40, seed=11):
        fits = ranker.one_pass_items(one)
        assert 1 <= fits <= 5
        assert len(ranker.passes([one.select(range(fits))]).queries.lengths) == 1


# --- one program -------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("form", ["paper", "best"])
def test_the_whole_network_compiles_to_one_graph(tiny_bert: str, form: str) -> None:
    ranker = build(tiny_bert, form=form)
    compiled = torch.compile(ranker.score_run, fullgraph=True, backend="eager")
    (run,) = ranker.train().collate(random_lists(3, seed=1)).runs
    ranker.eval()
    torch.testing.assert_close(compiled(**run), ranker.score_run(**run), **TOLERANCE)


# --- forms -------------------------------------------------------------------------------------------------


def test_what_is_given_overrides_the_form(tiny_bert: str) -> None:
    paper, best = CrossJEM(tiny_bert, max_union_tokens=90), CrossJEM(tiny_bert, form="best")
    assert isinstance(paper.head, LinearHead)
    assert isinstance(best.head, MatchHead)
    assert (paper.max_items_per_pass, paper.max_union_tokens) == (100, 90)
    assert (best.max_items_per_pass, best.max_union_tokens) == (700, 450)
    assert (best.union_positions, best.union_attention, best.query_bias) == ("item", "item", -3.0)
    assert best.item_side_layers is not None
    assert paper.item_side_layers is None
    other = CrossJEM(
        tiny_bert, QueryHead(), "best", query_bias=-1.0, item_side_layers=0, max_items_per_pass=8
    )
    assert isinstance(other.head, QueryHead)
    assert (other.query_bias, other.item_side_layers, other.max_items_per_pass) == (-1.0, None, 8)
    assert other.union_attention == "item"


def test_a_folder_from_before_shared_feed_forward_networks_keeps_its_scores(
    tiny_bert: str, tmp_path: Path
) -> None:
    ranker, one = build(tiny_bert, **BEST, shared_feed_forward=False), random_lists(1, seed=3)[0]
    expected = ranker(ranker.collate([one]))
    assert not torch.allclose(build(tiny_bert, **BEST)(ranker.collate([one])), expected, atol=1e-3)
    save_ranker(ranker, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["crossjem_pl"]["init_args"]["shared_feed_forward"]
    del config["crossjem_pl"]["sha256"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    again = load_ranker(str(tmp_path)).eval()
    torch.testing.assert_close(again(again.collate([one])), expected, **TOLERANCE)


# --- encoders ----------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("union", [{}, ITEM], ids=["sequential", "item"])
@pytest.mark.parametrize("family", [*encoder_families.FAMILIES, "modernbert"])
def test_other_encoders(family: str, union: dict[str, Any], tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    if family == "modernbert" and union:
        with pytest.raises(ValueError, match=r"layers see the whole sequence.*; modernbert with sdpa"):
            CrossJEM(folder, **{**LIMITS, "max_union_tokens": 80, **union})
        return
    # item positions let unions be longer than the position table
    ranker = build(folder, max_union_tokens=300 if union else 80, **union)
    lists = random_lists(10, seed=12, most_items=60 if union else 12)
    options: dict[str, Any] = {"segments": family in ("bert", "electra"), "first": int(family == "roberta")}
    for one, scores in zip(lists, batched_scores(ranker, lists), strict=True):
        expected = paper_scores(joint_pass(ranker, one, **options), classifier(ranker))
        torch.testing.assert_close(scores, expected, **TOLERANCE)
    save_ranker(ranker, tmp_path / "saved")
    again = load_ranker(str(tmp_path / "saved")).eval()
    assert isinstance(again, CrossJEM)
    torch.testing.assert_close(batched_scores(again, lists)[0], batched_scores(ranker, lists)[0], **TOLERANCE)


def test_roberta_has_fewer_positions_than_its_table(tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / "roberta", "roberta")
    limits: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 8}
    with pytest.raises(ValueError, match="need 96 positions, the encoder has 95"):
        CrossJEM(folder, max_union_tokens=88, **limits)
    ranker = CrossJEM(folder, max_union_tokens=87, **limits).eval()
    items = [*set(tiny_models.WORDS[:60]) | set("abcdefghijklmnopqrstuvwxyz12")]
    batch = ranker.collate([RankingList.from_texts("red shoes for kids a 2", items)])
    assert batch.runs[0]["input_ids"].shape == (1, 95), "no padding beyond the positions"
    assert torch.isfinite(ranker(batch)).all()


@torch.no_grad()
def test_with_item_attention_only_items_that_share_tokens_change_a_score(tiny_bert: str) -> None:
    """The items that the others share no token with keep their scores; under full attention none does."""
    own, others = ["red shoe", "blue boots"], ["cheap dog", "car book"]
    for attention, change in (("item", 0.0), ("full", 1e-3)):
        ranker = build(tiny_bert, QueryHead(), union_positions="item", union_attention=attention)
        alone, among = (RankingList.from_texts("cat", items) for items in (own, own + others))
        difference = (batched_scores(ranker, [alone])[0] - batched_scores(ranker, [among])[0][:2]).abs()
        assert bool((difference <= 5e-6).all()) if change == 0.0 else bool((difference > change).any())


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_another_ranker_starts_from_an_encoder_with_item_side_layers(family: str, tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    limits: dict[str, Any] = {**LIMITS, "max_union_tokens": 80}
    apart = build(folder, item_side_layers=1, **limits)
    save_ranker(apart, tmp_path / "apart")
    whole = CrossJEM(str(tmp_path / "apart"), **limits)
    again = CrossJEM(str(tmp_path / "apart"), item_side_layers=1, **limits)
    stack = "transformer.layer" if family == "distilbert" else "encoder.layer"
    assert apart.item_side_layers is not None
    assert again.item_side_layers is not None
    for name, value in apart.item_side_layers[0].state_dict().items():
        assert torch.equal(whole.encoder.state_dict()[f"{stack}.1.{name}"], value)
        assert torch.equal(again.item_side_layers[0].state_dict()[name], value)
    for name, value in apart.encoder.state_dict().items():
        assert torch.equal(whole.encoder.state_dict()[name], value)


# --- bad arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_union_tokens": 153},
            r"max_query_tokens=6 \+ 2 \+ max_union_tokens=153 need 161 positions.* has 160",
        ),
        ({"max_query_tokens": 159, "union_positions": "item"}, "need 161 positions, the encoder has 160"),
        ({"max_union_tokens": 5}, "max_union_tokens=5 cannot hold one item of max_item_tokens=6"),
        ({"max_items_per_pass": 0}, "max_items_per_pass must be at least 1, got 0"),
        ({"max_query_tokens": 0}, "max_query_tokens must be at least 1, got 0"),
        (
            {"item_side_layers": 2},
            "item_side_layers=2, but the encoder has 2 layers and one must come before",
        ),
        ({"item_side_layers": -1}, "item_side_layers=-1, but the encoder has 2 layers"),
        ({"layers": 3}, "layers=3, but .* has 2"),
        ({"max_item_tokns": 3}, "unknown argument 'max_item_tokns'"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"form": "none"}, "form must be one of paper, paper-positional, best, best-query, got 'none'"),
        ({"union_positions": "shared"}, "union_positions must be one of sequential, item, got 'shared'"),
        ({"union_attention": "none"}, "union_attention must be one of full, item, got 'none'"),
        ({"query_bias": -3.0}, "query_bias=-3.0 needs union_attention='item'"),
        ({"shared_feed_forward": True}, "shared_feed_forward needs item-side layers"),
        ({"own_places": True, "item_side_layers": 1}, "own_places needs union_positions='item'"),
        ({"union_attention": "item", "attn_implementation": "flex_attention"}, "bert with flex_attention"),
        ({"pass_order": "given"}, "pass_order must be one of sorted, overlap, got 'given'"),
    ],
)
def test_limits_that_contradict_are_named(tiny_bert: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CrossJEM(tiny_bert, **{**LIMITS, **options})
