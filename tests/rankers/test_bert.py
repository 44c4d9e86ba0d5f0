"""`Bert` against transformers' `BertModel`: outputs, gradients, names of the weights, and where each is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, BertConfig, BertModel

from crossjem_pl.rankers.bert import Bert
from crossjem_pl.rankers.encoders import load_encoder

IDS = torch.tensor([[2, 7, 9, 3, 0], [2, 5, 11, 8, 3]])
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
