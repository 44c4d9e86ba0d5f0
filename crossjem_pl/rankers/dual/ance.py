"""ANCE: a shared tower with a linear layer and LayerNorm, trained on negatives mined during training."""

from __future__ import annotations

from typing import Unpack

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.dual.towers import DualRanker, Pooling, ProjectionSpec, TextTower
from crossjem_pl.rankers.encoders import EncoderOptions
from crossjem_pl.rankers.neural import Side

__all__ = ["ANCE"]


@register
class ANCE(DualRanker):
    """ANCE (Xiong et al., arXiv 2007.00808): score = scale * <v(q), v(d)>, v = LayerNorm(W h_[CLS] + b).

    One tower reads both sides, rows are `[CLS] text [SEP]`. What sets it apart is how it is trained: on
    negatives that the model itself ranks high, searched anew every few hundred steps (`MineHardNegatives`;
    `experiments/rankers/ance.yaml` sets both up).

    Relations: DPR with `shared` and one projection with `layer_norm`. The LayerNorm gives all vectors about
    the length sqrt(dimension), so the default scale 1 / sqrt(dimension) makes scores sqrt(dimension) times a
    near-cosine.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        dimension: width of the vectors; None for the encoder's (the paper: 768, as RoBERTa-base's).
        pooling: "cls" (the paper), "mean", "max" or "weighted".
        scale: factor of the inner products; None for 1 / sqrt(dimension). The paper has 1.
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        texts_per_pass: texts that go through the encoder together, sorted by length.
        options: how the encoder is loaded, see `EncoderOptions`.
    """

    name = "ance"

    def __init__(
        self,
        encoder: str,
        dimension: int | None = None,
        pooling: Pooling = "cls",
        scale: float | None = None,
        max_query_tokens: int = 64,
        max_item_tokens: int = 32,
        texts_per_pass: int = 128,
        **options: Unpack[EncoderOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        super().__init__(init_args, encoder, max_query_tokens, max_item_tokens, texts_per_pass)
        head: ProjectionSpec = (
            {"layer_norm": True} if dimension is None else {"size": dimension, "layer_norm": True}
        )
        self.text_tower = TextTower(encoder, options, pooling, [head])
        self.build(scale)

    def tower(self, side: Side) -> TextTower:
        return self.text_tower
