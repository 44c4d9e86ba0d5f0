"""Model folders: `model.safetensors`, `config.json` and the tokenizer's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

import crossjem_pl
from crossjem_pl.rankers.base import RANKERS, Ranker
from crossjem_pl.rankers.public import PublicFolders, read_json

__all__ = ["copy_weights", "load_ranker", "save_ranker"]

_KEY = "crossjem_pl"


def save_ranker(ranker: Ranker, folder: str | Path) -> None:
    """Writes `ranker` to `folder`, made if absent. Nothing in it is pickled.

    `config.json` holds the encoder's Hugging Face configuration and, under `crossjem_pl`, the ranker's name
    and init arguments; `model.safetensors` all weights.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = ranker.save_assets(str(folder))
    config[_KEY] = {"version": crossjem_pl.__version__, "ranker": ranker.name, "init_args": ranker.init_args}
    text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    # a tensor of its own for each name: safetensors refuses shared storage; loading ties what is tied
    state = {name: value.detach().contiguous().clone() for name, value in ranker.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def load_ranker(name: str) -> Ranker:
    """The ranker of a model folder, or of a hub repository with such files.

    Folders of other libraries are read where a ranker declares it (`PublicFolders`): sentence-transformers
    bi-encoders and cross-encoders, PyLate and ColBERT models. Only safetensors are loaded.

    Raises:
        FileNotFoundError: if there is no such folder and the hub cannot be reached; says what to do.
        ValueError: if no ranker reads the folder, or its ranker is unknown.
    """
    folder = _local_folder(name)
    if not any((folder / file).exists() for file in ("config.json", "modules.json")):
        raise ValueError(f"{folder} has no config.json, so it is not a model folder")
    config = read_json(folder / "config.json")
    if _KEY not in config:
        return _adopt(folder, config)
    own = config[_KEY]
    for field in ("ranker", "init_args"):
        if field not in own:
            raise ValueError(f"{folder / 'config.json'}: the {_KEY!r} part has no {field!r}")
    if own["ranker"] not in RANKERS:
        raise ValueError(
            f"{folder}: unknown ranker {own['ranker']!r}; there are {', '.join(sorted(RANKERS))}"
        )
    ranker = RANKERS[own["ranker"]].from_folder(str(folder), own["init_args"])
    try:
        ranker.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    except RuntimeError as error:
        raise ValueError(f"{folder / 'model.safetensors'} does not fit its config.json: {error}") from None
    return ranker


def _adopt(folder: Path, config: dict[str, Any]) -> Ranker:
    """The ranker of a folder that another library wrote."""
    for cls in RANKERS.values():
        if issubclass(cls, PublicFolders) and cls.adopts(folder, config):
            return cls.from_public(folder)
    raise ValueError(
        f"{folder} is not a crossjem_pl model: its config.json has no {_KEY!r} part. Nor is it a "
        "sentence-transformers bi-encoder, a cross-encoder with one label, or a ColBERT. To start from a "
        "plain encoder, give it as `encoder` of a ranker and train"
    )


def _local_folder(name: str) -> Path:
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise FileNotFoundError(
            f"no model {name!r}: there is no such folder and the Hugging Face hub did not give it. Train one "
            "with `lightning fit` (it is written to <run folder>/model), or download its files into a folder "
            f"and give that path. The hub said: {str(error).partition(chr(10))[0]}"
        ) from error


def copy_weights(name: str, ranker: Ranker) -> None:
    """Loads the weights of the model folder `name` into `ranker`, which must be of the same make.

    Raises:
        FileNotFoundError: if there is no such model.
        ValueError: if it is another kind of ranker, or a tensor is missing, left over or of another shape.
    """
    stored = load_ranker(name)
    if type(stored) is not type(ranker):
        raise ValueError(f"{name} holds a {stored.name} ranker, not a {ranker.name}")
    try:
        ranker.load_state_dict(stored.state_dict(), strict=True)
    except RuntimeError as error:
        raise ValueError(f"{name} does not fit the configured {ranker.name}: {error}") from None
