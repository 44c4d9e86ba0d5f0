"""An encoder's last layers, run on each item's own copies of its tokens after the joint layers."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from crossjem_pl.rankers.attention import HIDDEN, attend
from crossjem_pl.rankers.crossjem.item_layers import layer_stack
from crossjem_pl.rankers.pairwise.context_attention import Groups, attend_with_context, group
from crossjem_pl.rankers.pairwise.packed_attention import Packing, with_attention
from crossjem_pl.rankers.pairwise.packed_encoder import heads_last

__all__ = ["SplitLayers"]

_NAME = "crossjem_split"

_BERT_LIKE = ("bert", "roberta", "electra", "xlm-roberta", "camembert")


class _Layout(NamedTuple):
    """Where the states lie: a padded row of [CLS], query and [SEP] for each pass, then the items' tokens.

    Args:
        context: float32 [P, Q], what is added to the logits on each context token by the context itself.
        seen: float32 [I, Q], the same for the tokens of each item.
        items: one sequence per item.
    """

    context: Tensor
    seen: Tensor
    items: Groups


class SplitLayers(nn.Module):
    """Takes the last k layers out of an encoder and runs them with the items apart.

    A union gives a shared token one embedding for all its items. From here on each item has its own copies of its
    tokens, in its own order and with repeats, which attend to [CLS], query and [SEP] and to their own item; the
    query attends to itself. Nothing is added to the encoder: where no two items share a token and the joint layers
    have "item" attention, the split changes nothing. Cost: (query + sum of the items) tokens in place of
    (query + union) in k of the layers.

    Args:
        encoder: the joint encoder; loses its last `layers` layers.
        layers: k, between 1 and one less than the encoder has.

    Raises:
        ValueError: if the encoder has too few layers, or they need inputs beyond hidden states and a mask.
    """

    def __init__(self, encoder: nn.Module, layers: int) -> None:
        super().__init__()
        stack = layer_stack(encoder)
        if not 1 <= layers < len(stack):
            raise ValueError(
                f"split_layers={layers}, but the encoder has {len(stack)} layers and one must stay joint"
            )
        config: Any = encoder.config
        self.shares_projections = config.model_type in _BERT_LIKE
        self.layers = with_attention(nn.ModuleList(stack[len(stack) - layers :]), _NAME)
        del stack[len(stack) - layers :]

    def forward(
        self,
        joint: Tensor,
        context_token: Tensor,
        context_mask: Tensor,
        own_token: Tensor,
        items: Packing,
        item_pass: Tensor,
        query_bias: float,
    ) -> tuple[Tensor, Tensor]:
        """States of the contexts [P * Q, width] and of the items' tokens [tokens, width].

        Args:
            joint: [M, width], the joint encoding.
            context_token: int64 [P, Q], rows of `joint`: [CLS], query, [SEP]; padding repeats some row.
            context_mask: bool [P, Q].
            own_token: int64 [tokens], row of `joint` of each item token, items in order.
            items: where the items lie among their tokens.
            item_pass: int64 [I].
            query_bias: added to the logits of the items' tokens on the query's words.
        """
        column = torch.arange(context_mask.shape[1], device=context_mask.device)
        last = context_mask.sum(1, keepdim=True) - 1
        words = (column > 0) & (column < last)
        hidden = torch.where(context_mask, 0.0, HIDDEN)
        seen = torch.where(words, query_bias, hidden)[item_pass]
        layout = _Layout(hidden, seen, group(items, item_pass))
        rows = torch.cat([context_token.flatten(), own_token])
        first, *others = self.layers
        if self.shares_projections:
            states = _first_layer(first, joint, rows, layout)[None]
        else:
            states = first(joint[rows][None], attention_mask=None, layout=layout)
        for layer in others:
            states = layer(states, attention_mask=None, layout=layout)
        own = states[0]
        split = context_token.shape[0] * context_token.shape[1]
        return own[:split], own[split:]


def _first_layer(layer: Any, joint: Tensor, rows: Tensor, layout: _Layout) -> Tensor:
    """`layer(joint[rows])`, [rows, width], for a layer built as BERT's.

    The copies of a token begin with one state, so queries, keys and values are computed once for each token of
    the passes and copied: a quarter of the layer's products run on M tokens in place of the sum of the items.
    """
    attention = layer.attention.self
    heads = attention.num_attention_heads
    q, k, v = (
        project(joint)[rows].unflatten(-1, (heads, -1))
        for project in (attention.query, attention.key, attention.value)
    )
    dropout = attention.dropout.p if attention.training else 0.0
    mixed = _attend(q, k, v, layout, attention.scaling, dropout)
    states = layer.attention.output(mixed.flatten(1), joint[rows])
    return layer.output(layer.intermediate(states), states)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: _Layout,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """What transformers calls; query, key, value [1, heads, T, head width]."""
    q, k, v = heads_last(query, key, value)
    return _attend(q, k, v, layout, scaling, dropout)[None], None


def _attend(
    q: Tensor, k: Tensor, v: Tensor, layout: _Layout, scaling: float | None, dropout: float
) -> Tensor:
    """Attention of the packed states, [T, heads, head width]."""
    passes, longest = layout.context.shape
    split = passes * longest
    own_q, own_k, own_v = (states[:split].unflatten(0, (passes, longest)) for states in (q, k, v))
    context = attend(own_q, own_k, own_v, layout.context, scaling=scaling, dropout=dropout)
    own = attend_with_context(
        q[split:],
        k[split:],
        v[split:],
        layout.items,
        own_k,
        own_v,
        layout.seen,
        scaling=scaling,
        dropout=dropout,
    )
    return torch.cat([context.flatten(0, 1), own])


AttentionInterface.register(_NAME, _attention)
