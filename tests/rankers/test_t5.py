"""RankT5 and monoT5 against the plain model of transformers, one prompt at a time."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, T5EncoderModel

from crossjem_pl.rankers import MonoT5, RankT5
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests import tiny_models
from tests.conftest import example_lists
from tests.rankers.cases import LIMITS


@pytest.fixture(scope="module", params=["first", "1.1"])
def t5(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A T5 of each version; that of 1.1 has an output layer of its own."""
    folder = tiny_models.write_t5(
        tmp_path_factory.mktemp("t5"), layers=4, first_version=request.param == "first"
    )
    if request.param == "1.1":
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
        model.config.tie_word_embeddings = False
        model.save_pretrained(folder)
    return str(folder)


@cache
def loaded(folder: str) -> tuple[Any, Any]:
    return AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder).eval()


@torch.no_grad()
def first_logits(folder: str, prompt: str) -> Tensor:
    """The first decoding step's logits over the whole vocabulary."""
    tokenizer, model = loaded(folder)
    ids = tokenizer(prompt + "</s>", return_tensors="pt")["input_ids"]
    return model(input_ids=ids, decoder_input_ids=torch.tensor([[0]])).logits[0, 0]


@torch.no_grad()
def test_rankt5_is_the_logit_of_the_sentinel(t5: str) -> None:
    ranker = RankT5(t5, **LIMITS).eval()
    sentinel = ranker.tokenizer.hf.convert_tokens_to_ids("<extra_id_10>")
    for one in example_lists(2, most_items=4):
        scores = ranker(ranker.collate([one]))[0]
        expected = [first_logits(t5, f"Query: {one.query} Document: {item}")[sentinel] for item in one.items]
        torch.testing.assert_close(scores, torch.stack(expected), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_monot5_is_the_log_probability_of_true(t5: str) -> None:
    ranker = MonoT5(t5, **LIMITS).eval()
    answers = ranker.tokenizer.hf.convert_tokens_to_ids(["▁true", "▁false"])
    for one in example_lists(2, most_items=4):
        scores = ranker(ranker.collate([one]))[0]
        prompts = [f"Query: {one.query} Document: {item} Relevant:" for item in one.items]
        expected = [first_logits(t5, prompt)[answers].log_softmax(0)[0] for prompt in prompts]
        torch.testing.assert_close(scores, torch.stack(expected), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_encoder_variant_is_a_linear_of_the_mean_state(t5: str) -> None:
    ranker = RankT5(t5, "encoder", **LIMITS).eval()
    assert ranker.classifier is not None
    model = T5EncoderModel.from_pretrained(t5).eval()
    one = example_lists(1, most_items=4)[0]
    for score, item in zip(ranker(ranker.collate([one]))[0], one.items, strict=True):
        prompt = f"Query: {one.query} Document: {item}</s>"
        ids = ranker.tokenizer.hf(prompt, return_tensors="pt")["input_ids"]
        state = model(input_ids=ids).last_hidden_state[0].mean(0)
        torch.testing.assert_close(score, ranker.classifier(state)[0], rtol=1e-5, atol=1e-5)


def test_a_saved_model_keeps_its_output_layer_and_its_layers(t5: str, tmp_path: Path) -> None:
    one = example_lists(1)[0]
    for ranker in (RankT5(t5, layers=3, **LIMITS).eval(), MonoT5(t5, layers=2, **LIMITS).eval()):
        folder = tmp_path / ranker.name
        save_ranker(ranker, folder)
        again = load_ranker(str(folder)).eval()
        torch.testing.assert_close(again(again.collate([one])), ranker(ranker.collate([one])))
        assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in ranker.parameters())


def test_kept_layers_are_evenly_spaced(t5: str) -> None:
    full, some = RankT5(t5, **LIMITS), RankT5(t5, layers=2, **LIMITS)
    for stack in ("encoder", "decoder"):
        kept, original = getattr(some, stack).block, getattr(full, stack).block
        assert len(kept) == 2
        for block, source in zip(kept, (original[0], original[3]), strict=True):
            for name, weight in block.state_dict().items():
                torch.testing.assert_close(weight, source.state_dict()[name])
    assert (some.encoder_config.num_layers, some.encoder_config.num_decoder_layers) == (2, 2)
