from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from crossjem_pl.inference import RankedId, Reranker
from crossjem_pl.rankers import BM25, DPR, CrossJEM, MonoBERT, QueryHead, Ranker, SetEncoder, SharedQuery
from crossjem_pl.text import Ragged, TokenizedList
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
        joint = CrossJEM(folder, QueryHead(), 1, "shared", max_items_per_pass=20, **LIMITS)
        return sharpened(joint)
    return {"monobert": MonoBERT, "setencoder": SetEncoder, "sharedquery": SharedQuery}[kind](
        folder, **LIMITS
    )


@pytest.mark.parametrize("kind", ["crossjem", "monobert", "setencoder", "sharedquery"])
def test_ids_rank_as_their_texts_do(
    kind: str, tiny_bert: str, items: dict[str, str], store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = Reranker(build(kind, tiny_bert), "cpu", store=store)
    ids = list(items)[:60]
    by_text = reranker.rank("red running shoes", [items[i] for i in ids])
    cut = reranker.truncated
    tokenised: list[str] = []
    encode = ShortTextTokenizer.encode

    def watched(self: ShortTextTokenizer, texts: Any, max_tokens: int) -> Any:
        tokenised.extend(texts)
        return encode(self, texts, max_tokens)

    monkeypatch.setattr(ShortTextTokenizer, "encode", watched)
    by_id = reranker.rank_ids("red running shoes", ids)
    assert tokenised == ["red running shoes"]
    assert [row.index for row in by_id] == [row.index for row in by_text]
    assert [row.score for row in by_id] == pytest.approx([row.score for row in by_text], abs=1e-6)
    assert [row.item_id for row in by_id] == [ids[row.index] for row in by_id]
    assert reranker.truncated == 2 * cut > 0, "the texts that lose tokens are counted again"
    assert all(type(row) is RankedId for row in by_id)


def test_batches_top_k_and_activations(tiny_bert: str, items: dict[str, str], store: TokenStore) -> None:
    reranker = Reranker(build("crossjem", tiny_bert), "cpu", batch_size=2)
    reranker.store = store
    names = list(items)
    queries, lists = ["red shoes", "cheap hotel", "red shoes"], [names[:30], names[10:13], names[40:99]]
    together = reranker.rank_ids_batch(queries, lists, 5, "sigmoid")
    for query, ids, found in zip(queries, lists, together, strict=True):
        alone = reranker.rank_ids(query, ids, activation="sigmoid")[:5]
        assert [row.item_id for row in found] == [row.item_id for row in alone]
        assert [row.score for row in found] == pytest.approx([row.score for row in alone], abs=1e-6)
        assert 0 < found[0].score < 1
    assert reranker.rank_ids_batch([], []) == []


def test_mistakes_are_named(tiny_bert: str, items: dict[str, str], store: TokenStore) -> None:
    reranker = Reranker(build("crossjem", tiny_bert), "cpu")
    with pytest.raises(ValueError, match=r"no token store to rank by id.*crossjem tokens"):
        reranker.rank_ids("red", ["id 1"])
    reranker.store = store
    for ids, message in (
        (["id 1", "unknown"], "list 'query 0', field 'item_ids': .* has no item 'unknown'"),
        (["id 1", "id 2", "id 1"], "'query 0', field 'item_ids': id 'id 1' occurs more than once"),
        ([], "list 'query 0', field 'items': the list has no items"),
        ("id 1", "expected a sequence of ids, got the text 'id 1'"),
        ([3], "position 0: expected a string, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            reranker.rank_ids("red", ids)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 queries but 2 lists of ids"):
        reranker.rank_ids_batch(["red"], [["id 1"], ["id 2"]])
    with pytest.raises(ValueError, match="top_k must be at least 1, got 0"):
        reranker.rank_ids("red", ["id 1"], 0)
    with pytest.raises(ValueError, match="field 'query'"):
        reranker.rank_ids(" ", ["id 1"])


def test_rankers_that_read_texts_are_refused(tiny_bert: str, store: TokenStore) -> None:
    for ranker in (BM25(), DPR(tiny_bert, **LIMITS)):
        with pytest.raises(ValueError, match=rf"{type(ranker).__name__} \({ranker.name}\) cannot rank by id"):
            Reranker(ranker, "cpu", store=store)


def test_a_store_of_another_tokenizer_or_limit_is_refused(
    tiny_bert: str, items: dict[str, str], tmp_path: Path
) -> None:
    ranker = build("crossjem", tiny_bert)
    words = tiny_models.tokenizer()
    words.add_tokens(["sofa bed"])
    other = TokenStore.build(tmp_path / "other", items.items(), ShortTextTokenizer(words))
    with pytest.raises(ValueError, match="built with another tokenizer than the model's"):
        Reranker(ranker, "cpu", store=other)
    own = ShortTextTokenizer(tiny_models.tokenizer())
    short = TokenStore.build(tmp_path / "short", items.items(), own, 2)
    with pytest.raises(ValueError, match=r"keeps 2 tokens of an item, .* but 6 are wanted"):
        Reranker(ranker, "cpu", store=short)


def test_lists_of_token_ids_are_selected_and_not_mixed_with_texts(tiny_bert: str) -> None:
    ranker = build("crossjem", tiny_bert)
    rows = ShortTextTokenizer(tiny_models.tokenizer()).encode(["red shoes", "blue car lamp", "dog"], 9).tokens
    one = TokenizedList(
        query_id="q",
        query="red",
        item_ids=("a", "b", "c"),
        items=("a", "b", "c"),
        labels=(0, 1, 2),
        tokens=rows,
    )
    part = one.select([2, 0])
    assert (part.item_ids, part.labels) == (("c", "a"), (2.0, 0.0))
    assert [part.tokens.row(i).tolist() for i in range(2)] == [rows.row(2).tolist(), rows.row(0).tolist()]
    with pytest.raises(ValueError, match="lists of texts and lists of token ids cannot be scored together"):
        ranker.collate([one, random_lists(1, seed=0)[0]])
    with pytest.raises(ValueError, match="list 'q', field 'tokens': 3 rows for 1 items"):
        TokenizedList(query_id="q", query="red", item_ids=("a",), items=("a",), tokens=rows)
    assert isinstance(one.tokens, Ragged)
