"""Bi-encoders that sentence-transformers wrote: what a dual ranker reads of their folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file
from torch import Tensor, nn

from crossjem_pl.rankers.dual.towers import ACTIVATIONS, ProjectionSpec, prompt_length
from crossjem_pl.rankers.dual.vectors import RowFormat
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.rankers.folder import length_limit, read_json, require_safetensors
from crossjem_pl.text import ShortTextTokenizer

__all__ = [
    "Dense",
    "SentenceEncoder",
    "load_projections",
    "module_kinds",
    "pools_prompt",
    "read_projections",
    "read_sentence_encoder",
]


class Dense(NamedTuple):
    """A Dense layer and the LayerNorm behind it: what it is, and the folders of the weights."""

    spec: ProjectionSpec
    dense: Path
    norm: Path | None


@dataclass(frozen=True)
class SentenceEncoder:
    """What a sentence-transformers folder says: Transformer, Pooling, then Dense, LayerNorm and Normalize.

    Args:
        encoder: folder of the encoder.
        pooling: "cls", "mean" or "max".
        projections: the Dense layers.
        normalize: whether vectors have length 1, or are compared by cosine, which is the same.
        query_prompt, item_prompt: what stands in front of a text.
        max_tokens: the longest row, special tokens and prompt included.
    """

    encoder: Path
    pooling: str
    projections: list[Dense]
    normalize: bool
    query_prompt: str
    item_prompt: str
    max_tokens: int

    def longest_text(self, prompt: str) -> int:
        """How many tokens are left for a text in a row with its prompt and special tokens.

        Raises:
            ValueError: if none is.
        """
        tokenizer = ShortTextTokenizer(load_tokenizer(str(self.encoder), cls_and_sep=False))
        left = self.max_tokens - RowFormat.of(tokenizer.hf).added - prompt_length(tokenizer, prompt)
        if left < 1:
            raise ValueError(
                f"{self.encoder}: rows of {self.max_tokens} tokens leave no room behind the prompt {prompt!r}"
            )
        return left


def module_kinds(folder: Path) -> list[tuple[str, Path]]:
    """Class name and folder of each module in sentence-transformers' modules.json; empty if there is none."""
    modules = sorted(read_json(folder / "modules.json"), key=lambda module: module["idx"])
    return [(module["type"].rsplit(".", 1)[-1], folder / module["path"]) for module in modules]


def pools_prompt(folder: Path) -> bool | None:
    """Whether a bi-encoder's pooling reads the prompt's tokens; None if the folder holds no bi-encoder."""
    modules = module_kinds(folder)
    if [kind for kind, _ in modules[:2]] != ["Transformer", "Pooling"]:
        return None
    return bool(read_json(modules[1][1] / "config.json").get("include_prompt", True))


def read_projections(modules: list[tuple[str, Path]], activation: str = "tanh") -> list[Dense]:
    """The Dense layers among `modules`; `activation` is that of a layer which names none.

    Raises:
        ValueError: for an activation that is not known, or a LayerNorm without a Dense before it.
    """
    found: list[Dense] = []
    before = ""
    for kind, path in modules:
        if kind == "Dense":
            config = read_json(path / "config.json")
            name = config.get("activation_function", activation).rsplit(".", 1)[-1].lower()
            if name not in ACTIVATIONS:
                raise ValueError(
                    f"{path / 'config.json'}, field 'activation_function': {name!r} is not known"
                )
            spec: ProjectionSpec = {
                "size": int(config["out_features"]),
                "bias": bool(config.get("bias", True)),
                "activation": name,
                "residual": bool(config.get("use_residual", False)),
                "layer_norm": False,
            }
            found.append(Dense(spec, path, None))
        elif kind == "LayerNorm":
            if before != "Dense":
                raise ValueError(f"{path}: a LayerNorm is read only behind a Dense")
            found[-1] = found[-1]._replace(spec={**found[-1].spec, "layer_norm": True}, norm=path)
        before = kind
    return found


def load_projections(layers: nn.Sequential, read: list[Dense]) -> None:
    """Loads the weights of Dense layers into the projections built from their specs."""
    for layer, (_, dense, norm) in zip(layers, read, strict=True):
        state: dict[str, Tensor] = {}
        for folder in (dense, norm):
            if folder is not None:
                require_safetensors(folder)
                state |= load_file(folder / "model.safetensors")
        layer.load_state_dict({name: value.float() for name, value in state.items()}, strict=True)


def read_sentence_encoder(folder: Path) -> SentenceEncoder:
    """Reads a folder that sentence-transformers wrote.

    Raises:
        ValueError: for a module, pooling or similarity that a dual ranker cannot do, naming the file.
    """
    modules = module_kinds(folder)
    known = {"Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "Dropout"}
    strange = [kind for kind, _ in modules if kind not in known]
    if strange or [kind for kind, _ in modules[:2]] != ["Transformer", "Pooling"]:
        raise ValueError(
            f"{folder / 'modules.json'}: expected Transformer, Pooling, and then Dense, LayerNorm, Dropout "
            f"or Normalize; got {', '.join(kind for kind, _ in modules)}"
        )
    (_, encoder), (_, pooling_folder) = modules[:2]
    require_safetensors(encoder)
    if read_json(encoder / "sentence_bert_config.json").get("do_lower_case", False):
        raise ValueError(
            f"{encoder / 'sentence_bert_config.json'}, field 'do_lower_case': lower-case in the tokenizer"
        )
    settings = read_json(folder / "config_sentence_transformers.json")
    similarity = settings.get("similarity_fn_name") or "cosine"
    if similarity not in ("cosine", "dot"):
        raise ValueError(
            f"{folder / 'config_sentence_transformers.json'}, field 'similarity_fn_name': {similarity!r}; "
            "a dual ranker compares by cosine or dot"
        )
    prompts = settings.get("prompts") or {}
    default = prompts.get(settings.get("default_prompt_name"), "")
    of_item = next(
        (prompts[name] for name in ("document", "passage", "corpus") if prompts.get(name)), default
    )
    return SentenceEncoder(
        encoder=encoder,
        pooling=_pooling_mode(pooling_folder / "config.json"),
        projections=read_projections(modules),
        normalize=similarity == "cosine" or any(kind == "Normalize" for kind, _ in modules),
        query_prompt=prompts.get("query") or default,
        item_prompt=of_item,
        max_tokens=length_limit(encoder),
    )


def _pooling_mode(path: Path) -> str:
    config: dict[str, Any] = read_json(path)
    older = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean"}
    flags = [name.removeprefix("pooling_mode_") for name, on in config.items() if on]
    modes = config.get("pooling_mode") or [older[flag] for flag in flags if flag in older] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    unknown = [flag for flag in flags if flag not in older and f"pooling_mode_{flag}" in config]
    if len(modes) != 1 or modes[0] not in older.values() or unknown:
        raise ValueError(f"{path}: pooling {[*modes, *unknown]}; one of cls, mean and max is read")
    return modes[0]
