from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import CrossEncoder
from tokenizers.processors import BertProcessing, RobertaProcessing
from torch import nn
from transformers import AutoModelForSequenceClassification

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import MonoBERT
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests import tiny_models
from tests.rankers import encoder_families
from tests.rankers.literal import random_lists

LIMITS: dict[str, Any] = {"max_query_tokens": 8, "max_item_tokens": 8}


def write_classifier(folder: Path, family: str, *, segments: bool = True) -> str:
    """A sequence classifier with one label, scores that differ from pair to pair, and a tokenizer."""
    encoder = encoder_families.write(folder / "encoder", family)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8.0)
    model.save_pretrained(folder / "classifier")
    hf = tiny_models.tokenizer()
    process = RobertaProcessing if family == "roberta" else BertProcessing
    hf.backend_tokenizer.post_processor = process(("[SEP]", hf.sep_token_id), ("[CLS]", hf.cls_token_id))
    hf.model_input_names = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    hf.init_kwargs["model_input_names"] = hf.model_input_names
    hf.save_pretrained(folder / "classifier")
    return str(folder / "classifier")


@torch.no_grad()
def scores(ranker: MonoBERT, lists: list[RankingList]) -> list[torch.Tensor]:
    together = ranker(ranker.collate(lists))
    return [row[: len(one)] for row, one in zip(together, lists, strict=True)]


@pytest.mark.parametrize(
    ("family", "segments"),
    [
        ("bert", True),
        ("bert", False),
        ("electra", True),
        *((f, False) for f in ("distilbert", "roberta", "modernbert")),
    ],
)
def test_equals_the_cross_encoder_of_sentence_transformers(
    family: str, segments: bool, tmp_path: Path
) -> None:
    folder = write_classifier(tmp_path, family, segments=segments)
    theirs = CrossEncoder(folder, activation_fn=nn.Identity(), device="cpu")
    assert theirs.tokenizer("red", "blue").get("token_type_ids") == ([0, 0, 0, 1, 1] if segments else None)
    lists = random_lists(6, seed=0)
    expected = torch.from_numpy(theirs.predict([(one.query, item) for one in lists for item in one.items]))
    assert expected.std() > 0.05, "the scores say something"
    ours = MonoBERT(folder, **LIMITS).eval()
    torch.testing.assert_close(torch.cat(scores(ours, lists)), expected, rtol=1e-4, atol=1e-4)
    adopted = load_ranker(folder).eval()
    assert isinstance(adopted, MonoBERT)
    torch.testing.assert_close(torch.cat(scores(adopted, lists)), expected, rtol=1e-4, atol=1e-4)
    save_ranker(ours, tmp_path / "saved")
    again = load_ranker(str(tmp_path / "saved")).eval()
    assert isinstance(again, MonoBERT)
    torch.testing.assert_close(torch.cat(scores(again, lists)), expected, rtol=1e-4, atol=1e-4)


def test_texts_of_the_longest_pair_fit(tmp_path: Path) -> None:
    """RoBERTa's first position follows the pad id 0, and its pairs have two [SEP] in between."""
    roberta = write_classifier(tmp_path, "roberta")
    ranker = MonoBERT(roberta, max_query_tokens=40, max_item_tokens=51).eval()
    assert torch.isfinite(ranker(ranker.collate([RankingList.from_texts("red " * 90, ["car " * 90])]))).all()
    with pytest.raises(ValueError, match=r"max_item_tokens=52 \+ 4 special tokens need 96 .* has 95"):
        MonoBERT(roberta, max_query_tokens=40, max_item_tokens=52)


def test_alphabetical_order_forgets_the_order_of_the_words(tiny_bert: str) -> None:
    """Two items with the same words tie, and are scored as the text with its words sorted is."""
    torch.manual_seed(0)
    ranker = MonoBERT(tiny_bert, **LIMITS, item_order="alphabetical").eval()
    plain = MonoBERT(tiny_bert, **LIMITS).eval()
    plain.load_state_dict(ranker.state_dict())
    one = random_lists(1, seed=3)[0].select([0])
    words = ["red", "shoe", "blue"]
    texts = [" ".join(words), " ".join(reversed(words)), " ".join(sorted(words))]
    one = RankingList(one.query_id, one.query, ("a", "b", "c"), tuple(texts))
    sorted_scores, plain_scores = scores(ranker, [one])[0], scores(plain, [one])[0]
    pieces = [tuple(sorted(plain.tokenizer.hf.tokenize(text))) for text in texts]
    assert pieces[0] == pieces[1] == tuple(plain.tokenizer.hf.tokenize(texts[2]))
    torch.testing.assert_close(sorted_scores, plain_scores[2].expand(3))
    assert plain_scores[0] != plain_scores[1]
