"""What a model folder must not do: run code, be unpickled, lead elsewhere, hang, or be changed unseen."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from crossjem_pl.rankers import DPR, CrossJEM, MonoBERT, RankT5
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from crossjem_pl.rankers.threshold import read_threshold

LIMITS: dict[str, Any] = {"max_query_tokens": 8, "max_item_tokens": 8}


@pytest.fixture
def encoder(tiny_bert: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "encoder"))


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 4294967296),
        ("num_hidden_layers", "2"),
        ("vocab_size", 10**12),
        ("hidden_size", [32]),
        ("max_position_embeddings", 10**9),
        ("attn_implementation", "someone/kernels"),
        ("_attn_implementation", "someone/kernels"),
    ],
)
@pytest.mark.parametrize("ours", [False, True])
def test_a_config_with_an_absurd_field(ours: bool, field: str, value: Any, encoder: Path) -> None:
    folder = encoder
    if ours:
        folder = encoder.parent / "model"
        save_ranker(MonoBERT(str(encoder), **LIMITS), folder)
    change(folder / "config.json", **{field: value})
    started = time.monotonic()
    with pytest.raises(ValueError, match=rf"config\.json, field '{field}'.*"):
        load_ranker(str(folder)) if ours else MonoBERT(str(folder), **LIMITS)
    assert time.monotonic() - started < 5


def test_no_code_of_a_folder_is_run(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = encoder / "ran"
    for name in ("configuration_x", "modeling_x", "tokenization_x"):
        (encoder / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')")
    code = {"AutoConfig": "configuration_x.C", "AutoModel": "modeling_x.M"}
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked whether to run code"))
    change(encoder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_x.T", None]})
    change(encoder / "config.json", auto_map=code)
    load_tokenizer(str(encoder))
    DPR(str(encoder), **LIMITS)
    change(encoder / "config.json", model_type="x")
    with pytest.raises(ValueError, match=r"config\.json"):
        DPR(str(encoder), **LIMITS)
    assert not ran.exists()


def test_pickled_weights_of_an_encoder_are_not_loaded(encoder: Path) -> None:
    (encoder / "model.safetensors").unlink()
    torch.save({}, encoder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no model\.safetensors\. Pickled weights"):
        CrossJEM(str(encoder), union_positions="item", **LIMITS)


@pytest.mark.parametrize("name", ["modules.json", "model.safetensors.index.json"])
def test_no_path_leads_out_of_a_folder(name: str, encoder: Path) -> None:
    folder = encoder / "inside"
    folder.mkdir()
    if name == "modules.json":
        modules = [{"idx": 0, "path": "../", "type": "sentence_transformers.models.Transformer"}]
        (folder / name).write_text(json.dumps(modules))
    else:
        shutil.copytree(
            encoder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model*", "inside")
        )
        (folder / name).write_text(json.dumps({"weight_map": {"x": "../model.safetensors"}}))
    with pytest.raises(ValueError, match=rf"{name}: the path '\.\./.*is none inside of the folder"):
        load_ranker(str(folder)) if name == "modules.json" else DPR(str(folder), **LIMITS)


def test_changed_weights_and_tokens_are_noticed(encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_ranker(MonoBERT(str(encoder), **LIMITS), folder)
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        with pytest.raises(ValueError, match=rf"{name} is damaged.*SHA-256.*config\.json says"):
            load_ranker(str(folder))
        (folder / name).write_bytes(whole)
    part = json.loads((folder / "config.json").read_text())["crossjem_pl"]
    change(folder / "config.json", hidden_act="relu")
    with pytest.raises(
        ValueError, match=r"config\.json is damaged or was edited.*remove crossjem_pl\.sha256"
    ):
        load_ranker(str(folder))
    part = {name: value for name, value in part.items() if name not in ("files", "sha256")}
    change(folder / "config.json", crossjem_pl=part)
    load_ranker(str(folder))  # a folder of an earlier version


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_item_tokens", "8"),
        ("max_query_tokens", True),
        ("dropout", [0.1]),
        ("item_order", 3),
        ("dropout", 1e999),
    ],
)
def test_an_argument_of_another_type(field: str, value: Any, encoder: Path, tmp_path: Path) -> None:
    save_ranker(MonoBERT(str(encoder), **LIMITS), tmp_path / "model")
    part = json.loads((tmp_path / "model" / "config.json").read_text())["crossjem_pl"]
    change(
        tmp_path / "model" / "config.json",
        crossjem_pl=part | {"init_args": part["init_args"] | {field: value}},
    )
    with pytest.raises(ValueError, match=rf"config\.json(, field 'init_args\.{field}')?: .*"):
        load_ranker(str(tmp_path / "model"))


@pytest.mark.parametrize("value", [-1, 10**9, "x", [0]])
def test_a_start_token_that_is_none(value: Any, tiny_models_folder: Path, tmp_path: Path) -> None:
    save_ranker(RankT5(str(tiny_models_folder / "t5"), **LIMITS), tmp_path)
    change(tmp_path / "config.json", decoder_start_token_id=value)
    with pytest.raises(ValueError, match=r"config\.json.*"):
        load_ranker(str(tmp_path))


def test_tokens_beyond_the_vocabulary(encoder: Path) -> None:
    whole = json.loads((encoder / "tokenizer.json").read_text())
    whole["model"]["vocab"]["zzz"] = 7000
    (encoder / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(
        ValueError, match=r"tokenizer\.json: the token 'zzz' has the id 7000, .* vocab_size of \d+"
    ):
        MonoBERT(str(encoder), **LIMITS)


@pytest.mark.parametrize("content", ["[" * 100_000, json.dumps({"value": "long" * 5000}), None])
def test_a_damaged_threshold(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "threshold.json"
    if content is None:
        os.mkfifo(path)
    else:
        path.write_text(content)
    with pytest.raises(ValueError, match=f"{path}.*(not valid JSON|JSON dict|belongs there|a pipe)") as error:
        read_threshold(path)
    assert len(str(error.value)) < 500
