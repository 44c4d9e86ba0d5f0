"""Guarded reading of model folders: what is damaged, absurd or leads outside ends in an error that names the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig

from crossjem_pl.files import read_json
from crossjem_pl.hashing import file_sha256

__all__ = [
    "SAFE",
    "built_from",
    "check_config",
    "check_files",
    "inside",
    "load_config",
    "read_object",
    "read_weights",
    "require_safetensors",
]

SAFE = {"trust_remote_code": False}
"""Keyword arguments of every `from_pretrained`: no folder asks to run its code."""

_WEIGHTS = "model.safetensors"
_IMPLEMENTATIONS = {
    *("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"),
    *("grouped_mm", "batched_mm"),
}
_LAYERS = ("num_hidden_layers", "num_layers", "num_decoder_layers", "n_layers", "n_layer")
_WIDTHS = ("hidden_size", "d_model", "dim", "n_embd")
_POSITIONS = ("max_position_embeddings", "n_positions")
_SIZES = ("vocab_size", "intermediate_size", "d_ff", "hidden_dim", "type_vocab_size", "embedding_size")
_OTHERS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "d_kv", "head_dim", "num_key_value_heads")
_LEARNED = r"position_embeddings|embed_positions|\bwpe\b"
_MOST = 1 << 24


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file; empty if there is no such file.

    Raises:
        ValueError: if it is not JSON or no object, naming the file.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def inside(folder: Path, name: object, where: Path) -> Path:
    """The path `name` below `folder`; a ValueError that names the file `where` if it leads out of it."""
    if not isinstance(name, str) or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{where}: the path {str(name)[:80]!r} leads out of the folder")
    return folder / name


def require_safetensors(folder: Path) -> None:
    """Raises a ValueError if an encoder's folder has no weights in the safetensors format, inside of it."""
    index = folder / "model.safetensors.index.json"
    if not any(path.exists() for path in (folder / _WEIGHTS, index)):
        raise ValueError(
            f"{folder} has no model.safetensors. Pickled weights (pytorch_model.bin) are not loaded: convert "
            "them with transformers, from_pretrained(...) and save_pretrained(...), where you trust them"
        )
    parts = read_object(index).get("weight_map", {})
    for part in sorted({str(part) for part in parts.values()} if isinstance(parts, dict) else [".."]):
        inside(folder, part, index)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is cut off or damaged, naming it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the file is missing")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from None


def check_files(folder: Path, files: object, where: Path) -> None:
    """Raises a ValueError if a file is not the one whose SHA-256 was written to `where`, by name."""
    if not isinstance(files, dict):
        raise ValueError(f"{where}, field 'files': expected an object, got {type(files).__name__}")
    for name, expected in files.items():
        path = inside(folder, name, where)
        if path.is_file() and (found := file_sha256(path)) != expected:  # who reads a missing one says so
            raise ValueError(
                f"{path} is damaged or cut short, or another file: its SHA-256 is {found}, {where.name} says {expected}"
            )


def load_config(name: str) -> PretrainedConfig:
    """The Hugging Face configuration of a hub repository or a folder, whose files are checked first."""
    folder = Path(name)
    if not folder.is_dir():
        return AutoConfig.from_pretrained(name, **SAFE)
    check_config(folder)
    with built_from(folder / "config.json"):
        return AutoConfig.from_pretrained(folder, **SAFE)


def check_config(folder: Path) -> None:
    """Raises a ValueError, naming file and field, if a folder's config.json describes no model of its weights.

    Sizes are whole numbers which the weights, where they lie in one file, have room for; and what computes the
    attention is one of transformers' own functions, not a name to download.
    """
    path = folder / "config.json"
    content = read_object(path)
    for field, value in _implementations(content):
        if value is not None and value not in _IMPLEMENTATIONS:
            raise ValueError(f"{path}, field {field!r}: {str(value)[:80]!r} is none of the known ones")
    tensors, elements, learned = _header(folder / _WEIGHTS)
    width = max((content[f] for f in _WIDTHS if type(content.get(f)) is int), default=1)
    limits = dict.fromkeys(_LAYERS, tensors) | dict.fromkeys((*_WIDTHS, *_OTHERS), elements)
    limits |= dict.fromkeys(_SIZES, elements // max(width, 1))
    limits |= dict.fromkeys(_POSITIONS, elements // max(width, 1) if learned else _MOST)
    for field, limit in limits.items():
        value = content.get(field)
        if value is not None and (type(value) is not int or not 0 <= value <= limit):
            raise ValueError(
                f"{path}, field {field!r}: {str(value)[:80]!r} is not a whole number from 0 to {limit}, which is "
                "what the weights have room for"
            )


def _header(path: Path) -> tuple[int, int, bool]:
    """How many tensors a safetensors file has, how many values, and whether position embeddings are among them."""
    if not path.is_file():
        return 1000, 1 << 36, False
    try:
        with safe_open(path, "pt") as weights:
            names = list(weights.keys())
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from None
    return len(names), path.stat().st_size, any(re.search(_LEARNED, name) for name in names)


def _implementations(content: Any) -> Iterator[tuple[str, Any]]:
    """Fields at any depth that name a function for the attention or the experts."""
    for key, value in content.items() if isinstance(content, dict) else ():
        if key.endswith(("attn_implementation", "experts_implementation")):
            yield key, value if isinstance(value, (str, type(None))) else json.dumps(value)
        yield from _implementations(value)


@contextmanager
def built_from(path: Path) -> Iterator[None]:
    """Names the file that a model or a tokenizer is built from in every error of building it."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        if (
            type(error) in (ValueError, FileNotFoundError)
            and str(path.parent) in str(error)
            and "\n" not in str(error)
        ):
            raise
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(f"{path}: {reason}") from error
