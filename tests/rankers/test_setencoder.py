from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import SetEncoder, context_attention
from crossjem_pl.rankers.encoders import first_position, load_encoder
from tests.conftest import example_lists
from tests.rankers import encoder_families

LIMITS: dict[str, Any] = {"max_query_tokens": 16, "max_item_tokens": 16}


def dense_scores(ranker: SetEncoder, folder: str, one: RankingList) -> Tensor:
    """All pairs end to end under one dense mask: a token sees its own pair and the other pairs' [CLS]."""
    encoder: Any = load_encoder(folder, {"attn_implementation": "eager", "dropout": 0.0}).eval()
    encoder.load_state_dict(ranker.encoder.model.state_dict(), strict=False)
    tokenizer = ranker.tokenizer.hf
    cls, sep = tokenizer.cls_token, tokenizer.sep_token
    query = tokenizer(f"{cls} {one.query} {sep}", add_special_tokens=False)["input_ids"]
    pairs = [query + tokenizer(f"{text} {sep}", add_special_tokens=False)["input_ids"] for text in one.items]
    owner = [j for j, ids in enumerate(pairs) for _ in ids]
    place = [p for ids in pairs for p in range(len(ids))]
    see = torch.tensor([[o == mine or p == 0 for o, p in zip(owner, place, strict=True)] for mine in owner])
    inputs = {
        "input_ids": torch.tensor([[t for ids in pairs for t in ids]]),
        "position_ids": torch.tensor([place]) + first_position(encoder.config),
    }
    if getattr(encoder.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.tensor([[int(p >= len(query)) for p in place]])
    mask = torch.zeros(see.shape).masked_fill(~see, torch.finfo(torch.float32).min)[None, None]
    states = encoder(**inputs, attention_mask=mask).last_hidden_state[0]
    return ranker.classifier(states[[i for i, p in enumerate(place) if p == 0]])[:, 0]


@torch.no_grad()
@pytest.mark.parametrize("family", encoder_families.FAMILIES)
def test_equals_one_dense_attention_mask(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = encoder_families.write(tmp_path / family, family)
    ranker = SetEncoder(folder, dropout=0.0, **LIMITS).eval()
    lists = example_lists(3, seed=4, most_items=5)
    for limit in (1 << 26, 1):  # all sequences in one step, and one sequence a step
        monkeypatch.setattr(context_attention, "_MOST_ELEMENTS", limit)
        together = ranker(ranker.collate(lists))
        for row, one in zip(together, lists, strict=True):
            expected = dense_scores(ranker, folder, one)
            torch.testing.assert_close(row[: len(one)], expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_items_see_each_other(tiny_bert: str) -> None:
    ranker = SetEncoder(tiny_bert, dropout=0.0, **LIMITS).eval()
    one = RankingList.from_texts("red shoes", ["boots", "blue sofa", "red lamp"])
    full = ranker(ranker.collate([one]))[0]
    fewer = ranker(ranker.collate([one.select([0, 1])]))[0]
    assert (full[:2] - fewer).abs().max() > 1e-5


@torch.no_grad()
def test_equal_items_tie(tiny_bert: str) -> None:
    ranker = SetEncoder(tiny_bert, dropout=0.0, **LIMITS).eval()
    scores = ranker(ranker.collate([RankingList.from_texts("red shoes", ["boots", "sofa", "boots"])]))[0]
    torch.testing.assert_close(scores[0], scores[2], rtol=0, atol=1e-6)


def test_bad_arguments(tiny_bert: str) -> None:
    with pytest.raises(ValueError, match="need 161 positions, the encoder has 160"):
        SetEncoder(tiny_bert, max_query_tokens=100, max_item_tokens=58)
    with pytest.raises(ValueError, match="brings its own attention"):
        SetEncoder(tiny_bert, attn_implementation="eager")
