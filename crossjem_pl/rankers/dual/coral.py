"""CoRAL: unequal encoders for queries and items that meet in one space."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self, Unpack

import torch
from torch import nn

from crossjem_pl.files import write_json
from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.dual.towers import DualRanker, Pooling, ProjectionSpec, TextOptions, TextTower
from crossjem_pl.rankers.dual.vectors import RowFormat
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.rankers.neural import Side
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["CoRALRanker"]

_QUERY_FOLDER = "query_encoder"


@register
class CoRALRanker(DualRanker):
    """CoRAL's decoupled representations (Gienapp, Deckers and Potthast, 2023).

    "Contrastive Ranking-Aware Learning. CoRAL - Decoupled Representations for Retrieval", slides, April 2023.
    score = 1 / temperature * <P_q e_q(q), P_d e_d(d)>, the vectors normalised. Items are long-lived and
    encoded ahead: their encoder may be large. Queries are encoded while the user waits: theirs may be small,
    of another family, or frozen and without a projection, when the items learn to meet it. The projections P
    make the widths equal; they start as the identity where they keep the width, and equal otherwise, so that
    encoders of one family meet before training.

    Its loss is `losses.CoRAL` on the teacher's scores, each list a batch of its own: see
    `experiments/rankers/coral.yaml`.

    Args:
        encoder: the items' encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        query_encoder: the queries'; None for the items' (as a tower of its own).
        query_layers: keep only the first layers of the query encoder; None for as many as `layers` says.
        freeze_query: leave the query encoder as it is, dropout off (its projection is trained).
        query_projection: whether queries are projected; without, items are projected to the query encoder's
            width.
        dimension: width of the vectors; None for the query encoder's.
        pooling: "mean", "cls", "max" or "weighted".
        normalize: whether vectors have length 1.
        temperature: divides the inner products; leave the loss's temperature at 1.
        options: see `TextOptions`.

    Raises:
        ValueError: if `dimension` is not the query encoder's width and there is no query projection, or the
            temperature is not positive.
    """

    name = "coral"

    def __init__(
        self,
        encoder: str,
        query_encoder: str | None = None,
        query_layers: int | None = None,
        freeze_query: bool = False,
        query_projection: bool = True,
        dimension: int | None = None,
        pooling: Pooling = "mean",
        normalize: bool = True,
        temperature: float = 0.05,
        **options: Unpack[TextOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        super().__init__(init_args, encoder, options)
        query_options = TextOptions(**options)
        if query_layers is not None:
            query_options["layers"] = query_layers
        if query_encoder is not None:
            words = load_tokenizer(
                query_encoder, self.cls_and_sep, trained=bool(init_args.get("random_init"))
            )
            self.tokenizers["query"] = ShortTextTokenizer(words)
            self.formats["query"] = RowFormat.of(self.tokenizers["query"].hf)
        head: ProjectionSpec = {"size": dimension, "bias": False}
        self.query_tower = TextTower(
            query_encoder or encoder, query_options, pooling, [head] if query_projection else [], normalize
        )
        if dimension not in (None, self.query_tower.size):
            raise ValueError(
                f"dimension={dimension}, but without query_projection it is the query encoder's width, "
                f"{self.query_tower.size}"
            )
        self.freeze_query = freeze_query
        if freeze_query:
            self.query_tower.encoder.requires_grad_(False)
        self.item_tower = TextTower(
            encoder, options, pooling, [{"size": self.query_tower.size, "bias": False}], normalize
        )
        # related encoders meet before training: identity where a projection keeps the width, else equal
        weights = [p for tower in (self.query_tower, self.item_tower) for p in tower.projections.parameters()]
        with torch.no_grad():
            for weight in weights:
                if weight.shape[0] == weight.shape[1]:
                    nn.init.eye_(weight)
                elif weight.shape == weights[0].shape:
                    weight.copy_(weights[0])
        self.build(1.0 / temperature)

    def tower(self, side: Side) -> TextTower:
        return self.query_tower if side == "query" else self.item_tower

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.freeze_query:
            self.query_tower.encoder.eval()
        return self

    def save_assets(self, folder: str) -> dict[str, Any]:
        below = Path(folder) / _QUERY_FOLDER
        self.tokenizers["query"].hf.save_pretrained(below)
        write_json(below / "config.json", self.query_tower.encoder.config.to_dict())
        return super().save_assets(folder)

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        below = str(Path(folder) / _QUERY_FOLDER)
        return super().from_folder(folder, {**init_args, "query_encoder": below, "query_layers": None})
