"""DPR: two towers, [CLS] vectors, inner product; and any sentence-transformers bi-encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.dual.public import (
    load_projections,
    pools_prompt,
    read_sentence_encoder,
    write_sentence_encoder,
)
from crossjem_pl.rankers.dual.towers import DualRanker, Pooling, ProjectionSpec, TextOptions, TextTower
from crossjem_pl.rankers.folder import PublicFolders
from crossjem_pl.rankers.neural import Side

__all__ = ["DPR"]


@register
class DPR(DualRanker, PublicFolders):
    """Dense passage retrieval (Karpukhin et al., arXiv 2004.04906): score = scale * <e_q(q), e_d(d)>.

    Two encoders that start equal and are trained apart, compared by inner product; or one (`shared`). With
    mean pooling and `normalize` it is the usual bi-encoder of sentence-transformers, whose folders it reads.
    Each text is encoded on its own, `[CLS] text [SEP]`, once per batch: scores are O(lists + items) passes
    over short rows, and item vectors can be computed beforehand (`precompute_items`).

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        pooling: "cls" (the paper), "mean", "max", or "weighted" by a learned vector.
        shared: one tower for queries and items.
        normalize: compare by cosine.
        scale: factor of the inner products; None for 1 / sqrt(width), or 20 with `normalize`. The paper has
            1, where the products of unnormalised vectors are so large that a softmax starts saturated.
        projections: layers between pooling and comparison, one set per tower.
        query_prompt, item_prompt: text in front of every query ("query: " for E5) and item ("passage: ").
        options: see `TextOptions`.
    """

    name = "dpr"

    def __init__(
        self,
        encoder: str,
        pooling: Pooling = "cls",
        shared: bool = False,
        normalize: bool = False,
        scale: float | None = None,
        projections: Sequence[ProjectionSpec] = (),
        query_prompt: str = "",
        item_prompt: str = "",
        **options: Unpack[TextOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        super().__init__(init_args, encoder, options, query_prompt, item_prompt)
        self.item_tower = TextTower(encoder, options, pooling, projections, normalize)
        self.query_tower = None if shared else TextTower(encoder, options, pooling, projections, normalize)
        if self.query_tower is not None:  # the towers start equal, new layers included
            self.query_tower.load_state_dict(self.item_tower.state_dict())
        self.build(20.0 if scale is None and normalize else scale)

    def tower(self, side: Side) -> TextTower:
        return self.item_tower if side == "items" or self.query_tower is None else self.query_tower

    def save_public(self, folder: Path) -> str:
        """With a shared tower the folder is one of sentence-transformers, too."""
        shared = self.query_tower is None
        return write_sentence_encoder(folder, self, "item_tower") if shared else ""

    @classmethod
    def adopts(cls, folder: Path, config: dict[str, Any]) -> bool:
        return pools_prompt(folder) is True

    @classmethod
    def from_public(cls, folder: Path) -> Self:
        """A shared tower with the weights of a folder that sentence-transformers wrote, scale 1.

        Transformer, Pooling (cls, mean or max), Dense and LayerNorm layers, Normalize, the prompts named
        "query" and "document" and the similarity (cosine or dot) are read; scores equal `model.similarity`.

        Raises:
            ValueError: for a module that is none of these, weights that are not safetensors, a pooling or
                similarity that is not read; names the file.
        """
        arguments, layers = read_sentence_encoder(folder)
        ranker = cls(**arguments, shared=True, scale=1.0)
        load_projections(ranker.item_tower.projections, layers)
        return ranker
