from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, LinearHead, QueryHead, crossjem
from crossjem_pl.rankers.crossjem.batch import JointBatch
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from crossjem_pl.text import plan_passes
from tests import tiny_models
from tests.rankers import encoder_families
from tests.rankers.literal import classifier, joint_pass, paper_scores, random_lists, sharpened

TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
LIMITS: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6, "max_union_tokens": 96}


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
@pytest.mark.parametrize(
    ("union_positions", "attention"),
    [
        ("sequential", {}),
        ("shared", {}),
        ("item", {"union_attention": "item", "query_bias": -1.5}),
        ("sequential", {"union_attention": "item"}),
        ("item", {}),
    ],
)
@pytest.mark.parametrize(
    ("positions", "pool_cls", "count"), [(False, False, 200), (True, False, 60), (True, True, 60)]
)
def test_equals_algorithms_1_and_2(
    tiny_bert: str,
    union_positions: str,
    attention: dict[str, object],
    positions: bool,
    pool_cls: bool,
    count: int,
) -> None:
    ranker = build(tiny_bert, LinearHead(positions, pool_cls), 0, union_positions, **attention)
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
    shared = build(tiny_bert, None, 0, "shared")
    joint, other = joint_pass(paper, one), joint_pass(shared, one)
    weights = classifier(paper)
    expected = paper_scores(joint, weights)
    variants = [
        paper_scores(joint, weights, pool_cls=True),
        paper_scores(joint, weights, positions=True),
        paper_scores(other, weights),
        paper_scores(joint_pass(paper, one, backwards=True), weights),
        paper_scores(joint_pass(paper, one, segments=False), weights),
    ]
    for variant in variants:
        assert (variant - expected).abs().max() > 1e-3
    # under shared positions the union is a set: its order does not matter
    backwards = paper_scores(joint_pass(shared, one, backwards=True), weights)
    torch.testing.assert_close(backwards, paper_scores(other, weights), **TOLERANCE)


def test_the_bias_is_optional_and_moves_all_scores_alike(tiny_bert: str) -> None:
    one = random_lists(1, seed=8)[0]
    with_bias, without = build(tiny_bert), build(tiny_bert, LinearHead(bias=False))
    with torch.no_grad():
        without.encoder.load_state_dict(with_bias.encoder.state_dict())
        classifier(without).weight.copy_(classifier(with_bias).weight)
        classifier(with_bias).bias.fill_(0.75)
    difference = batched_scores(with_bias, [one])[0] - batched_scores(without, [one])[0]
    torch.testing.assert_close(difference, torch.full((len(one),), 0.75), **TOLERANCE)


# --- the input ids -----------------------------------------------------------------------------------------


def ids(ranker: CrossJEM, words: str) -> list[int]:
    return [ranker.tokenizer.hf.get_vocab()[word] for word in words.split()]


def test_input_ids_are_cls_query_sep_union_without_a_last_sep(tiny_bert: str) -> None:
    ranker = build(tiny_bert)
    long = RankingList.from_texts("red shoe", ["blue shoe boots", "boots boots car"], "long")
    short = RankingList.from_texts("cheap", ["dog"], "short")
    batch = ranker.collate([long, short])
    union = sorted(ids(ranker, "blue shoe boots car"))
    first = [*ids(ranker, "[CLS] red shoe [SEP]"), *union]
    second = ids(ranker, "[CLS] cheap [SEP] dog")
    padding = len(first) - len(second)
    assert batch.input_ids.tolist() == [first, second + [0] * padding]
    assert batch.attention_mask.tolist() == [[1] * len(first), [1] * len(second) + [0] * padding]
    assert batch.segment_ids.tolist() == [[0] * 4 + [1] * 4, [0] * 3 + [1] * 5]
    assert batch.position_ids is None
    shared = build(tiny_bert, None, 0, "shared").collate([long, short])
    assert shared.position_ids is not None
    assert shared.position_ids.tolist() == [[0, 1, 2, 3, 4, 4, 4, 4], [0, 1, 2, 3, 3, 3, 3, 3]]


def test_the_batch_counts_cut_texts(tiny_bert: str) -> None:
    ranker = build(tiny_bert, max_query_tokens=2, max_item_tokens=3)
    lists = [
        RankingList.from_texts("red shoe boots", ["red shoe boots car", "red", "dog cat car book red"], "a"),
        RankingList.from_texts("red shoe", ["red shoe boots"], "b"),
    ]
    batch = ranker.collate(lists)
    assert (batch.truncated_queries, batch.truncated_items) == (1, 2)
    assert batch.item_mask.tolist() == [[True, True, True], [True, False, False]]


def test_moves_to_another_device_as_a_whole(tiny_bert: str) -> None:
    batch = build(tiny_bert, None, 0, "shared").collate(random_lists(2, seed=0)).to("meta")
    assert isinstance(batch, JointBatch)
    assert {v.device.type for v in vars(batch).values() if isinstance(v, Tensor)} == {"meta"}
    assert isinstance(batch.truncated_items, int)


# --- several passes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seven_hundred() -> RankingList:
    texts = [text for one in random_lists(150, seed=7) for text in one.items][:700]
    assert len(texts) == 700
    return RankingList.from_texts("red running shoes", texts)


@pytest.mark.parametrize("pass_order", ["sorted", "given"])
def test_a_long_list_equals_its_passes_alone(
    tiny_bert: str, seven_hundred: RankingList, pass_order: str
) -> None:
    ranker = build(tiny_bert, max_union_tokens=38, pass_order=pass_order)
    batch = ranker.collate([seven_hundred])
    items = ranker.encode_items([seven_hundred]).tokens
    plan = torch.from_numpy(plan_passes(items, 100, 38, pass_order))  # type: ignore[arg-type]
    assert len(batch.input_ids) == int(plan.max()) + 1 >= 7
    assert torch.equal(batch.item_pass, plan)
    scores = batched_scores(ranker, [seven_hundred])[0]
    for number in range(len(batch.input_ids)):
        members = torch.nonzero(plan == number)[:, 0]
        alone = seven_hundred.select(members.tolist())
        assert len(ranker.collate([alone]).input_ids) == 1
        torch.testing.assert_close(scores[members], batched_scores(ranker, [alone])[0], **TOLERANCE)


def test_long_and_short_lists_share_a_batch(tiny_bert: str, seven_hundred: RankingList) -> None:
    ranker = build(tiny_bert, max_items_per_pass=50)
    lists = [random_lists(1, seed=1)[0], seven_hundred, random_lists(1, seed=2)[0]]
    for one, scores in zip(lists, batched_scores(ranker, lists), strict=True):
        torch.testing.assert_close(scores, batched_scores(ranker, [one])[0], **TOLERANCE)


def test_the_order_of_a_long_list_does_not_matter(tiny_bert: str, seven_hundred: RankingList) -> None:
    ranker = build(tiny_bert, max_items_per_pass=40)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(0))
    permuted = batched_scores(ranker, [seven_hundred.select(order.tolist())])[0]
    torch.testing.assert_close(permuted, batched_scores(ranker, [seven_hundred])[0][order], **TOLERANCE)


@pytest.mark.parametrize("item_layers", [0, 1])
@pytest.mark.parametrize("pass_order", ["sorted", "given"])
def test_equal_texts_get_equal_scores(tiny_bert: str, pass_order: str, item_layers: int) -> None:
    ranker = build(tiny_bert, QueryHead(), item_layers, max_items_per_pass=9, pass_order=pass_order)
    texts = [text for one in random_lists(8, seed=5) for text in one.items][:40]
    scores = batched_scores(ranker, [RankingList.from_texts("red shoes", [*texts, *texts[::-1]])])[0]
    torch.testing.assert_close(scores[:40], scores[40:].flip(0), rtol=0, atol=1e-6)
    assert len(scores.unique()) > 20


def test_one_pass_items_is_what_fits_one_pass(tiny_bert: str) -> None:
    ranker = build(tiny_bert, max_items_per_pass=5, max_union_tokens=12)
    for one in random_lists(40, seed=11):
        fits = ranker.one_pass_items(one)
        assert 1 <= fits <= 5
        assert len(ranker.collate([one.select(range(fits))]).input_ids) == 1


# --- positions and encoders --------------------------------------------------------------------------------


@torch.no_grad()
def test_shared_positions_hold_unions_longer_than_the_position_table(tmp_path: Path) -> None:
    folder = str(tiny_models.write_bert(tmp_path / "short", positions=10))
    ranker = build(folder, None, 0, "shared")
    one = random_lists(1, seed=9)[0]
    joint = joint_pass(ranker, one)
    assert len(joint.states) > 10
    torch.testing.assert_close(
        batched_scores(ranker, [one])[0], paper_scores(joint, classifier(ranker)), **TOLERANCE
    )


@torch.no_grad()
@pytest.mark.parametrize("union_positions", ["sequential", "shared"])
@pytest.mark.parametrize("family", [*encoder_families.FAMILIES, "modernbert"])
def test_other_encoders(family: str, union_positions: str, tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    ranker = build(folder, None, 0, union_positions, max_union_tokens=80)
    lists = random_lists(10, seed=12)
    literal = {
        "segments": family in ("bert", "electra"),
        "first": int(family == "roberta"),
    }  # roberta's pad id is 0
    for one, scores in zip(lists, batched_scores(ranker, lists), strict=True):
        expected = paper_scores(joint_pass(ranker, one, **literal), classifier(ranker))  # type: ignore[arg-type]
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
    assert batch.input_ids.shape == (1, 95)
    assert torch.isfinite(ranker(batch)).all()


@pytest.mark.parametrize(
    ("family", "attention"),
    [
        ("bert", "full"),
        ("distilbert", "full"),
        ("modernbert", "full"),
        ("bert", "item"),
        ("distilbert", "item"),
    ],
)
def test_eager_and_sdpa_attention_agree(family: str, attention: str, tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    lists = random_lists(10, seed=13)
    options = {"max_union_tokens": 80, "union_attention": attention}
    layers = 0 if family == "modernbert" else 1
    eager = build(folder, QueryHead(), layers, attn_implementation="eager", **options)
    sdpa = build(folder, QueryHead(), layers, attn_implementation="sdpa", **options)
    assert eager.encoder_config._attn_implementation == "eager"
    assert sdpa.encoder_config._attn_implementation == "sdpa"
    for a, b in zip(batched_scores(eager, lists), batched_scores(sdpa, lists), strict=True):
        torch.testing.assert_close(a, b, **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("family", encoder_families.FAMILIES)
def test_other_encoders_with_item_attention(family: str, tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    item = {"union_attention": "item", "query_bias": -2.0}
    ranker = build(folder, None, 0, "item", max_union_tokens=300, **item)
    lists = random_lists(10, seed=12, most_items=60)
    literal = {"segments": family in ("bert", "electra"), "first": int(family == "roberta")}
    for one, scores in zip(lists, batched_scores(ranker, lists), strict=True):
        expected = paper_scores(joint_pass(ranker, one, **literal), classifier(ranker))  # type: ignore[arg-type]
        torch.testing.assert_close(scores, expected, **TOLERANCE)
    save_ranker(ranker, tmp_path / "saved")
    again = load_ranker(str(tmp_path / "saved")).eval()
    assert isinstance(again, CrossJEM)
    torch.testing.assert_close(batched_scores(again, lists)[0], batched_scores(ranker, lists)[0], **TOLERANCE)


def test_item_attention_names_the_encoders_that_have_it(tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / "modern", "modernbert")
    with pytest.raises(
        ValueError, match=r"layers see the whole sequence.*; modernbert with sdpa attention is"
    ):
        CrossJEM(folder, **{**LIMITS, "max_union_tokens": 80, "union_attention": "item"})


@torch.no_grad()
def test_with_item_attention_only_items_that_share_tokens_change_a_score(tiny_bert: str) -> None:
    """The items that the others share no token with keep their scores; under full attention none does."""
    own, others = ["red shoe", "blue boots"], ["cheap dog", "car book"]
    for attention, change in (("item", 0.0), ("full", 1e-3)):
        ranker = build(tiny_bert, QueryHead(), 0, "item", union_attention=attention)
        alone, among = (RankingList.from_texts("cat", items) for items in (own, own + others))
        difference = (batched_scores(ranker, [alone])[0] - batched_scores(ranker, [among])[0][:2]).abs()
        assert bool((difference <= 1e-6).all()) if change == 0.0 else bool((difference > change).any())


def test_item_layers_name_the_encoders_that_have_them(tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / "modern", "modernbert")
    with pytest.raises(ValueError, match=r"item layers need .*BERT, DistilBERT.*ModernBertModel is not one"):
        CrossJEM(folder, None, 1, max_query_tokens=8, max_item_tokens=8, max_union_tokens=64)


def test_passes_of_unequal_length_are_encoded_without_much_padding(
    tiny_bert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = build(tiny_bert, QueryHead(), 0, "shared").eval()
    lists = [one for count in (3, 60, 4, 90, 5) for one in [_of_length(count)]]
    batch = ranker.collate(lists)
    in_one = ranker(batch)  # gradients are on
    shapes: list[tuple[int, ...]] = []
    encode = crossjem.encode_tokens

    def counted(encoder: nn.Module, input_ids: Tensor, *rest: Any) -> Tensor:
        shapes.append(tuple(input_ids.shape))
        return encode(encoder, input_ids, *rest)

    monkeypatch.setattr(crossjem, "encode_tokens", counted)
    with torch.no_grad():
        torch.testing.assert_close(ranker(batch), in_one.detach(), **TOLERANCE)
    assert len(shapes) > 1
    assert sum(rows for rows, _ in shapes) == len(batch.input_ids)
    assert sum(rows * width for rows, width in shapes) < 0.7 * batch.input_ids.numel()


def _of_length(items: int) -> RankingList:
    texts = dict.fromkeys(text for one in random_lists(40, seed=items) for text in one.items)
    return RankingList.from_texts("red shoes", list(texts)[:items])


# --- bad arguments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_union_tokens": 153},
            r"max_query_tokens=6 \+ 2 \+ max_union_tokens=153 need 161 positions.* has 160",
        ),
        ({"max_query_tokens": 158, "union_positions": "shared"}, "need 161 positions, the encoder has 160"),
        ({"max_union_tokens": 5}, "max_union_tokens=5 cannot hold one item of max_item_tokens=6"),
        ({"max_items_per_pass": 0}, "max_items_per_pass must be at least 1, got 0"),
        ({"max_query_tokens": 0}, "max_query_tokens must be at least 1, got 0"),
        ({"max_item_tokens": -1}, "max_item_tokens must be at least 1, got -1"),
        ({"item_layers": 3}, "item_layers=3, but the encoder has 2 layers"),
        ({"split_layers": 2}, "split_layers=2, but the encoder has 2 layers and one must stay joint"),
        ({"split_layers": -1}, "split_layers=-1, but the encoder has 2 layers"),
        ({"split_layers": 1, "item_layers": 1}, "item_layers=1 and split_layers=1: give one of them"),
        ({"item_layers": -1}, "item_layers=-1, but the encoder has 2 layers"),
        ({"layers": 3}, "layers=3, but .* has 2"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"union_positions": "none"}, "union_positions must be one of sequential, shared, item, got 'none'"),
        ({"union_attention": "none"}, "union_attention must be one of full, item, got 'none'"),
        ({"query_bias": -3.0}, "query_bias=-3.0 needs union_attention='item'"),
        ({"max_query_tokens": 159, "union_positions": "item"}, "need 161 positions, the encoder has 160"),
        ({"union_attention": "item", "attn_implementation": "flex_attention"}, "bert with flex_attention"),
        ({"pass_order": "random"}, "pass_order must be one of sorted, given, overlap, got 'random'"),
    ],
)
def test_limits_that_contradict_are_named(tiny_bert: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CrossJEM(tiny_bert, **{**LIMITS, **options})


def test_the_longest_inputs_that_the_limits_allow_run(tiny_bert: str) -> None:
    ranker = CrossJEM(tiny_bert, max_query_tokens=157, max_item_tokens=2, union_positions="shared").eval()
    one = RankingList.from_texts("red " * 200, ["blue shoe"])
    batch = ranker.collate([one])
    assert batch.input_ids.shape == (
        1,
        161,
    )  # one position more than the table has: the union shares the last
    assert torch.isfinite(ranker(batch)).all()


def test_an_unknown_head_in_a_folder_is_named(tiny_bert: str, tmp_path: Path) -> None:
    ranker = build(tiny_bert)
    save_ranker(ranker, tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"LinearHead"', '"Tensor"'))
    with pytest.raises(ValueError, match="unknown scoring head 'Tensor'"):
        load_ranker(str(tmp_path))


def test_collate_needs_a_list(tiny_bert: str) -> None:
    with pytest.raises(ValueError, match="collate needs at least one list"):
        build(tiny_bert).collate([])


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_another_ranker_starts_from_an_encoder_whose_last_layers_are_split(
    family: str, tmp_path: Path
) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    limits: dict[str, Any] = {**LIMITS, "max_union_tokens": 80}
    split = build(folder, None, 0, split_layers=1, **limits)
    save_ranker(split, tmp_path / "split")
    whole = CrossJEM(str(tmp_path / "split"), **limits)
    again = CrossJEM(str(tmp_path / "split"), split_layers=1, **limits)
    stack = "transformer.layer" if family == "distilbert" else "encoder.layer"
    assert split.split_layers is not None
    assert again.split_layers is not None
    for name, value in split.split_layers.layers[0].state_dict().items():
        assert torch.equal(whole.encoder.state_dict()[f"{stack}.1.{name}"], value)
        assert torch.equal(again.split_layers.layers[0].state_dict()[name], value)
    for name, value in split.encoder.state_dict().items():
        assert torch.equal(whole.encoder.state_dict()[name], value)
