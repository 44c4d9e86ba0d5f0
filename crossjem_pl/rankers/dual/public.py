"""Bi-encoders in the folders of sentence-transformers: what a dual ranker reads of them, and writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save_file
from torch import Tensor, nn

from crossjem_pl.lists import shown
from crossjem_pl.rankers.dual.towers import (
    ACTIVATIONS,
    DualRanker,
    Projection,
    ProjectionSpec,
    prompt_length,
)
from crossjem_pl.rankers.dual.vectors import RowFormat
from crossjem_pl.rankers.encoders import (
    built_from,
    inside,
    load_tokenizer,
    read_json,
    read_weights,
    require_safetensors,
)
from crossjem_pl.rankers.folder import length_limit
from crossjem_pl.text import ShortTextTokenizer

__all__ = [
    "Dense",
    "load_projections",
    "module_kinds",
    "pools_prompt",
    "read_projections",
    "read_sentence_encoder",
    "write_sentence_encoder",
]


class Dense(NamedTuple):
    """A Dense layer with any LayerNorm behind it: what it is, and the folders of the weights."""

    spec: ProjectionSpec
    folders: list[Path]


def module_kinds(folder: Path) -> list[tuple[str, Path]]:
    """Class name and folder of each module in sentence-transformers' modules.json; empty if there is none."""
    path = folder / "modules.json"
    with built_from(path):
        modules = sorted(read_json(path, list), key=lambda module: module["idx"])
        return [(one["type"].rsplit(".", 1)[-1], inside(folder, one["path"], path)) for one in modules]


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
    layers: list[Dense] = []
    before = ""
    for kind, path in modules:
        if kind == "Dense":
            config = read_json(path / "config.json")
            name = config.get("activation_function", activation).rsplit(".", 1)[-1].lower()
            if name not in ACTIVATIONS:
                raise ValueError(
                    f"{path / 'config.json'}, field 'activation_function': {shown(name)} is not known"
                )
            spec: ProjectionSpec = {
                "size": int(config["out_features"]),
                "bias": bool(config.get("bias", True)),
                "activation": name,
                "residual": bool(config.get("use_residual", False)),
            }
            layers.append(Dense(spec, [path]))
        elif kind == "LayerNorm":
            if before != "Dense":
                raise ValueError(f"{path}: a LayerNorm is read only behind a Dense")
            layers[-1].spec["layer_norm"] = True
            layers[-1].folders.append(path)
        before = kind
    return layers


def load_projections(layers: nn.Sequential, read: list[Dense]) -> None:
    """Loads the weights of Dense layers into the projections built from their specs."""
    for layer, dense in zip(layers, read, strict=True):
        state: dict[str, Tensor] = {}
        for folder in dense.folders:
            require_safetensors(folder)
            state |= read_weights(folder / "model.safetensors")
        layer.load_state_dict({name: value.float() for name, value in state.items()}, strict=True)


def read_sentence_encoder(
    folder: Path, default_prompts: tuple[str, str] = ("", "")
) -> tuple[dict[str, Any], list[Dense]]:
    """Reads a folder that sentence-transformers wrote: Transformer, Pooling, then Dense, LayerNorm and Normalize.

    Args:
        folder: the folder.
        default_prompts: what stands in front of a query and of an item where the folder has no prompt.

    Returns:
        The init arguments of `DPR`, and the layers for `load_projections`.

    Raises:
        ValueError: for a module, pooling or similarity that a dual ranker cannot do, or rows without room for a
            text, naming the file.
    """
    modules = module_kinds(folder)
    known = {"Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "Dropout"}
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or not known.issuperset(kinds):
        raise ValueError(
            f"{folder / 'modules.json'}: expected Transformer, Pooling, and then Dense, LayerNorm, Dropout "
            f"or Normalize; got {', '.join(kinds)}"
        )
    encoder = modules[0][1]
    require_safetensors(encoder)
    if read_json(encoder / "sentence_bert_config.json").get("do_lower_case", False):
        raise ValueError(
            f"{encoder / 'sentence_bert_config.json'}, field 'do_lower_case': lower-case in the tokenizer"
        )
    path = folder / "config_sentence_transformers.json"
    settings = read_json(path)
    similarity = settings.get("similarity_fn_name") or "cosine"
    if similarity not in ("cosine", "dot"):
        raise ValueError(
            f"{path}, field 'similarity_fn_name': {shown(similarity)}; a dual ranker compares by cosine or dot"
        )
    prompts = settings.get("prompts") or {}
    given = prompts.get(settings.get("default_prompt_name"), "")
    names = {"query": ("query",), "item": ("document", "passage", "corpus")}
    layers = read_projections(modules)
    arguments: dict[str, Any] = {
        "encoder": str(encoder),
        "pooling": _pooling_mode(modules[1][1] / "config.json"),
        "normalize": similarity == "cosine" or "Normalize" in kinds,
        "projections": [layer.spec for layer in layers],
    }
    tokenizer = ShortTextTokenizer(load_tokenizer(str(encoder), cls_and_sep=False))
    longest, added = length_limit(encoder), RowFormat.of(tokenizer.hf).added
    for (side, keys), default in zip(names.items(), default_prompts, strict=True):
        prompt = next((prompts[key] for key in keys if prompts.get(key)), given) or default
        room = longest - added - prompt_length(tokenizer, prompt)
        if room < 1:
            raise ValueError(
                f"{encoder}: rows of {longest} tokens leave no room behind the prompt {shown(prompt)}"
            )
        arguments |= {f"{side}_prompt": prompt, f"max_{side}_tokens": room}
    return arguments, layers


def write_sentence_encoder(folder: Path, ranker: DualRanker, tower_name: str) -> str:
    """Writes what sentence-transformers reads besides the weights: `modules.json` and the modules' folders.

    Its similarities are then the ranker's scores without their scale (and TwinBERT's bias), for texts within the
    limits.

    Args:
        folder: the model folder.
        ranker: with one tower for queries and items.
        tower_name: the attribute that holds the tower.

    Returns:
        What the weights' names begin with, which sentence-transformers wants to be gone; "" with nothing written if
        the pooling is not one of its own.
    """
    from crossjem_pl.files import replacing_path, write_json  # what only ranks writes nothing

    tower = ranker.tower("items")
    if tower.pooling == "weighted":
        return ""
    width = int(tower.encoder.config.hidden_size)
    flags = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
    pooling = {f"pooling_mode_{flag}": mode == tower.pooling for mode, flag in flags.items()}
    modules: list[tuple[str, dict[str, Any], dict[str, Tensor]]] = [
        ("Pooling", {"word_embedding_dimension": width, **pooling}, {})
    ]
    for layer in tower.projections:
        assert isinstance(layer, Projection)
        state = {name: value.detach().contiguous() for name, value in layer.state_dict().items()}
        norm = {name: state.pop(name) for name in list(state) if name.startswith("norm.")}
        activation = type(layer.activation)
        dense: dict[str, Any] = {
            "in_features": layer.linear.in_features,
            "out_features": layer.size,
            "bias": layer.linear.bias is not None,
            "activation_function": f"{activation.__module__}.{activation.__name__}",
        }
        if layer.residual is not None:
            dense["use_residual"] = True
        modules.append(("Dense", dense, state))
        if norm:
            modules.append(("LayerNorm", {"dimension": layer.size}, norm))
    if tower.normalize:
        modules.append(("Normalize", {}, {}))
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, (kind, config, state) in enumerate(modules, 1):
        path, kind_path = f"{i}_{kind}", f"sentence_transformers.models.{kind}"
        listed.append({"idx": i, "name": str(i), "path": path, "type": kind_path})
        (folder / path).mkdir(exist_ok=True)
        if config:
            write_json(folder / path / "config.json", config)
        if state:
            with replacing_path(folder / path / "model.safetensors") as file:
                save_file(state, file, metadata={"format": "pt"})
    longest = max(
        row_format.added + ranker.prompt_tokens(side) + ranker.text_limit(side)
        for side, row_format in ranker.formats.items()
    )
    write_json(folder / "modules.json", listed)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
    prompts = {"query": ranker.prompts["query"], "document": ranker.prompts["items"]}
    similarity = "cosine" if tower.normalize else "dot"
    write_json(
        folder / "config_sentence_transformers.json", {"prompts": prompts, "similarity_fn_name": similarity}
    )
    return f"{tower_name}.encoder."


def _pooling_mode(path: Path) -> str:
    """One of cls, mean and max, from either form of a Pooling's config.json."""
    config: dict[str, Any] = read_json(path)
    older = {"cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean"}
    flags = [name.removeprefix("pooling_mode_") for name, on in config.items() if on]
    modes = config.get("pooling_mode") or [older[flag] for flag in flags if flag in older] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    unknown = [flag for flag in flags if flag not in older and f"pooling_mode_{flag}" in config]
    if len(modes) != 1 or modes[0] not in older.values() or unknown:
        raise ValueError(f"{path}: pooling {[*modes, *unknown]}; one of cls, mean and max is read")
    return modes[0]
