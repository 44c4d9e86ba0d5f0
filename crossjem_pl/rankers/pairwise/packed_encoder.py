"""A Hugging Face encoder that runs on sequences lying end to end, with an attention of the ranker's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from crossjem_pl.rankers.encoders import EncoderOptions, first_position, has_segments, load_encoder

__all__ = ["PackedEncoder", "heads_last"]

_FAMILIES = ("bert", "distilbert", "electra", "roberta", "xlm-roberta", "camembert")


class PackedEncoder(nn.Module):
    """Embeddings and layers of an encoder over one packed row of tokens, without padding.

    Only the attention sees where sequences begin and end: it is the implementation registered with
    transformers under the name `attention`, which gets the keywords of `forward`.

    Args:
        name: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        options: how the encoder is loaded, see `EncoderOptions`.
        attention: name of the registered attention.

    Raises:
        ValueError: if the encoder is not of a family whose layers take only hidden states, or if
            `attn_implementation` is given.
    """

    def __init__(self, name: str, options: EncoderOptions, attention: str) -> None:
        super().__init__()
        if options.get("attn_implementation") is not None:
            raise ValueError(
                f"attn_implementation={options['attn_implementation']!r} is given, but this ranker brings "
                "its own attention"
            )
        self.model = load_encoder(name, options)
        family = self.model.config.model_type  # type: ignore[union-attr]
        if family not in _FAMILIES:
            raise ValueError(
                f"{name!r} is of the family {family!r}; attention over packed lists is there for "
                f"{', '.join(_FAMILIES)} (MiniLM and other BERT-like encoders included)"
            )
        if getattr(self.model, "pooler", None) is not None:
            self.model.register_module("pooler", None)  # only token states are read
        self.model.set_attn_implementation(attention)  # type: ignore[operator]

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def positions(self) -> int:
        """How many positions the encoder has."""
        return int(self.config.max_position_embeddings) - first_position(self.config)

    def forward(self, input_ids: Tensor, segment_ids: Tensor, position_ids: Tensor, **layout: Any) -> Tensor:
        """Last hidden state, float [tokens, width].

        Args:
            input_ids, segment_ids, position_ids: int64 [tokens]; segments are read by encoders that have
            them. layout: keywords of the attention.
        """
        inputs = {
            "input_ids": input_ids[None],
            "position_ids": position_ids[None] + first_position(self.config),
        }
        if has_segments(self.model):
            inputs["token_type_ids"] = segment_ids[None]
        hidden: Tensor = self.model.embeddings(**inputs)  # type: ignore[operator]
        project = getattr(self.model, "embeddings_project", None)
        if project is not None:
            hidden = project(hidden)
        stack = self.model.transformer if self.config.model_type == "distilbert" else self.model.encoder
        layers: list[nn.Module] = list(stack.layer)  # type: ignore[union-attr, arg-type]
        for layer in layers:
            hidden = layer(hidden, attention_mask=None, **layout)
        return hidden[0]


def heads_last(*states: Tensor) -> tuple[Tensor, ...]:
    """[1, heads, tokens, head width] -> [tokens, heads, head width], for each."""
    return tuple(torch.transpose(state[0], 0, 1) for state in states)
