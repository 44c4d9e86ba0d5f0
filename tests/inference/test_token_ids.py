"""Ranking by the ids of a token store."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from crossjem_pl.inference import Reranker
from crossjem_pl.rankers import BM25, DPR, CrossJEM, MonoBERT, QueryHead, Ranker, SetEncoder, SharedQuery
from crossjem_pl.text import TokenizedList
from crossjem_pl.text.token_store import TokenStore
from crossjem_pl.text.tokens import ShortTextTokenizer
from tests import tiny_models
from tests.rankers.literal import random_lists, sharpened

LIMITS: dict[str, Any] = {"max_query_tokens": 6, "max_item_tokens": 6}


@pytest.fixture(scope="module")
def items() -> dict[str, str]:
    texts = dict.fromkeys(text for one in random_lists(60, seed=3) for text in one.items)
    return {f"id {i}": text for i, text in enumerate(texts)}


@pytest.fixture(scope="module")
def store(items: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    folder = tmp_path_factory.mktemp("tokens") / "store"
    return TokenStore.build(folder, items.items(), ShortTextTokenizer(tiny_models.tokenizer()))


def build(kind: str, folder: str) -> Ranker:
    torch.manual_seed(0)
    if kind == "crossjem":
        return sharpened(CrossJEM(folder, QueryHead(), max_items_per_pass=20, max_union_tokens=128, **LIMITS))
    return {"monobert": MonoBERT, "setencoder": SetEncoder, "sharedquery": SharedQuery}[kind](
        folder, **LIMITS
    )


@pytest.mark.parametrize("kind", ["crossjem", "monobert", "setencoder", "sharedquery"])
def test_ids_rank_as_their_texts_do(
    kind: str, tiny_bert: str, items: dict[str, str], store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = build(kind, tiny_bert)
    texts, by_ids = Reranker(ranker, "cpu"), Reranker(ranker, "cpu", store=store)
    ids = list(items)[:60]
    expected = texts.rank("red running shoes", [items[i] for i in ids])
    tokenised: list[str] = []
    encode = ShortTextTokenizer.encode

    def watched(self: ShortTextTokenizer, texts: Any, max_tokens: int) -> Any:
        tokenised.extend(texts)
        return encode(self, texts, max_tokens)

    monkeypatch.setattr(ShortTextTokenizer, "encode", watched)
    found = by_ids.rank("red running shoes", ids)
    assert tokenised == ["red running shoes"]
    assert [row.index for row in found] == [row.index for row in expected]
    assert [row.score for row in found] == pytest.approx([row.score for row in expected], abs=1e-6)
    assert [row.text for row in found] == [ids[row.index] for row in found]
    assert by_ids.truncated == texts.truncated > 0, "the texts that lose tokens are counted all the same"
    scores = dict(zip(ids, by_ids.predict([("red running shoes", i) for i in ids]).tolist(), strict=True))
    assert [scores[row.text] for row in found] == pytest.approx([row.score for row in found], abs=1e-6)


def test_explanations_by_id(tiny_bert: str, items: dict[str, str], store: TokenStore) -> None:
    ranker = build("crossjem", tiny_bert)
    ids = list(items)[:5]
    found = Reranker(ranker, "cpu", store=store).explain("red", ids)
    expected = Reranker(ranker, "cpu").explain("red", [items[i] for i in ids])
    assert [e.item for e in found] == ids
    assert [e.contributions for e in found] == [e.contributions for e in expected]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["id 1", "unknown"], "list 'query 0', field 'items': .* has no item 'unknown'"),
        (["id 1", "id 2", "id 1"], "'query 0', field 'item_ids': id 'id 1' occurs more than once"),
        ([], "list 'query 0', field 'items': the list has no items"),
        ("id 1", "expected a sequence of ids, got the text 'id 1'"),
        ([3], "position 0: expected a string, got 3"),
    ],
)
def test_ids_that_cannot_be_ranked_are_named(
    tiny_bert: str, store: TokenStore, ids: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Reranker(build("crossjem", tiny_bert), "cpu", store=store).rank("red", ids)


def test_stores_that_do_not_fit_are_refused(tiny_bert: str, items: dict[str, str], tmp_path: Any) -> None:
    words = tiny_models.tokenizer()
    words.add_tokens(["sofa bed"])
    other = TokenStore.build(tmp_path / "other", items.items(), ShortTextTokenizer(words))
    short = TokenStore.build(tmp_path / "s", items.items(), ShortTextTokenizer(tiny_models.tokenizer()), 2)
    for ranker, store, message in (
        (build("crossjem", tiny_bert), other, "built with another tokenizer than the model's"),
        (build("crossjem", tiny_bert), short, r"keeps 2 tokens of an item, .* but 6 are wanted"),
        (BM25(), short, r"BM25 \(bm25\) cannot rank by id"),
        (DPR(tiny_bert, **LIMITS), short, r"DPR \(dpr\) cannot rank by id"),
    ):
        with pytest.raises(ValueError, match=message):
            Reranker(ranker, "cpu", store=store)


def test_lists_of_token_ids_are_selected_and_not_mixed_with_texts(tiny_bert: str) -> None:
    ranker = build("crossjem", tiny_bert)
    rows = ShortTextTokenizer(tiny_models.tokenizer()).encode(["red shoes", "blue car lamp", "dog"], 9).tokens
    texts = {"query_id": "q", "query": "red", "item_ids": ("a", "b", "c"), "items": ("a", "b", "c")}
    one = TokenizedList(**texts, labels=(0, 1, 2), tokens=rows)
    part = one.select([2, 0])
    assert (part.item_ids, part.labels) == (("c", "a"), (2.0, 0.0))
    assert [part.tokens.row(i).tolist() for i in range(2)] == [rows.row(2).tolist(), rows.row(0).tolist()]
    with pytest.raises(ValueError, match="lists of texts and lists of token ids cannot be scored together"):
        ranker.collate([one, random_lists(1, seed=0)[0]])
    with pytest.raises(ValueError, match="list 'q', field 'tokens': 3 rows for 1 items"):
        TokenizedList(query_id="q", query="red", item_ids=("a",), items=("a",), tokens=rows)
