"""Dual encoders against literal computations, and the cache of item vectors."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoTokenizer

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import ANCE, DPR, RANKERS, CoRALRanker, DualRanker, Instructor, TwinBERT
from crossjem_pl.rankers.dual.towers import DecoupledRanker, Side
from crossjem_pl.rankers.dual.vectors import TextRows
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests.rankers import public_models
from tests.rankers.cases import CASES, LIMITS
from tests.tiny_models import WORDS

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
DUAL = sorted(n for n in CASES if issubclass(RANKERS[n.split("-")[0]], DualRanker))
DECOUPLED = sorted(n for n in CASES if issubclass(RANKERS[n.split("-")[0]], DecoupledRanker))


@pytest.fixture
def ranker(request: pytest.FixtureRequest, tiny_models_folder: Path) -> DecoupledRanker:
    torch.manual_seed(0)
    built = CASES[request.param](tiny_models_folder).eval()
    assert isinstance(built, DecoupledRanker)
    return built


def count_encoded(ranker: DecoupledRanker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The item texts that go through the encoder from now on."""
    seen: list[str] = []
    encode = ranker.encode_rows

    def counted(rows: TextRows, side: Side) -> object:
        seen.extend(rows.texts if side == "items" else [])
        assert sum(len(group["input_ids"]) for group in rows.groups) == len(rows.texts)
        return encode(rows, side)

    monkeypatch.setattr(ranker, "encode_rows", counted)
    return seen


@torch.no_grad()
def score(ranker: DecoupledRanker, lists: list[RankingList]) -> Tensor:
    return ranker(ranker.collate(lists))


def states(folder: str, text: str) -> Tensor:
    """Last hidden states of `[CLS] text [SEP]`, from transformers alone."""
    tokenizer, model = public_models.loaded(folder)
    ids = tokenizer.convert_tokens_to_ids(["[CLS]", *tokenizer.tokenize(text), "[SEP]"])
    with torch.no_grad():
        return model(torch.tensor([ids])).last_hidden_state[0]


def layer_norm(ranker: ANCE, hidden: Tensor) -> Tensor:
    layer: Any = ranker.text_tower.projections[0]
    return F.layer_norm(hidden[0] @ layer.linear.weight.T + layer.linear.bias, (12,))


def weighted(ranker: TwinBERT, hidden: Tensor) -> Tensor:
    assert ranker.text_tower.token_weight is not None
    return F.normalize((hidden @ ranker.text_tower.token_weight).softmax(0) @ hidden, dim=0)


INSTRUCTIONS = ("find the shop for: ", "the shop: ")  # "find" is four pieces
LITERAL: dict[str, tuple[Any, Any, float]] = {  # the ranker, the vector of a text's states, the scale
    "dpr": (DPR, lambda ranker, hidden: hidden[0], 32**-0.5),
    "dpr-scale": (partial(DPR, scale=1.0), lambda ranker, hidden: hidden[0], 1.0),
    "dpr-mean-cosine": (
        partial(DPR, pooling="mean", normalize=True),
        lambda ranker, hidden: F.normalize(hidden.mean(0), dim=0),
        20.0,
    ),
    "ance": (partial(ANCE, dimension=12), layer_norm, 12**-0.5),
    "twinbert": (TwinBERT, weighted, 10.0),
    "instructor": (
        partial(Instructor, query_instruction=INSTRUCTIONS[0], item_instruction=INSTRUCTIONS[1]),
        lambda ranker, hidden: F.normalize(hidden.mean(0), dim=0),
        20.0,
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("name", LITERAL)
def test_scores_equal_a_literal_computation(name: str, tiny_bert: str, lists: list[RankingList]) -> None:
    make, vector, scale = LITERAL[name]
    ranker, constant, prompts, skip = make(tiny_bert).eval(), 0.0, ("", ""), (0, 0)
    if name == "twinbert":
        torch.testing.assert_close(
            score(ranker, lists), score(TwinBERT(tiny_bert, "mean").eval(), lists), **CLOSE
        )
        ranker.text_tower.token_weight.normal_()
        constant = float(ranker.bias.fill_(0.3))
    if name == "instructor":
        prompts, skip = INSTRUCTIONS, (9, 4)  # the instruction and [CLS]
        assert (ranker.prompt_tokens("query"), ranker.prompt_tokens("items")) == (8, 3)
    for one in lists[:3]:
        query = vector(ranker, states(tiny_bert, prompts[0] + one.query)[skip[0] :])
        items = [vector(ranker, states(tiny_bert, prompts[1] + item)[skip[1] :]) for item in one.items]
        expected = scale * torch.stack(items) @ query + constant
        torch.testing.assert_close(score(ranker, [one])[0], expected, **CLOSE)


def test_twinbert_residual_crossing(tiny_bert: str, lists: list[RankingList]) -> None:
    ranker, one = TwinBERT(tiny_bert, "cls", "residual").eval(), lists[4]
    crossing = ranker.residual
    assert crossing is not None
    expected = []
    for item in one.items:
        x = torch.maximum(states(tiny_bert, item)[0], states(tiny_bert, one.query)[0])
        inner = torch.relu(crossing.inner.weight @ x + crossing.inner.bias)
        x = torch.relu(x + crossing.outer.weight @ inner + crossing.outer.bias)
        expected.append((crossing.classifier.weight @ x + crossing.classifier.bias)[0])
    torch.testing.assert_close(score(ranker, [one])[0], torch.stack(expected).detach(), **CLOSE)
    with pytest.raises(ValueError, match="TwinBERT are not inner products"):
        ranker.vectors(ranker.collate([one]))
    with pytest.raises(ValueError, match="not inner products"):
        ranker.text_vectors(["shoes"], "items")


@pytest.mark.parametrize("ranker", [n for n in DUAL if "residual" not in n], indirect=True)
def test_scores_are_inner_products_of_the_vectors(ranker: DualRanker, lists: list[RankingList]) -> None:
    batch = ranker.collate(lists)
    with torch.no_grad():
        queries, items = ranker.vectors(batch)
        products = torch.einsum("ld,lid->li", queries, items).masked_fill(~batch.item_mask, 0.0)
        constant = ranker.bias if isinstance(ranker, TwinBERT) else 0.0
        torch.testing.assert_close(products, (ranker(batch) - constant) * batch.item_mask, **CLOSE)
    texts = list(lists[0].items) * 2
    torch.testing.assert_close(
        ranker.text_vectors(texts, "items", batch_size=3)[: len(lists[0])], items[0, : len(lists[0])], **CLOSE
    )
    again = ranker.text_vectors([one.query for one in lists], "query", batch_size=3)
    torch.testing.assert_close(again, queries, **CLOSE)


@pytest.mark.parametrize("ranker", DECOUPLED, indirect=True)
def test_each_distinct_text_is_encoded_once(
    ranker: DecoupledRanker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_encoded(ranker, monkeypatch)
    copies = [*lists, RankingList("again", lists[0].query, lists[0].item_ids, lists[0].items)]
    batch = ranker.collate(copies)
    out = score(ranker, copies)
    assert sorted(seen) == sorted({text for one in lists for text in one.items})
    assert len(batch.queries.texts) == len({one.query for one in lists})
    torch.testing.assert_close(out[-1], out[0])
    assert torch.equal(batch.item_keys[-1], batch.item_keys[0])
    assert batch.query_keys[-1] == batch.query_keys[0]


@torch.no_grad()
@pytest.mark.parametrize("ranker", DECOUPLED, indirect=True)
def test_texts_of_unequal_length_are_encoded_without_much_padding(ranker: DecoupledRanker) -> None:
    uneven = [RankingList.from_texts("red shoes", ["shoes " * 12, *(f"{word} lamp" for word in WORDS[:40])])]
    ranker.texts_per_pass, ranker.run_cost = 128, 10**9
    whole, expected = ranker.collate(uneven), ranker(ranker.collate(uneven))
    ranker.run_cost = 16
    split = ranker.collate(uneven)
    sizes = [sum(g["input_ids"].numel() for g in batch.items.groups) for batch in (whole, split)]
    assert sizes[1] <= sizes[0] - 16
    torch.testing.assert_close(ranker(split), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ranker", DECOUPLED, indirect=True)
def test_precomputed_items_are_not_encoded_again(
    ranker: DecoupledRanker, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = score(ranker, lists)
    texts = list(dict.fromkeys(text for one in lists for text in one.items))
    known = texts[::2]
    assert ranker.precompute_items(known, batch_size=5) == 0
    assert len(ranker.item_cache) == len(known)
    assert ranker.item_cache.memory > 0
    seen = count_encoded(ranker, monkeypatch)
    torch.testing.assert_close(score(ranker, lists), expected, **CLOSE)
    assert sorted(seen) == sorted(texts[1::2])
    ranker.precompute_items(texts, batch_size=5)
    seen.clear()
    torch.testing.assert_close(score(ranker, lists), expected, **CLOSE)
    assert not seen


def test_the_cache_is_for_inference_with_the_weights_it_was_made_of(
    tiny_bert: str, lists: list[RankingList], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = DPR(tiny_bert, dropout=0.0).eval()
    texts = [text for one in lists for text in one.items]
    ranker.precompute_items(texts)
    assert len(pickle.loads(pickle.dumps(ranker)).item_cache) == len(copy.deepcopy(ranker).item_cache) == 0
    seen = count_encoded(ranker, monkeypatch)
    ranker(ranker.collate(lists)).sum().backward()  # with gradients everything is encoded
    assert len(seen) == len(set(texts)) == len(ranker.item_cache)

    ranker.train()
    assert not len(ranker.item_cache)
    with pytest.raises(RuntimeError, match="call eval"):
        ranker.precompute_items(texts)
    ranker.eval().precompute_items(texts)
    holder = torch.nn.ModuleDict({"ranker": ranker})
    holder.load_state_dict({name: value + 0.1 for name, value in holder.state_dict().items()})
    assert not len(ranker.item_cache)
    fresh = score(ranker, lists)
    ranker.precompute_items(texts)
    torch.testing.assert_close(score(ranker, lists), fresh, **CLOSE)
    ranker.item_cache.clear()
    ranker.precompute_items(texts, dtype=torch.float16)
    assert ranker.item_cache.memory == len(set(texts)) * 32 * 2
    torch.testing.assert_close(score(ranker, lists), fresh, rtol=1e-2, atol=1e-2)


def test_coral_frozen_query_tower(tiny_bert: str, lists: list[RankingList]) -> None:
    ranker = CoRALRanker(tiny_bert, freeze_query=True, query_projection=False, dropout=0.5).train()
    assert not ranker.query_tower.encoder.training
    assert ranker.item_tower.encoder.training
    trained = {name.split(".")[0] for name, p in ranker.named_parameters() if p.requires_grad}
    assert trained == {"item_tower"}
    batch = ranker.collate(lists)
    first, second = (ranker.encode_rows(batch.queries, "query").values for _ in range(2))
    torch.testing.assert_close(first, second)  # no dropout
    assert not first.requires_grad


def test_coral_towers_of_different_families(tiny_bert: str, tmp_path: Path, lists: list[RankingList]) -> None:
    other = str(public_models.write_encoder(tmp_path / "other"))
    ranker = CoRALRanker(
        tiny_bert, query_encoder=other, query_layers=1, dimension=8, temperature=0.1, **LIMITS
    ).eval()
    assert ranker.query_tower.encoder.config.num_hidden_layers == 1  # type: ignore[union-attr]
    assert ranker.item_tower.encoder.config.num_hidden_layers == 2  # type: ignore[union-attr]
    out = score(ranker, lists)
    assert float(out.abs().max()) <= 10.0 + 1e-4
    ids = ranker.collate(lists).queries.groups[0]["input_ids"]
    assert ids[0, 0] == AutoTokenizer.from_pretrained(other).cls_token_id
    save_ranker(ranker, tmp_path / "saved")
    again = load_ranker(str(tmp_path / "saved"))
    torch.testing.assert_close(score(again.eval(), lists), out, **CLOSE)  # type: ignore[arg-type]


def test_coral_encoders_of_one_family_start_together(tiny_bert: str, lists: list[RankingList]) -> None:
    same = DPR(tiny_bert, "mean", shared=True, normalize=True).eval()
    for projected in (True, False):
        ranker = CoRALRanker(tiny_bert, query_projection=projected, temperature=0.05).eval()
        torch.testing.assert_close(score(ranker, lists), score(same, lists), **CLOSE)
    narrow = CoRALRanker(tiny_bert, dimension=8)
    first, second = (tower.projections[0].linear.weight for tower in (narrow.query_tower, narrow.item_tower))  # type: ignore[union-attr]
    assert torch.equal(first, second)  # type: ignore[arg-type]
    assert first is not second
