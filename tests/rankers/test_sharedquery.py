from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import SharedQuery
from crossjem_pl.rankers.encoders import first_position, load_encoder
from crossjem_pl.rankers.pairwise.sharedquery import ItemPositions, SharedQueryHead
from tests.conftest import example_lists
from tests.rankers import encoder_families

LIMITS: dict[str, Any] = {"max_query_tokens": 16, "max_item_tokens": 16}


def dense_states(ranker: SharedQuery, folder: str, one: RankingList) -> tuple[Tensor, int, list[int]]:
    """States of `[CLS] q [SEP]` and all `item [SEP]` under one dense attention mask and eager attention."""
    encoder: Any = load_encoder(folder, {"attn_implementation": "eager", "dropout": 0.0}).eval()
    encoder.load_state_dict(ranker.encoder.model.state_dict(), strict=False)
    tokenizer = ranker.tokenizer.hf
    cls, sep = tokenizer.cls_token, tokenizer.sep_token
    query = tokenizer(f"{cls} {one.query} {sep}", add_special_tokens=False)["input_ids"]
    items = [tokenizer(f"{text} {sep}", add_special_tokens=False)["input_ids"] for text in one.items]
    owner = [0] * len(query) + [j + 1 for j, ids in enumerate(items) for _ in ids]
    first = len(query) if ranker.item_positions == "continue" else 1
    positions = [*range(len(query)), *(first + p for ids in items for p in range(len(ids)))]
    see = torch.tensor([[key in (0, query_of) for key in owner] for query_of in owner])
    segments = torch.tensor([[int(i > 0) for i in owner]])
    inputs = {
        "input_ids": torch.tensor([query + [t for ids in items for t in ids]]),
        "position_ids": torch.tensor([positions]) + first_position(encoder.config),
    }
    if getattr(encoder.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = segments
    mask = torch.zeros(see.shape).masked_fill(~see, torch.finfo(torch.float32).min)[None, None]
    states = encoder(**inputs, attention_mask=mask).last_hidden_state[0]
    return states, len(query), [len(ids) for ids in items]


@torch.no_grad()
@pytest.mark.parametrize("family", encoder_families.FAMILIES)
@pytest.mark.parametrize("positions", ["continue", "restart"])
def test_equals_one_dense_attention_mask(family: str, positions: ItemPositions, tmp_path: Path) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    lists = example_lists(3, seed=4, most_items=5)
    for head in get_args(SharedQueryHead):
        ranker = SharedQuery(folder, head, 7.0, positions, dropout=0.0, **LIMITS).eval()
        together = ranker(ranker.collate(lists))
        for row, one in zip(together, lists, strict=True):
            states, query_length, item_lengths = dense_states(ranker, folder, one)
            query = states[1 : query_length - 1].mean(0)
            expected = []
            for item in states[query_length:].split(item_lengths):
                if isinstance(ranker.head, nn.Linear):
                    expected.append(ranker.head(item.mean(0))[0])
                else:
                    expected.append(7.0 * F.cosine_similarity(item[:-1].mean(0), query, dim=0))
            torch.testing.assert_close(row[: len(one)], torch.stack(expected), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_score_does_not_depend_on_the_other_items(tiny_bert: str) -> None:
    ranker = SharedQuery(tiny_bert, dropout=0.0, **LIMITS).eval()
    for one in example_lists(2, seed=6):
        alone = [ranker(ranker.collate([one.select([j])]))[0, 0] for j in range(len(one))]
        torch.testing.assert_close(ranker(ranker.collate([one]))[0], torch.stack(alone), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("head", ["query", "linear"])
def test_explanations_sum_to_the_scores(head: SharedQueryHead, tiny_bert: str) -> None:
    ranker = SharedQuery(tiny_bert, head, dropout=0.0, **LIMITS).eval()
    one = example_lists(1, seed=6)[0]
    explained = ranker.explain(one)
    assert [e.item for e in explained] == list(one.items)
    scores = ranker(ranker.collate([one]))[0]
    sums = torch.tensor([sum(part.value for part in e.contributions) for e in explained])
    torch.testing.assert_close(sums, scores, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.tensor([e.score for e in explained]), scores)
    pieces = ranker.tokenizer.hf.tokenize(one.items[0])
    assert [p.token for p in explained[0].contributions if p.part == "item"] == pieces


def test_the_batch_holds_the_query_once(tiny_bert: str) -> None:
    ranker = SharedQuery(tiny_bert, **LIMITS)
    one = RankingList.from_texts("red shoes", ["boots", "blue sofa", "red lamp"])
    batch = ranker.collate([one])
    assert len(batch.input_ids) == (2 + 2) + (1 + 1) + (2 + 1) + (2 + 1)
    assert batch.segment_ids.tolist() == [0] * 4 + [1] * 8
    assert batch.position_ids.tolist() == [0, 1, 2, 3, 4, 5, 4, 5, 6, 4, 5, 6]


def test_attention_dropout_acts_in_training_only(tiny_bert: str) -> None:
    torch.manual_seed(0)
    ranker = SharedQuery(tiny_bert, dropout=0.5, **LIMITS)
    batch = ranker.collate(example_lists(2))
    assert not torch.equal(ranker.train()(batch), ranker(batch))
    assert torch.equal(ranker.eval()(batch), ranker(batch))


def test_half_precision_gives_float32_scores(tiny_bert: str) -> None:
    ranker = SharedQuery(tiny_bert, dropout=0.0, **LIMITS).eval()
    batch = ranker.collate(example_lists(2))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        low = ranker(batch)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, ranker(batch), rtol=0.05, atol=0.5)


def test_bad_arguments(tiny_bert: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="head must be one of query, linear"):
        SharedQuery(tiny_bert, "maxsim")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="item_positions must be one of continue, restart"):
        SharedQuery(tiny_bert, item_positions="shared")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="need 163 positions, the encoder has 160"):
        SharedQuery(tiny_bert, max_query_tokens=128, max_item_tokens=32)
    SharedQuery(tiny_bert, max_query_tokens=128, max_item_tokens=32, item_positions="restart")
    with pytest.raises(ValueError, match="brings its own attention"):
        SharedQuery(tiny_bert, attn_implementation="sdpa")
    with pytest.raises(ValueError, match=r"'modernbert'.*distilbert"):
        SharedQuery(encoder_families.write(tmp_path / "modern", "modernbert"))
