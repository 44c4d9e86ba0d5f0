"""ColBERT against loops over tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import ColBERT
from tests.rankers import public_models
from tests.rankers.cases import LIMITS

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
LISTS = [
    RankingList.from_texts("cheap shoes, red?", ["red shoes.", "boots", "a phone: new!", ".,?!"]),
    RankingList.from_texts("paris hotel", ["hotel in paris", "boots"]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(public_models.write_encoder(tmp_path_factory.mktemp("colbert") / "bert"))


def literal(ranker: ColBERT, folder: str, query: str, item: str, length: int, attend: bool) -> float:
    """The paper's score of one pair, token by token."""
    tokenizer, model = public_models.loaded(folder)

    def vectors(marker: str, text: str, fill: int) -> tuple[list[str], Tensor]:
        tokens = ["[CLS]", marker, *tokenizer.tokenize(text), "[SEP]"]
        real = len(tokens)
        tokens += ["[MASK]"] * (fill - real)
        ids = torch.tensor([tokenizer.convert_tokens_to_ids(tokens)])
        mask = torch.tensor([[1] * real + [int(attend)] * (len(tokens) - real)])
        states = model(ids, attention_mask=mask).last_hidden_state[0]
        return tokens, F.normalize(states @ ranker.projections[0].linear.weight.T, dim=1)  # type: ignore[union-attr]

    with torch.no_grad():
        _, q = vectors("[unused0]", query, length)
        tokens, d = vectors("[unused1]", item, 0)
        kept = [i for i, token in enumerate(tokens) if token not in (".", ",", "?", "!", ":")]
        return sum(max(float(u @ d[i]) for i in kept) for u in q)


@pytest.mark.parametrize(("length", "attend"), [(12, False), (12, True), (0, False), (4, False)])
def test_score_is_the_sum_of_best_matches(folder: str, length: int, attend: bool) -> None:
    ranker = ColBERT(
        folder,
        dimension=8,
        query_length=length,
        query_marker="[unused0]",
        item_marker="[unused1]",
        attend_to_masks=attend,
        scale=0.5,
        max_query_tokens=32,
    ).eval()
    batch = ranker.collate(LISTS)
    with torch.no_grad():
        out = ranker(batch)
    for i, one in enumerate(LISTS):
        for j, item in enumerate(one.items):
            expected = 0.5 * literal(ranker, folder, one.query, item, length, attend)
            assert float(out[i, j]) == pytest.approx(expected, abs=1e-4)


def test_cached_items_take_one_vector_per_token(folder: str) -> None:
    ranker = ColBERT(folder, dimension=8, **LIMITS).eval()
    ranker.precompute_items(["red, shoes.", "boots"])
    assert ranker.item_cache.memory == (4 + 3) * 8 * 4


def test_queries_are_filled_with_masks_if_the_tokenizer_has_one(tmp_path: Path) -> None:
    without_mask = str(public_models.write_encoder(tmp_path / "t5", "t5"))
    with pytest.raises(ValueError, match=r"no \[MASK\].*query_length=0"):
        ColBERT(without_mask)
    assert ColBERT(without_mask, query_length=0).collate(LISTS).query_row.tolist() == [1, 0]
