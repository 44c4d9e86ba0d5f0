"""ColBERT: late interaction, every query token against every item token."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from crossjem_pl.lists import shown
from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.dual.public import Dense, load_projections, module_kinds, read_projections
from crossjem_pl.rankers.dual.towers import DecoupledRanker, ProjectionSpec, TextOptions, build_projections
from crossjem_pl.rankers.dual.vectors import TextRows, Vectors
from crossjem_pl.rankers.encoders import (
    architectures,
    encode_tokens,
    load_encoder,
    read_json,
    read_weights,
    require_safetensors,
)
from crossjem_pl.rankers.folder import PublicFolders
from crossjem_pl.rankers.neural import Side

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["ColBERT", "max_sim"]

_STANFORD, _PYLATE = "HF_ColBERT", "config_sentence_transformers.json"


@register
class ColBERT(DecoupledRanker, PublicFolders):
    """ColBERT (Khattab and Zaharia, arXiv 2004.12832): score = scale * sum_i max_j <q_i, d_j>.

    q_i and d_j are the encoder's token states, projected and normalised, of `[CLS] [Q] query [SEP] [MASK]
    ...` and `[CLS] [D] item [SEP]`. Queries are filled with [MASK] up to `query_length` ("query
    augmentation"), the encoder does not attend to what was filled in, and its states count like the others.
    Punctuation of an item does not count. Item vectors, one per token, can be computed beforehand
    (`precompute_items`): M tokens take 4 * M * dimension bytes.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        dimension: width of the token vectors.
        query_length: rows of queries are filled up to it; 0 for no augmentation. Longer queries get no
            filling.
        query_marker, item_marker: token behind a query's and an item's [CLS], e.g. "[unused0]"; None for none.
        skip_words: tokens of items that do not count; None for punctuation.
        attend_to_masks: whether the encoder attends to the filled-in [MASK]s.
        scale: factor of the score. Scores are at most scale * (tokens of the query's row).
        projections: replaces the one linear layer (no bias) that `dimension` stands for.
        options: see `TextOptions`.

    Raises:
        ValueError: for a marker that is no token of the vocabulary, augmentation with a tokenizer that has no
            [MASK], limits beyond the encoder's positions, a scale that is not positive.
    """

    name = "colbert"

    def __init__(
        self,
        encoder: str,
        dimension: int = 128,
        query_length: int = 32,
        query_marker: str | None = None,
        item_marker: str | None = None,
        skip_words: Sequence[str] | None = None,
        attend_to_masks: bool = False,
        scale: float = 1.0,
        projections: Sequence[ProjectionSpec] | None = None,
        **options: Unpack[TextOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        super().__init__(init_args, encoder, options)
        if not 0 < scale < float("inf") or query_length < 0:
            raise ValueError(
                f"scale must be positive and query_length at least 0; got {scale=}, {query_length=}"
            )
        tokenizer = self.tokenizer.hf
        mask = tokenizer.mask_token_id
        if query_length and mask is None:
            raise ValueError(
                f"the tokenizer of {encoder!r} has no [MASK] to fill queries with; set query_length=0"
            )
        plain = self.formats["query"]
        self.formats["query"] = replace(
            plain,
            prefix=plain.prefix + _marker(tokenizer, query_marker),
            fill_token=mask or 0,
            fill_length=query_length,
            attend_to_fill=attend_to_masks,
        )
        vocabulary = tokenizer.get_vocab()
        words = string.punctuation if skip_words is None else skip_words
        self.formats["items"] = replace(
            plain,
            prefix=plain.prefix + _marker(tokenizer, item_marker),
            skip_tokens=tuple(vocabulary[word] for word in words if word in vocabulary),
        )
        self.encoder = load_encoder(encoder, options)
        specs = [ProjectionSpec(size=dimension, bias=False)] if projections is None else projections
        self.projections = build_projections(int(self.encoder_config.hidden_size), specs)
        self.scale = scale
        self.check_positions(dict.fromkeys(self.prompts, self.encoder_config))

    def encode_rows(self, rows: TextRows, side: Side) -> Vectors:
        parts = []
        for group in rows.groups:
            hidden = encode_tokens(self.encoder, group["input_ids"], group["attention_mask"])
            with torch.autocast(hidden.device.type, enabled=False):
                vectors = F.normalize(self.projections(hidden.float()), dim=-1)
            parts.append(Vectors(vectors, group["used"]))
        return Vectors.cat(parts)

    def compare(self, queries: Vectors, items: Vectors) -> Tensor:
        return self.scale * max_sim(*queries, *items)

    @classmethod
    def adopts(cls, folder: Path, config: dict[str, Any]) -> bool:
        written = read_json(folder / _PYLATE).get("model_type")
        pylate = written == "ColBERT" and [kind for kind, _ in module_kinds(folder)][:1] == ["Transformer"]
        return _STANFORD in architectures(config) or pylate

    @classmethod
    def from_public(cls, folder: Path) -> Self:
        """The ranker of a folder that PyLate or Stanford's ColBERT wrote; scores equal theirs.

        PyLate: modules.json of a Transformer and Dense layers, config_sentence_transformers.json. Stanford:
        the weight `linear.weight` next to the encoder's, artifact.metadata.

        Raises:
            ValueError: for a setting that is not read or weights that are not safetensors; names the file.
        """
        stanford = _STANFORD in architectures(read_json(folder / "config.json"))
        encoder, layers = (folder, []) if stanford else _pylate_modules(folder)
        require_safetensors(encoder)
        linear: Tensor | None = None
        if stanford:
            config = _in_words_of_pylate(read_json(folder / "artifact.metadata"))
            linear = read_weights(folder / "model.safetensors")["linear.weight"].float()
        else:
            config = read_json(folder / _PYLATE)
        query_length = int(config.get("query_length") or 32)
        markers = [config.get("query_prefix"), config.get("document_prefix")]
        specials = [2 + bool(marker) for marker in markers]
        ranker = cls(
            str(encoder),
            query_length=query_length if config.get("do_query_expansion", True) else 0,
            query_marker=markers[0] or None,
            item_marker=markers[1] or None,
            skip_words=config.get("skiplist_words"),
            attend_to_masks=bool(config.get("attend_to_expansion_tokens", False)),
            projections=None if stanford else [layer.spec for layer in layers],
            dimension=128 if linear is None else len(linear),
            max_query_tokens=query_length - specials[0],
            max_item_tokens=int(config.get("document_length") or 180) - specials[1],
        )
        if linear is None:
            load_projections(ranker.projections, layers)
        else:
            ranker.projections[0].load_state_dict({"linear.weight": linear})
        return ranker


def max_sim(queries: Tensor, query_mask: Tensor, items: Tensor, item_mask: Tensor) -> Tensor:
    """Scores [lists, items]: the sum over a query's vectors of the best inner product with a vector of the item.

    `queries` [lists, query tokens, width] and `items` [lists, items, item tokens, width] are floating point, the
    masks bool without the last axis; each item has a token.
    """
    lists, count, tokens, _ = items.shape
    similarity = torch.bmm(items.flatten(1, 2), queries.transpose(1, 2)).view(lists, count, tokens, -1)
    best = similarity.masked_fill(~item_mask[:, :, :, None], -torch.inf).amax(dim=2)
    return (best * query_mask[:, None, :]).sum(dim=-1)


def _marker(tokenizer: PreTrainedTokenizerBase, marker: str | None) -> tuple[int, ...]:
    """The id of a marker that is one token, with or without its trailing blank (PyLate's is "[Q] ")."""
    if marker is None:
        return ()
    vocabulary = tokenizer.get_vocab()
    for token in (marker, marker.strip()):
        if token in vocabulary:
            return (vocabulary[token],)
    raise ValueError(f"the marker {shown(marker)} is no token of the vocabulary")


def _pylate_modules(folder: Path) -> tuple[Path, list[Dense]]:
    """The encoder's folder and the Dense layers of a folder that PyLate wrote."""
    modules, config = module_kinds(folder), folder / _PYLATE
    strange = [kind for kind, _ in modules[1:] if kind != "Dense"]
    if strange:
        raise ValueError(
            f"{folder / 'modules.json'}: expected a Transformer and Dense layers; got {strange[0]} too"
        )
    if any((read_json(config).get("prompts") or {}).values()):
        raise ValueError(
            f"{config}, field 'prompts': only the one-token query_prefix and document_prefix are read"
        )
    # PyLate's Dense has no activation unless it says so
    return modules[0][1], read_projections(modules, activation="identity")


def _in_words_of_pylate(metadata: dict[str, Any]) -> dict[str, Any]:
    """Stanford's settings under PyLate's names."""
    return {
        "query_length": metadata.get("query_maxlen"),
        "document_length": metadata.get("doc_maxlen"),
        "query_prefix": metadata.get("query_token_id") or "[unused0]",
        "document_prefix": metadata.get("doc_token_id") or "[unused1]",
        "skiplist_words": None if metadata.get("mask_punctuation", True) else [],
        "attend_to_expansion_tokens": metadata.get("attend_to_mask_tokens", False),
    }
