"""TwinBERT: twin towers with shared weights and a crossing layer, made for sponsored search."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Unpack, get_args

import torch
from torch import Tensor, nn

from crossjem_pl.rankers.base import check_choice, init_arguments, register
from crossjem_pl.rankers.dual.public import write_sentence_encoder
from crossjem_pl.rankers.dual.towers import DualRanker, Pooling, ProjectionSpec, TextOptions, TextTower
from crossjem_pl.rankers.dual.vectors import Vectors

__all__ = ["Crossing", "ResidualCrossing", "TwinBERT"]

Crossing = Literal["cosine", "residual"]


class ResidualCrossing(nn.Module):
    """TwinBERT's residual network over x = max(u, v), element by element.

    score = <w, relu(x + W2 relu(W1 x + b1) + b2)> + b. It depends on the pair, so vectors can be computed
    beforehand but not searched.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = nn.Linear(size, size)
        self.outer = nn.Linear(size, size)
        self.classifier = nn.Linear(size, 1)

    def forward(self, queries: Tensor, items: Tensor) -> Tensor:
        """Scores [lists, max_items] from [lists, size] and [lists, max_items, size]."""
        x = torch.maximum(queries[:, None, :], items)
        x = torch.relu(x + self.outer(torch.relu(self.inner(x))))
        return self.classifier(x)[:, :, 0]


@register
class TwinBERT(DualRanker):
    """TwinBERT (Lu, Jiao and Zhang, arXiv 2002.06275): one encoder for both sides and a crossing layer.

    Crossing "cosine": score = w cos(u, v) + b with w and b learned, the logit of the paper's logistic
    regression. Crossing "residual": see `ResidualCrossing`. u and v are the pooled vectors of `[CLS] text
    [SEP]`.

    Word pieces take the place of the paper's hashed letter triples. The paper distils it from a cross-encoder on
    pairs, here any loss will do.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        pooling: "weighted" (the paper's weighted average) or "cls", its two; also "mean" and "max".
        crossing: "cosine" or "residual".
        dimension: width of a linear layer above pooling; None for none.
        scale: where w starts ("cosine"); b starts at -scale / 2, a probability of 1/2 at a cosine of 1/2.
        options: see `TextOptions`.

    Raises:
        ValueError: on an unknown crossing or a scale that is not positive.
    """

    name = "twinbert"

    def __init__(
        self,
        encoder: str,
        pooling: Pooling = "weighted",
        crossing: Crossing = "cosine",
        dimension: int | None = None,
        scale: float = 10.0,
        **options: Unpack[TextOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        check_choice("crossing", crossing, get_args(Crossing))
        super().__init__(init_args, encoder, options)
        specs: list[ProjectionSpec] = [] if dimension is None else [{"size": dimension}]
        self.inner_product = crossing == "cosine"
        self.text_tower = TextTower(encoder, options, pooling, specs, normalize=self.inner_product)
        self.build(scale)
        self.residual: ResidualCrossing | None = None
        if self.inner_product:
            self.scale = nn.Parameter(torch.tensor(float(scale)))
            self.bias = nn.Parameter(torch.tensor(-scale / 2.0))
        else:
            self.residual = ResidualCrossing(self.text_tower.size)

    def save_public(self, folder: Path) -> str:
        """With the cosine as crossing the folder is one of sentence-transformers, too: w and b rank nothing anew."""
        return write_sentence_encoder(folder, self, "text_tower") if self.inner_product else ""

    def compare(self, queries: Vectors, items: Vectors) -> Tensor:
        if self.residual is not None:
            return self.residual(queries.values[:, 0], items.values[:, :, 0])
        return super().compare(queries, items) + self.bias
