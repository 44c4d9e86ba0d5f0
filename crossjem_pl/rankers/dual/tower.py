"""One tower of a dual encoder: encoder, pooling, projections, normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

from crossjem_pl.rankers.dual.projection import ProjectionSpec, projections
from crossjem_pl.rankers.dual.text_rows import TokenGroup
from crossjem_pl.rankers.encoders import EncoderOptions, encode_tokens, load_encoder, resolve

__all__ = ["Pooling", "TextTower", "load_text_encoder"]

Pooling = Literal["cls", "mean", "max", "weighted"]


def load_text_encoder(name: str, options: EncoderOptions) -> nn.Module:
    """An encoder without pooler. Of an encoder-decoder model (T5) only the encoder is built."""
    decoder_too = AutoConfig.from_pretrained(resolve(name)).model_type in ("t5", "mt5", "umt5")
    encoder = load_encoder(name, options, AutoModelForTextEncoding if decoder_too else AutoModel)
    if getattr(encoder, "pooler", None) is not None:
        encoder.register_module("pooler", None)  # pooling is the tower's business; it would be dead weight
    return encoder


class TextTower(nn.Module):
    """Token rows to one vector each: v = normalise(projections(pool(encoder(row)))), the last two optional.

    Pooling over the row's used positions: "cls" takes the first position, "mean" and "max" are themselves,
    "weighted" is sum_t a_t h_t with a = softmax over t of <w, h_t>, w learned from 0 (where it is the mean).

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        options: how the encoder is loaded, see `EncoderOptions`.
        pooling: see above.
        specs: the projections, see `ProjectionSpec`.
        normalize: whether the vectors have length 1.
    """

    def __init__(
        self,
        encoder: str,
        options: EncoderOptions,
        pooling: Pooling,
        specs: Sequence[ProjectionSpec] = (),
        normalize: bool = False,
    ) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}; got {pooling!r}")
        self.encoder = load_text_encoder(encoder, options)
        width = int(self.encoder.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.pooling, self.normalize = pooling, normalize
        self.token_weight = nn.Parameter(torch.zeros(width)) if pooling == "weighted" else None
        self.projections = projections(width, specs)
        self.size = int(self.projections[-1].size) if specs else width  # type: ignore[arg-type]

    def forward(self, group: TokenGroup) -> Tensor:
        """Vectors, float32 [rows, size]."""
        hidden = encode_tokens(self.encoder, group.input_ids, group.attention_mask)
        with torch.autocast(hidden.device.type, enabled=False):
            vectors = self.projections(self._pool(hidden.float(), group.used[:, :, None]))
            return F.normalize(vectors, dim=-1) if self.normalize else vectors

    def _pool(self, hidden: Tensor, used: Tensor) -> Tensor:
        if self.pooling == "cls":
            return hidden[:, 0]
        if self.pooling == "max":
            return hidden.masked_fill(~used, -torch.inf).amax(dim=1)
        if self.token_weight is None:
            return (hidden * used).sum(dim=1) / used.sum(dim=1)
        weight = (hidden @ self.token_weight)[:, :, None].masked_fill(~used, -torch.inf).softmax(dim=1)
        return (hidden * weight).sum(dim=1)
