"""ANCE: a shared tower with a linear layer and LayerNorm, trained on negatives mined during training."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.dual.public import write_sentence_encoder
from crossjem_pl.rankers.dual.towers import DualRanker, Pooling, ProjectionSpec, TextOptions, TextTower

__all__ = ["ANCE"]


@register
class ANCE(DualRanker):
    """ANCE (Xiong et al., arXiv 2007.00808): score = scale * <v(q), v(d)>, v = LayerNorm(W h_[CLS] + b).

    One tower reads both sides, rows are `[CLS] text [SEP]`. What sets it apart is how it is trained: on
    negatives that the model itself ranks high, searched anew every few hundred steps (`MineHardNegatives`;
    `experiments/rankers/ance.yaml` sets both up).

    The LayerNorm gives all vectors about
    the length sqrt(dimension), so the default scale 1 / sqrt(dimension) makes scores sqrt(dimension) times a
    near-cosine.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        dimension: width of the vectors; None for the encoder's (the paper: 768, as RoBERTa-base's).
        pooling: "cls" (the paper), "mean", "max" or "weighted".
        scale: factor of the inner products; None for 1 / sqrt(dimension). The paper has 1.
        options: see `TextOptions`.
    """

    name = "ance"

    def __init__(
        self,
        encoder: str,
        dimension: int | None = None,
        pooling: Pooling = "cls",
        scale: float | None = None,
        **options: Unpack[TextOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        super().__init__(init_args, encoder, options)
        head: ProjectionSpec = {"size": dimension, "layer_norm": True}
        self.text_tower = TextTower(encoder, options, pooling, [head])
        self.build(scale)

    def save_public(self, folder: Path) -> str:
        """The folder is one of sentence-transformers, too."""
        return write_sentence_encoder(folder, self, "text_tower")
