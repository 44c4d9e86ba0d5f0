from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel, DistilBertConfig, ModernBertConfig, PretrainedConfig, T5Config

from crossjem_pl.data.overlap import EncoderShape, encoder_shape, measure_overlap
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, MonoBERT
from crossjem_pl.text import ShortTextTokenizer
from tests import tiny_models
from tests.conftest import example_lists

SHAPE = EncoderShape(width=32, feed_forward=64, layers=2)


@pytest.fixture(scope="module")
def tokenizer() -> ShortTextTokenizer:
    return ShortTextTokenizer(tiny_models.tokenizer())


@pytest.mark.parametrize("limit", [1, 2, 32])
def test_agrees_with_python_sets(tokenizer: ShortTextTokenizer, limit: int) -> None:
    lists = example_lists(15, seed=1)
    tokens = [[tokenizer.hf.tokenize(text)[:limit] for text in one.items] for one in lists]
    total = [sum(map(len, rows)) for rows in tokens]
    union = [len({token for row in rows for token in row}) for rows in tokens]
    (row,) = measure_overlap(iter(lists), tokenizer, SHAPE, max_item_tokens=[limit], items=[1]).limits
    assert row.lists == 15
    found = (row.mean_items, row.total_tokens, row.union_tokens, row.ratio)
    assert found == pytest.approx(
        (np.mean([len(one) for one in lists]), np.mean(total), np.mean(union), sum(total) / sum(union))
    )


@pytest.mark.parametrize("length", [3, 40])
def test_flops_are_those_that_torch_counts(length: int) -> None:
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=80
    )
    config._attn_implementation = "eager"
    model = BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.zeros(2, length, dtype=torch.long))
    counted = counter.get_total_flops()
    assert EncoderShape(32, 80, 2).flops(np.array([length, length])) == counted


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (BertConfig(hidden_size=48, num_hidden_layers=3, intermediate_size=99), EncoderShape(48, 99, 3)),
        (DistilBertConfig(dim=60, n_layers=2, hidden_dim=70), EncoderShape(60, 70, 2)),
        (
            ModernBertConfig(hidden_size=64, num_hidden_layers=4, intermediate_size=96),
            EncoderShape(64, 96, 4, gated=True),
        ),
    ],
)
def test_encoder_shape_reads_the_configuration(
    config: PretrainedConfig, expected: EncoderShape, tmp_path: Path
) -> None:
    config.save_pretrained(tmp_path)
    assert encoder_shape(str(tmp_path)) == expected
    T5Config(d_model=8).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"t5.*intermediate_size"):
        encoder_shape(str(tmp_path))


def test_lengths_are_those_of_the_rankers(tiny_bert: str) -> None:
    limits = {"max_query_tokens": 8, "max_item_tokens": 6}
    joint = CrossJEM(tiny_bert, max_items_per_pass=3, max_union_tokens=12, **limits)  # type: ignore[arg-type]
    pairs = MonoBERT(tiny_bert, pairs_per_pass=100, **limits)  # type: ignore[arg-type]
    for one in example_lists(5, seed=4):
        report = measure_overlap(
            [one], joint.tokenizer, SHAPE, max_item_tokens=[6], items=[2], max_query_tokens=8,
            max_items_per_pass=3, max_union_tokens=12,
        )  # fmt: skip
        widths = [ranker.collate([one]).runs[0]["attention_mask"].sum(1).numpy() for ranker in (joint, pairs)]
        joint_width, pair_width = (width[width > 0] for width in widths)
        found = report.rows[-1]
        assert found.passes == len(joint_width)
        assert found.speedup == pytest.approx(SHAPE.flops(pair_width) / SHAPE.flops(joint_width))


def test_rows_by_hand(tokenizer: ShortTextTokenizer) -> None:
    long = RankingList.from_texts("red shoe", ["red boots", "red boots blue", "blue blue"], "long")
    short = RankingList.from_texts("lamp", ["lamp"], "short")
    report = measure_overlap([long, short], tokenizer, SHAPE, max_item_tokens=[9, 2], items=[2, 50])
    assert (report.lists, report.query_tokens.mean, report.query_tokens.largest) == (2, 1.5, 2)
    rows = {(row.max_item_tokens, row.items): row for row in report.rows}
    assert set(rows) == {(2, 2), (2, None), (9, 2), (9, None)}, "no list has 50 items"
    cut, whole = rows[2, 2], rows[9, None]
    assert (cut.lists, cut.total_tokens, cut.union_tokens, cut.cut_items) == (1, 4, 2, 1)
    assert (whole.lists, whole.mean_items, whole.cut_items) == (2, 2, 0)
    assert (whole.total_tokens, whole.union_tokens, whole.union_by_list) == (4, 2, [1, 1, 3])
    assert whole.ratio == 2
    assert whole.ratio_by_list == [1, 1, pytest.approx(7 / 3)]
    cost = [SHAPE.flops(np.array([7, 8, 7])), SHAPE.flops(np.array([5]))]
    joint = [SHAPE.flops(np.array([7])), SHAPE.flops(np.array([4]))]
    assert whole.speedup == pytest.approx(sum(cost) / sum(joint))


def test_mistakes_of_measuring(tokenizer: ShortTextTokenizer) -> None:
    one = RankingList.from_texts("red", ["shoe"], "q7")
    with pytest.raises(ValueError, match="no lists"):
        measure_overlap([], tokenizer, SHAPE)
    with pytest.raises(ValueError, match=r"items.* must be at least 1"):
        measure_overlap([one], tokenizer, SHAPE, items=[0])
    with pytest.raises(ValueError, match="max_union_tokens=8 cannot hold"):
        measure_overlap([one], tokenizer, SHAPE, max_union_tokens=8)
    with pytest.raises(ValueError, match=r"'q7'.*no tokens"):
        measure_overlap([RankingList.from_texts("red", ["\u200b"], "q7")], tokenizer, SHAPE)
