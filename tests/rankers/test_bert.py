"""`Bert` against transformers' `BertModel`: outputs, gradients, names of the weights, and where each is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig, BertModel

from crossjem_pl.rankers import CrossJEM, bert
from crossjem_pl.rankers.bert import Bert
from crossjem_pl.rankers.encoders import PACKAGED, load_config, load_encoder, load_tokenizer, resolve
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.text import ShortTextTokenizer

IDS = torch.tensor([[2, 7, 9, 3, 0], [2, 5, 11, 8, 3]])
LIMITS: dict[str, Any] = {"max_query_tokens": 16, "max_union_tokens": 64}
PADDING = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
INPUTS: list[dict[str, torch.Tensor]] = [
    {},
    {"attention_mask": PADDING},
    {"token_type_ids": torch.tensor([[0, 0, 1, 1, 0]] * 2), "attention_mask": PADDING},
    {"position_ids": torch.tensor([[0, 1, 1, 4, 2]] * 2)},
    {"attention_mask": torch.where(torch.eye(5) > 0, 0.0, -3.0)[None, None].expand(2, 1, 5, 5)},
]


@pytest.fixture(scope="module")
def pair(tiny_bert: str) -> tuple[Any, Bert]:
    theirs = BertModel.from_pretrained(tiny_bert, add_pooling_layer=False).eval()
    ours = load_encoder(tiny_bert, {}).eval()
    assert isinstance(ours, Bert)
    return theirs, ours


@pytest.mark.parametrize("inputs", INPUTS, ids=["bare", "padding", "segments", "positions", "bias"])
@pytest.mark.parametrize("gradient", [False, True])
def test_equals_transformers_bert(
    pair: tuple[Any, Bert], inputs: dict[str, torch.Tensor], gradient: bool
) -> None:
    shown = PADDING.bool() if inputs.get("attention_mask") is PADDING else torch.ones_like(PADDING).bool()
    found = []
    with torch.set_grad_enabled(gradient):
        for model in pair:
            states = model(input_ids=IDS, **inputs).last_hidden_state[shown]
            if gradient:
                model.zero_grad()
                states.square().sum().backward()
            found.append((states.detach(), {name: value.grad for name, value in model.named_parameters()}))
    torch.testing.assert_close(found[1][0], found[0][0], atol=1e-6, rtol=1e-5)
    for name, value in found[1][1].items():
        torch.testing.assert_close(value, found[0][1][name], atol=1e-5, rtol=1e-4, msg=name)


def test_names_of_the_weights_are_those_of_transformers(pair: tuple[Any, Bert]) -> None:
    theirs, ours = pair
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert sum(p.requires_grad for p in ours.parameters()) == len(ours.state_dict())


@pytest.mark.parametrize(
    "old",
    [("LayerNorm.weight", "LayerNorm.gamma"), ("embeddings", "bert.embeddings"), ("", "")],
    ids=["gamma", "prefix", "half"],
)
def test_reads_older_names_and_half_precision(
    tiny_bert: str, pair: tuple[Any, Bert], old: tuple[str, str], tmp_path: Path
) -> None:
    for file in Path(tiny_bert).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    state = load_file(tmp_path / "model.safetensors")
    new, name = old
    if new == "embeddings":
        state = {f"bert.{key}": value for key, value in state.items()}
    elif new:
        state = {key.replace(new, name): value for key, value in state.items()}
    else:
        state = {key: value.half() for key, value in state.items()}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = load_encoder(str(tmp_path), {}).state_dict()
    tolerance = {"atol": 1e-3, "rtol": 1e-3} if not new else {"atol": 0.0, "rtol": 0.0}
    torch.testing.assert_close(found, pair[1].state_dict(), **tolerance)


def test_other_configurations_stay_with_transformers(tiny_bert: str) -> None:
    assert isinstance(load_encoder(tiny_bert, {}, AutoModel), BertModel)
    assert isinstance(load_encoder(tiny_bert, {"attn_implementation": "flex_attention"}), BertModel)
    for change in ({"hidden_act": "relu"}, {"is_decoder": True}, {"add_cross_attention": True}):
        assert not Bert.fits(BertConfig(**change))


@pytest.mark.parametrize("name", [PACKAGED, "ours"])
def test_configuration_and_tokenizer_are_those_of_transformers(
    tiny_bert: str, name: str, tmp_path: Path
) -> None:
    folder = Path(resolve(PACKAGED)) if name == PACKAGED else tmp_path / "ours"
    if name == "ours":
        save_ranker(CrossJEM(tiny_bert, **LIMITS), folder)
    config, whole = load_config(str(folder)), AutoConfig.from_pretrained(folder)
    assert isinstance(config, bert.BertConfig)
    assert {**config.to_dict(), "_name_or_path": ""} == {**whole.to_dict(), "_name_or_path": ""}
    assert all(getattr(config, field) == getattr(whole, field) for field in bert.BertConfig.DEFAULTS)
    ours, theirs = load_tokenizer(str(folder)), AutoTokenizer.from_pretrained(folder)
    assert isinstance(ours, bert.JsonTokenizer)
    assert ours.backend_tokenizer.to_str() == theirs.backend_tokenizer.to_str()
    assert sorted(ours.all_special_ids) == sorted(theirs.all_special_ids)
    assert ours.get_vocab() == theirs.get_vocab()
    for field in ("cls", "sep", "pad", "unk", "bos", "eos"):
        assert getattr(ours, f"{field}_token_id") == getattr(theirs, f"{field}_token_id")
    texts = ["Hotels near Paris, 75001", "naïve Ünïcode 東京 [SEP]", "a" * 300]
    theirs.split_special_tokens = True
    expected = [theirs(text, add_special_tokens=False).input_ids for text in texts]
    assert [ShortTextTokenizer(ours).whole([text]).values.tolist() for text in texts] == expected
    assert ours("a b", "c").input_ids == theirs("a b", "c").input_ids  # transformers' class behind it
    for saved, tokenizer in (("a", ours), ("b", theirs)):
        tokenizer.init_kwargs["split_special_tokens"] = True
        tokenizer.save_pretrained(tmp_path / saved)
    assert (tmp_path / "a/tokenizer.json").read_bytes() == (tmp_path / "b/tokenizer.json").read_bytes()


def test_a_tokenizer_is_whole_when_its_folder_is_gone(tiny_bert: str, tmp_path: Path) -> None:
    save_ranker(CrossJEM(tiny_bert, **LIMITS), tmp_path / "model")
    tokenizer = load_tokenizer(str(tmp_path / "model"))
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    assert tokenizer.tokenize("red shoes") == AutoTokenizer.from_pretrained(tiny_bert).tokenize("red shoes")
