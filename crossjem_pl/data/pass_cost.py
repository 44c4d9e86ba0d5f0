"""Floating-point operations of an encoder's passes: what the joint pass saves against one pass a pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from transformers import AutoConfig, PretrainedConfig

from crossjem_pl.rankers.encoders import resolve
from crossjem_pl.text.ragged import Ints

__all__ = ["EncoderShape", "encoder_shape", "joint_lengths", "pair_lengths", "paper_cost"]

_GATED = {"modernbert", "eurobert"}
"""Encoders whose feed-forward part has a third matrix, the gate."""


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """The sizes that decide what a pass costs.

    Args:
        width: d, the size of a token's embedding.
        feed_forward: f, the inner size of the feed-forward part.
        layers: how many layers.
        gated: whether the feed-forward part has three matrices, not two.
    """

    width: int
    feed_forward: int
    layers: int
    gated: bool = False

    def flops(self, lengths: Ints) -> float:
        """Operations of all layers for sequences of these lengths, int64 [sequences], none padded.

        Per layer and sequence of T tokens: (8 d^2 + 4 d f) T + 4 d T^2, a multiplication and its addition
        counted as two. 8 d^2: the query, key, value and output matrices; 4 d f: the feed-forward part (6 d f
        with a gate); 4 d T^2: attention weights and their sums. With f = 4 d it is 24 d^2 T + 4 d T^2.
        Embeddings, normalisation, softmax and the scoring head are left out; they are small beside this.
        """
        per_token = 8 * self.width**2 + (6 if self.gated else 4) * self.width * self.feed_forward
        tokens = np.asarray(lengths, dtype=np.float64)
        return self.layers * float(per_token * tokens.sum() + 4 * self.width * (tokens**2).sum())


def encoder_shape(name: str) -> EncoderShape:
    """The shape in the configuration of a hub id, folder, or `packaged:all-MiniLM-L6-v2`; no weights are read.

    Raises:
        OSError: there is no such model.
        ValueError: the configuration is not that of a transformer encoder.
    """
    config: PretrainedConfig = AutoConfig.from_pretrained(resolve(name))
    width, layers = getattr(config, "hidden_size", None), getattr(config, "num_hidden_layers", None)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "hidden_dim", None)
    if not (width and layers and inner):
        raise ValueError(
            f"{name!r}: the configuration ({config.model_type}) does not tell hidden_size, num_hidden_layers and "
            "intermediate_size, so the cost of a pass is not known"
        )
    return EncoderShape(int(width), int(inner), int(layers), config.model_type in _GATED)


def pair_lengths(query: int, items: Ints) -> Ints:
    """int64 [items]: lengths of monoBERT's `[CLS] query [SEP] item [SEP]`."""
    return items + (query + 3)


def joint_lengths(query: int, unions: Ints) -> Ints:
    """int64 [passes]: lengths of CROSS-JEM's `[CLS] query [SEP] union`."""
    return unions + (query + 2)


def paper_cost(query: int, others: Ints) -> float:
    """The sum over sequences of (L_q + L)^2: a layer's cost in section 5.2 of the paper.

    With the item lengths it is the paper's cost of the standard cross-encoder, (L_q + L_k)^2 N, with the
    sizes of the unions of the passes that of the joint one, (L_q + L_k N / C)^2. The square is the attention
    alone; a layer's linear parts, which take most of a short sequence's time, grow with the length and not
    with its square (`EncoderShape.flops` has both).
    """
    return float(((np.asarray(others, dtype=np.float64) + query) ** 2).sum())
