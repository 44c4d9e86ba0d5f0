"""Encoder layers that run inside each item after the joint layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossjem_pl.rankers.encoders import first_position
from crossjem_pl.rankers.pairwise.packed_attention import pack, with_packed_attention

__all__ = ["ItemLayers", "layer_stack"]


class ItemLayers(nn.Module):
    """k encoder layers over every item's own tokens, in the item's word order.

    A union gives a shared token one embedding for all its items and forgets word order. These layers gather
    the item's tokens from the joint encoding, repeats included, add a position embedding and let them attend
    to each other only, so that each item gets its own embedding of each token. Cost: (sum of item lengths) x
    k layers.

    Args:
        encoder: the joint encoder; the layers start as copies of its last `layers` ones, the positions as its
            position table where it has one (zeros otherwise).
        layers: k, at least 1.
        max_item_tokens: number of positions.

    Raises:
        ValueError: if the encoder has fewer layers, or they need inputs beyond hidden states and a mask.
    """

    def __init__(self, encoder: nn.Module, layers: int, max_item_tokens: int) -> None:
        super().__init__()
        stack = layer_stack(encoder)
        if not 1 <= layers <= len(stack):
            raise ValueError(f"item_layers={layers}, but the encoder has {len(stack)} layers")
        self.layers = with_packed_attention(nn.ModuleList(stack[-layers:]))
        self.positions = nn.Embedding(max_item_tokens, encoder.config.hidden_size)  # type: ignore[union-attr, arg-type]
        with torch.no_grad():
            self.positions.weight.zero_()
            table = _position_table(encoder)
            if table is not None:
                first = first_position(encoder.config)  # type: ignore[arg-type]
                rows = table[first : first + max_item_tokens]
                self.positions.weight[: len(rows)] = rows

    def forward(
        self, embeddings: Tensor, token: Tensor, item: Tensor, position: Tensor, items: int
    ) -> Tensor:
        """Embeddings of all item tokens, [tokens, width].

        Args:
            embeddings: [M, width], the joint encoding.
            token: int64 [tokens], row of `embeddings` of each item token, items in order.
            item: int64 [tokens], ascending.
            position: int64 [tokens], position inside the item.
            items: how many items there are.
        """
        packing = pack(item, position, items)
        hidden = (embeddings[token] + self.positions(position).to(embeddings.dtype))[None]
        for layer in self.layers:
            hidden = layer(hidden, attention_mask=None, packing=packing)
        return hidden[0]


def layer_stack(encoder: nn.Module) -> nn.ModuleList:
    """The layers of an encoder that can run on packed tokens.

    Raises:
        ValueError: if there are no layers that take only hidden states and a mask.
    """
    for path in ("encoder.layer", "transformer.layer"):
        try:
            stack = encoder.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(stack, nn.ModuleList) and not getattr(encoder.config, "layer_types", None):
            return stack
    raise ValueError(
        f"item layers need an encoder whose layers take only hidden states and a mask (BERT, DistilBERT, "
        f"MiniLM, ELECTRA, RoBERTa); {type(encoder).__name__} is not one"
    )


def _position_table(encoder: nn.Module) -> Tensor | None:
    embeddings = getattr(encoder, "embeddings", None)
    table = getattr(embeddings, "position_embeddings", None)
    if not isinstance(table, nn.Embedding):
        return None
    # ELECTRA's embeddings may be narrower than its layers
    project = getattr(encoder, "embeddings_project", None)
    return table.weight @ project.weight.T if isinstance(project, nn.Linear) else table.weight
