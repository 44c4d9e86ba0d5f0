"""Model folders: `model.safetensors`, `config.json` and the tokenizer's files, ours and those of other libraries."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from pathlib import Path
from types import UnionType
from typing import Any, Self, get_args, get_type_hints

from safetensors.torch import save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

import crossjem_pl
from crossjem_pl.hashing import content_sha256, file_sha256
from crossjem_pl.lists import shown
from crossjem_pl.rankers.base import RANKERS, Ranker, import_named
from crossjem_pl.rankers.encoders import (
    PACKAGED,
    built_from,
    check_files,
    first_position,
    load_config,
    read_json,
    read_weights,
    resolve,
)

__all__ = [
    "PublicFolders",
    "copy_weights",
    "length_limit",
    "load_architecture",
    "load_ranker",
    "local_folder",
    "portable",
    "save_architecture",
    "save_ranker",
    "write_config",
]

_KEY = "crossjem_pl"
_FORMAT = 3
"""Raised when older versions of this package can no longer read what is written: 3 for folders whose weights' names
lack their `weights_prefix`, 2 for others; folders of version 0.1 name none."""


_FREE = re.compile(
    r"(\w+_)?encoder|form|layers|dropout|freeze_\w+|attn_implementation|random_init|max_\w+|\w+_per_pass|pass_order|scale"
)
"""Init arguments that may differ from those that weights were trained with: limits, speed, starting values."""


_MODELS = re.compile(r"(\w+_)?encoder|first|second")
"""Init arguments that name a model, which may be a path."""

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


class PublicFolders(ABC):
    """A ranker that can be built, with its weights, from folders that another library wrote."""

    @classmethod
    @abstractmethod
    def adopts(cls, folder: Path, config: dict[str, Any]) -> bool:
        """Whether this is the ranker for `folder`, whose config.json (empty if it has none) is `config`."""

    @classmethod
    @abstractmethod
    def from_public(cls, folder: Path) -> Self:
        """The ranker with the folder's weights.

        Raises:
            ValueError: for something in the folder that the ranker cannot do, naming the file.
        """


def save_ranker(ranker: Ranker, folder: str | Path) -> None:
    """Writes `ranker` to `folder`, made if absent. Nothing in it is pickled.

    `config.json` holds the encoder's Hugging Face configuration and, under `crossjem_pl`, the ranker's name
    and init arguments (of a ranker from another package its import path too) and the SHA-256 of the other files;
    `model.safetensors` all weights. transformers and sentence-transformers read the folder where they know such a
    model: monoBERT, and dual encoders with one tower.
    """
    from crossjem_pl.files import replacing_path  # what only ranks writes nothing

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = ranker.save_assets(str(folder))
    prefix = ranker.save_public(folder)
    # a tensor of its own for each name: safetensors refuses shared storage; loading ties what is tied
    state = {
        name.removeprefix(prefix): value.detach().contiguous().clone()
        for name, value in ranker.state_dict().items()
    }
    with replacing_path(folder / "model.safetensors") as path:
        save_file(state, path, metadata={"format": "pt"})
    files = [folder / "model.safetensors", *sorted(p for n in _TOKENIZER_FILES for p in folder.rglob(n))]
    more = {"files": {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}}
    _write_config(ranker, folder, config, more | ({"weights_prefix": prefix} if prefix else {}))


def save_architecture(ranker: Ranker, folder: str | Path) -> None:
    """Writes a ranker's folder without its weights, which are a part of another ranker's; for `load_architecture`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    _write_config(ranker, Path(folder), ranker.save_assets(str(folder)), {})


def _write_config(ranker: Ranker, folder: Path, config: dict[str, Any], more: dict[str, Any]) -> None:
    """Writes config.json: what `save_assets` gave, and our own part."""
    config.pop("_name_or_path", None)  # a place on this machine
    config[_KEY] = {
        "format": _FORMAT if "weights_prefix" in more else 2,
        "version": crossjem_pl.__version__,
        "ranker": ranker.name,
        "init_args": portable(ranker.init_args),
        **more,
    }
    cls = type(ranker)
    if not cls.__module__.startswith("crossjem_pl."):
        config[_KEY]["class_path"] = f"{cls.__module__}.{cls.__qualname__}"
    write_config(config, folder / "config.json")


def portable(values: dict[str, Any]) -> dict[str, Any]:
    """Init arguments with the last part alone of models' absolute paths, which tell how this machine is laid out."""
    return {
        name: Path(value).name
        if isinstance(value, str) and _MODELS.fullmatch(name) and Path(value).is_absolute()
        else value
        for name, value in values.items()
    }


def write_config(config: dict[str, Any], path: Path) -> None:
    """Writes a model folder's config.json, whole or not at all, with its own SHA-256 in our part of it."""
    from crossjem_pl.files import write_json  # what only ranks writes nothing

    config[_KEY]["sha256"] = _sha256_of(config)
    write_json(path, config, allow_nan=False)


def _sha256_of(config: dict[str, Any]) -> str:
    """Of what a config.json says, but for the place where this number stands."""
    ours = {name: value for name, value in config[_KEY].items() if name != "sha256"}
    as_read = json.loads(json.dumps({**config, _KEY: ours}))  # whose names are all texts
    return content_sha256(json.dumps(as_read, sort_keys=True))


def load_ranker(name: str) -> Ranker:
    """The ranker of a model folder, or of a hub repository with such files; `Ahead.untrained` for the packaged encoder.

    Folders of other libraries are read where a ranker declares it (`PublicFolders`): sentence-transformers
    bi-encoders and cross-encoders, PyLate and ColBERT models. Only safetensors are loaded.

    Raises:
        FileNotFoundError: if there is no such folder and the hub cannot be reached; says what to do.
        ValueError: if no ranker reads the folder, its ranker is unknown, its weights are damaged, or a newer
            version wrote it.
    """
    if name == PACKAGED:
        ahead: Any = RANKERS["ahead"]
        return ahead.untrained(name)
    folder = local_folder(name)
    if not any((folder / file).exists() for file in ("config.json", "modules.json")):
        of_run = f": the model of that run is {folder / 'model'}" if (folder / "model").is_dir() else ""
        raise ValueError(f"{folder} has no config.json, so it is not a model folder{of_run}")
    path = folder / "config.json"
    config = read_json(path)
    if _KEY not in config:
        for cls in RANKERS.values():
            if issubclass(cls, PublicFolders) and cls.adopts(folder, config):
                with built_from(path if path.exists() else folder / "modules.json"):
                    return cls.from_public(folder)
        raise ValueError(
            f"{folder} is not a crossjem_pl model: its config.json has no {_KEY!r} part. Nor is it a "
            "sentence-transformers bi-encoder, a cross-encoder with one label, or a ColBERT. To start from a "
            "plain encoder, give it as `encoder` of a ranker and train"
        )
    stored = config[_KEY]
    _ranker_class(path, stored)
    check_files(folder, stored.get("files", {}), path)
    weights = read_weights(folder / "model.safetensors")
    with _Undrawn():
        ranker = load_architecture(folder)
    if prefix := stored.get("weights_prefix", ""):
        own = ranker.state_dict().keys()
        weights = {name if name in own else f"{prefix}{name}": value for name, value in weights.items()}
    return _load(ranker, weights, f"{folder / 'model.safetensors'} does not fit its config.json")


class _Undrawn(TorchFunctionMode):
    """Draws no initial weights: those of the folder, all of them, take their place."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def load_architecture(folder: Path) -> Ranker:
    """The ranker of a folder without its weights.

    Raises:
        ValueError: naming the file, as `load_ranker` does.
    """
    path = folder / "config.json"
    config = read_json(path)
    stored = config.get(_KEY)
    ranker_class = _ranker_class(path, stored)
    _check_types(ranker_class, stored["init_args"], path)
    with built_from(path):
        ranker = ranker_class.from_folder(str(folder), stored["init_args"])
    # what it was made from, not the folder that it is read from
    ranker.init_args = {
        name: stored["init_args"].get(name, value)
        for name, value in ranker.init_args.items()
        if name in stored["init_args"] or name not in ("layers", "random_init")
    }
    if stored.get("sha256", found := _sha256_of(config)) != found:
        raise ValueError(
            f"{path} is damaged or was edited: its SHA-256 is {found}, it says {str(stored['sha256'])[:64]}; after an "
            f"edit remove {_KEY}.sha256 from it"
        )
    return ranker


def _check_types(cls: type[Ranker], init_args: dict[str, Any], path: Path) -> None:
    """Raises a ValueError that names a number, text or switch among the arguments of a ranker with another type.

    Names and values are for the constructor to check; what is no JSON scalar, for whoever reads it.
    """
    hints = get_type_hints(cls.__init__)
    if options := get_args(hints.pop("options", None)):  # Unpack[...]
        hints |= get_type_hints(options[0])
    scalars = {bool: (bool,), int: (int,), float: (int, float), str: (str,), type(None): (type(None),)}
    for field, value in init_args.items():
        kinds = get_args(hint) if isinstance(hint := hints.get(field), UnionType) else (hint,)
        if not set(kinds) <= scalars.keys():
            continue
        right = any(isinstance(value, scalars[kind]) for kind in kinds) and (
            not isinstance(value, bool) or bool in kinds
        )
        if not right or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{path}, field 'init_args.{field}': {shown(value)} is not of the type {hint}")


def copy_weights(name: str, ranker: Ranker) -> None:
    """Loads the weights of the model folder `name` into `ranker`, which must be of the same make.

    Raises:
        FileNotFoundError: if there is no such model.
        ValueError: if it is another kind of ranker or form (an argument that changes what the weights compute), or a
            tensor is missing, left over or of another shape.
    """
    stored = load_ranker(name)
    if type(stored) is not type(ranker):
        raise ValueError(f"{name} holds a {stored.name} ranker, not a {ranker.name}")
    was, now = _form(stored.init_args), _form(ranker.init_args)
    for field, here in now.items():
        if (there := was.get(field)) != here:
            raise ValueError(
                f"{name} was trained with {field} {json.dumps(there)}, and {json.dumps(here)} is configured: set "
                f"model.ranker.init_args.{field} (or the form) as in its config.json"
            )
    _load(ranker, stored.state_dict(), f"{name} does not fit the configured {ranker.name}")


def _load(ranker: Ranker, state: dict[str, Tensor], problem: str) -> Ranker:
    """The ranker with all of these weights, and no others."""
    try:
        ranker.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise ValueError(f"{problem}: {' '.join(str(error).split())[:300]}") from None
    return ranker


def _form(init_args: dict[str, Any]) -> dict[str, Any]:
    """The arguments that change what weights compute, as JSON reads them."""

    def kept(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in pairs if not _FREE.fullmatch(key)}

    return json.loads(json.dumps(init_args), object_pairs_hook=kept)


def length_limit(folder: Path, default: int = 512) -> int:
    """The longest row that an encoder's folder allows, special tokens included."""
    config = load_config(str(folder))
    positions = getattr(config, "max_position_embeddings", default) - first_position(config)
    given = (
        read_json(folder / "sentence_bert_config.json").get("max_seq_length"),
        read_json(folder / "tokenizer_config.json").get("model_max_length"),
    )
    return min(positions, next((int(limit) for limit in given if limit), default))


def _ranker_class(path: Path, stored: dict[str, Any]) -> type[Ranker]:
    """The class that the part `stored` of the config.json at `path` names."""
    if not isinstance(stored, dict):
        raise ValueError(f"{path}: the {_KEY!r} part is no object")
    stored = {"format": 1, "class_path": "", **stored}
    for field, kind in {"format": int, "ranker": str, "init_args": dict, "class_path": str}.items():
        if not isinstance(stored.get(field), kind):
            raise ValueError(f"{path}: the {_KEY!r} part has no {field!r} of type {kind.__name__}")
    if stored["format"] > _FORMAT:
        raise ValueError(
            f"{path} has format {stored['format']}, written by crossjem_pl {stored.get('version')}; version "
            f"{crossjem_pl.__version__} reads formats up to {_FORMAT}: pip install --upgrade crossjem_pl"
        )
    if not stored["class_path"]:
        if stored["ranker"] not in RANKERS:
            raise ValueError(
                f"{path}: unknown ranker {shown(stored['ranker'])}; there are {', '.join(RANKERS)}"
            )
        return RANKERS[stored["ranker"]]
    module, _, name = stored["class_path"].rpartition(".")
    try:
        cls = getattr(import_named(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: the ranker's class {shown(stored['class_path'])} is not importable: {error}"
        ) from None
    if not (isinstance(cls, type) and issubclass(cls, Ranker)):
        raise ValueError(f"{path}: {shown(stored['class_path'])} is no subclass of Ranker")
    return cls


def local_folder(name: str) -> Path:
    """The folder of that name, the installed one of a `packaged:` name, or the local copy of the hub repository.

    Raises:
        FileNotFoundError: if there is none; says what to do.
    """
    name = resolve(name)
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
