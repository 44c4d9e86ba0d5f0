"""Folders that other libraries wrote give the scores that those libraries give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SimilarityFunction
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import ANCE, DPR, ColBERT, Instructor, MonoBERT, Ranker, TwinBERT
from crossjem_pl.rankers.dual.towers import DualRanker
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests.rankers import public_models

QUERY = "cheap running shoes, for men?"
ITEMS = [
    "red leather boots.",
    "running shoes",
    "trail shoes for men!",
    "phone",
    "best cheap shoes in paris, rome",
]
LIST = RankingList.from_texts(QUERY, ITEMS)
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}


@torch.no_grad()
def ours(ranker: Ranker) -> Tensor:
    return ranker.eval()(ranker.collate([LIST]))[0]


@torch.no_grad()
def theirs(model: SentenceTransformer | MultiVectorEncoder) -> Tensor:
    queries = model.encode_query([QUERY])
    return model.similarity(queries, model.encode_document(ITEMS))[0].float()


def check(folder: Path, expected: Tensor, kind: type[Ranker], tmp_path: Path) -> Ranker:
    """Equal scores, and again after being saved as our own model folder."""
    ranker = load_ranker(str(folder))
    assert type(ranker) is kind
    torch.testing.assert_close(ours(ranker), expected, **CLOSE)
    save_ranker(ranker, tmp_path / "ours")
    torch.testing.assert_close(ours(load_ranker(str(tmp_path / "ours"))), ours(ranker))
    return ranker


def sentence_transformer(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu").eval()


SENTENCE_ENCODERS = {
    "mean": lambda: [Pooling(32, "mean")],
    "cls": lambda: [Pooling(32, "cls")],
    "max-normalised": lambda: [Pooling(32, "max"), Normalize()],
    "dense": lambda: [Pooling(32, "mean"), Dense(32, 12), Normalize()],
    "two-dense-residual": lambda: [
        Pooling(32, "mean"),
        Dense(32, 12, bias=False, activation_function=nn.GELU(), use_residual=True),
        Dense(12, 12, activation_function=nn.Identity(), use_residual=True),
    ],
    "ance": lambda: [Pooling(32, "cls"), Dense(32, 16, activation_function=nn.Identity()), LayerNorm(16)],
}


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("name", SENTENCE_ENCODERS)
def test_sentence_transformers_bi_encoder(name: str, similarity: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = Transformer(str(public_models.write_encoder(tmp_path / "bert")))
    model = SentenceTransformer(
        modules=[encoder, *SENTENCE_ENCODERS[name]()],
        similarity_fn_name=SimilarityFunction(similarity),
        device="cpu",
    )
    model.save(str(tmp_path / "theirs"))
    expected = theirs(model.eval())
    ranker = check(tmp_path / "theirs", expected, DPR, tmp_path)
    torch.testing.assert_close(theirs(sentence_transformer(tmp_path / "ours")), expected, **CLOSE)
    assert isinstance(ranker, DPR)
    assert ranker.tower("query") is ranker.tower("items")
    assert ranker.max_item_tokens == 62


def test_prompts_are_read_and_pooled(tmp_path: Path) -> None:
    encoder = Transformer(str(public_models.write_encoder(tmp_path / "bert")))
    model = SentenceTransformer(
        modules=[encoder, Pooling(32, "mean")],
        prompts={"query": "find: ", "document": "shop: "},
        device="cpu",
    )
    model.save(str(tmp_path / "theirs"))
    expected = theirs(model.eval())
    ranker = check(tmp_path / "theirs", expected, DPR, tmp_path)
    torch.testing.assert_close(theirs(sentence_transformer(tmp_path / "ours")), expected, **CLOSE)
    assert isinstance(ranker, DPR)
    assert ranker.prompts == {"query": "find: ", "items": "shop: "}
    plain = DPR.from_public(tmp_path / "theirs")
    plain.prompts = {"query": "", "items": ""}
    assert not torch.allclose(ours(plain), ours(ranker), **CLOSE)


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_instructor(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = Transformer(
        str(public_models.write_encoder(tmp_path / kind, kind)), transformer_task="feature-extraction"
    )
    model = SentenceTransformer(
        modules=[
            encoder,
            Pooling(32, "mean", include_prompt=False),
            Dense(32, 32, bias=False, activation_function=nn.Identity()),
            Normalize(),
        ],
        prompts={"query": "the best shop for: ", "document": "the shop: "},
        device="cpu",
    )
    model.save(str(tmp_path / "theirs"))
    ranker = check(tmp_path / "theirs", theirs(model.eval()), Instructor, tmp_path)
    other = Instructor.from_public(tmp_path / "theirs")
    other.prompts = {"query": "a phone store: ", "items": "a phone: "}
    assert not torch.allclose(ours(other), ours(ranker), **CLOSE)


def test_a_classifier_with_two_labels_is_not_adopted(tmp_path: Path) -> None:
    encoder = public_models.write_encoder(tmp_path / "bert")
    AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2).save_pretrained(encoder)
    with pytest.raises(ValueError, match="cross-encoder with one label"):
        load_ranker(str(encoder))


def test_a_saved_monobert_is_a_cross_encoder_of_the_libraries(tmp_path: Path) -> None:
    encoder = str(public_models.write_encoder(tmp_path / "bert"))
    ranker = MonoBERT(encoder, max_query_tokens=16, max_item_tokens=16)
    save_ranker(ranker, tmp_path / "ours")
    pairs = [(QUERY, item) for item in ITEMS]
    scores = CrossEncoder(str(tmp_path / "ours"), device="cpu").predict(pairs, convert_to_tensor=True)
    torch.testing.assert_close(scores, ours(ranker), **CLOSE)
    theirs = CrossEncoder(str(tmp_path / "ours"), device="cpu").rank(
        QUERY, ITEMS, top_k=3, return_documents=True
    )
    rows = Reranker(tmp_path / "ours").rank(QUERY, ITEMS, top_k=3, return_documents=True)
    for row, their in zip(rows, theirs, strict=True):
        assert (row["corpus_id"], row["text"]) == (their["corpus_id"], their["text"])
        assert row["score"] == pytest.approx(their["score"], abs=1e-4)
    model, info = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(info.values())
    torch.testing.assert_close(model.state_dict(), ranker.model.state_dict())
    torch.testing.assert_close(ours(load_ranker(str(tmp_path / "ours"))), ours(ranker))
    warm = MonoBERT(str(tmp_path / "ours"), max_query_tokens=16, max_item_tokens=16)
    torch.testing.assert_close(warm.model.base_model.state_dict(), ranker.model.base_model.state_dict())


@pytest.mark.parametrize(
    "ranker",
    [
        lambda encoder: TwinBERT(encoder, "mean", dimension=12, max_query_tokens=32),
        lambda encoder: ANCE(encoder, dimension=16, max_query_tokens=32),
        lambda encoder: DPR(
            encoder, "cls", shared=True, normalize=True, query_prompt="find: ", max_query_tokens=32
        ),
    ],
    ids=["twinbert", "ance", "dpr"],
)
def test_a_saved_bi_encoder_is_a_sentence_transformer(
    ranker: Callable[[str], DualRanker], tmp_path: Path
) -> None:
    made = ranker(str(public_models.write_encoder(tmp_path / "bert")))
    save_ranker(made, tmp_path / "ours")
    scores = ours(made) - (made.bias.item() if isinstance(made, TwinBERT) else 0.0)
    read = theirs(sentence_transformer(tmp_path / "ours"))
    torch.testing.assert_close(read * torch.as_tensor(made.scale).item(), scores, **CLOSE)
    torch.testing.assert_close(ours(load_ranker(str(tmp_path / "ours"))), ours(made))


PYLATE: dict[str, dict[str, object]] = {
    "plain": {},
    "attended": {"attend_to_expansion_tokens": True},
    "no-expansion": {"do_query_expansion": False},
    "no-prefix": {"query_prefix": "", "document_prefix": ""},
    "unused-prefix": {"query_prefix": "[unused0]", "document_prefix": "[unused1]", "skiplist_words": []},
}


@pytest.mark.parametrize("name", PYLATE)
def test_pylate(name: str, tmp_path: Path) -> None:
    folder = public_models.write_pylate(tmp_path / "theirs", **PYLATE[name])
    model = MultiVectorEncoder(str(folder), device="cpu").eval()
    check(folder, theirs(model), ColBERT, tmp_path)


@pytest.mark.parametrize("metadata", [{}, {"mask_punctuation": False, "attend_to_mask_tokens": True}])
def test_stanford_colbert(metadata: dict[str, object], tmp_path: Path) -> None:
    folder = public_models.write_stanford(tmp_path / "theirs", **metadata)
    model = MultiVectorEncoder(str(folder), device="cpu").eval()
    check(folder, theirs(model), ColBERT, tmp_path)


def edited(folder: Path, file: str, **changes: object) -> Path:
    content = json.loads((folder / file).read_text(encoding="utf-8"))
    (folder / file).write_text(json.dumps({**content, **changes}), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (
            "config_sentence_transformers.json",
            {"similarity_fn_name": "euclidean"},
            "similarity_fn_name.*'euclidean'",
        ),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, r"1_Pooling/config\.json.*lasttoken"),
        (
            "2_Dense/config.json",
            {"activation_function": "torch.nn.Softsign"},
            "activation_function.*softsign",
        ),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
        ("sentence_bert_config.json", {"max_seq_length": 2}, "no room"),
    ],
)
def test_what_cannot_be_read_is_named(
    file: str, changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    encoder = Transformer(str(public_models.write_encoder(tmp_path / "bert")))
    model = SentenceTransformer(modules=[encoder, Pooling(32, "mean"), Dense(32, 8)], device="cpu")
    model.save(str(tmp_path / "theirs"))
    with pytest.raises(ValueError, match=message):
        load_ranker(str(edited(tmp_path / "theirs", file, **changes)))


def test_older_pooling_flags_are_read(tmp_path: Path) -> None:
    encoder = Transformer(str(public_models.write_encoder(tmp_path / "bert")))
    SentenceTransformer(modules=[encoder, Pooling(32, "cls")], device="cpu").save(str(tmp_path / "theirs"))
    older = {
        "word_embedding_dimension": 32,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
    }
    before = ours(load_ranker(str(tmp_path / "theirs")))
    (tmp_path / "theirs" / "1_Pooling" / "config.json").write_text(json.dumps(older), encoding="utf-8")
    ranker = load_ranker(str(tmp_path / "theirs"))
    assert isinstance(ranker, DPR)
    assert ranker.item_tower.pooling == "cls"
    torch.testing.assert_close(ours(ranker), before)
