"""Model folders of sentence-transformers: which modules they hold, and what a dual ranker reads of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from crossjem_pl.rankers.dual.projection import ACTIVATIONS, Projection, ProjectionSpec
from crossjem_pl.rankers.folder import length_limit, read_json, require_safetensors

__all__ = [
    "SentenceEncoder",
    "load_projections",
    "module_kinds",
    "read_projections",
    "read_sentence_encoder",
]


@dataclass(frozen=True)
class SentenceEncoder:
    """What a sentence-transformers folder says: Transformer, Pooling, then Dense, LayerNorm and Normalize.

    Args:
        encoder: folder of the encoder.
        pooling: "cls", "mean" or "max".
        include_prompt: whether pooling reads the prompt's tokens.
        projections: the Dense layers.
        weights: the folders of their weights; a LayerNorm's is that of the Dense before it and its own.
        normalize: whether vectors have length 1, or are compared by cosine, which is the same.
        query_prompt, item_prompt: what stands in front of a text.
        max_tokens: the longest row, special tokens and prompt included.
    """

    encoder: Path
    pooling: str
    include_prompt: bool
    projections: list[ProjectionSpec] = field(default_factory=list)
    weights: list[tuple[Path, Path | None]] = field(default_factory=list)
    normalize: bool = False
    query_prompt: str = ""
    item_prompt: str = ""
    max_tokens: int = 512


def module_kinds(folder: Path) -> list[tuple[str, Path]]:
    """Class name and folder of each module in sentence-transformers' modules.json; empty if there is none."""
    modules = sorted(read_json(folder / "modules.json"), key=lambda module: module["idx"])
    return [(module["type"].rsplit(".", 1)[-1], folder / module["path"]) for module in modules]


def read_projections(
    modules: list[tuple[str, Path]],
) -> tuple[list[ProjectionSpec], list[tuple[Path, Path | None]]]:
    """The Dense layers among `modules`, each with the LayerNorm behind it, and the folders of their weights.

    Raises:
        ValueError: for an activation that is not known, or a LayerNorm without a Dense before it.
    """
    specs: list[ProjectionSpec] = []
    weights: list[tuple[Path, Path | None]] = []
    before = ""
    for kind, path in modules:
        if kind == "Dense":
            config = read_json(path / "config.json")
            name = (
                config.get("activation_function", "torch.nn.modules.activation.Tanh")
                .rsplit(".", 1)[-1]
                .lower()
            )
            if name not in ACTIVATIONS:
                raise ValueError(
                    f"{path / 'config.json'}, field 'activation_function': {name!r} is not known"
                )
            specs.append(
                {
                    "size": int(config["out_features"]),
                    "bias": bool(config.get("bias", True)),
                    "activation": name,
                    "residual": bool(config.get("use_residual", False)),
                    "layer_norm": False,
                }
            )
            weights.append((path, None))
        elif kind == "LayerNorm":
            if before != "Dense":
                raise ValueError(f"{path}: a LayerNorm is read only behind a Dense")
            specs[-1]["layer_norm"] = True
            weights[-1] = (weights[-1][0], path)
        before = kind
    return specs, weights


def load_projections(layers: torch.nn.Sequential, weights: list[tuple[Path, Path | None]]) -> None:
    """Loads what `read_projections` found into the projections built from its specs."""
    for layer, (dense, norm) in zip(layers, weights, strict=True):
        assert isinstance(layer, Projection)
        require_safetensors(dense)
        state = load_file(dense / "model.safetensors")
        if norm is not None:
            require_safetensors(norm)
            state |= load_file(norm / "model.safetensors")
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
    pooling = read_json(pooling_folder / "config.json")
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
    specs, weights = read_projections(modules)
    return SentenceEncoder(
        encoder=encoder,
        pooling=_pooling_mode(pooling, pooling_folder / "config.json"),
        include_prompt=pooling.get("include_prompt", True),
        projections=specs,
        weights=weights,
        normalize=similarity == "cosine" or any(kind == "Normalize" for kind, _ in modules),
        query_prompt=prompts.get("query") or default,
        item_prompt=of_item,
        max_tokens=length_limit(encoder),
    )


def _pooling_mode(config: dict[str, Any], path: Path) -> str:
    older = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean"}
    modes = config.get("pooling_mode")
    if modes is None:
        flags = [
            name.removeprefix("pooling_mode_")
            for name, on in config.items()
            if name.startswith("pooling_mode_") and on
        ]
        modes = [older.get(name, name) for name in flags] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in older.values():
        raise ValueError(f"{path}: pooling {modes}; one of cls, mean and max is read")
    return modes[0]
