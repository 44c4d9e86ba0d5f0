"""The encoder's last layers, run on each item's own copies of its tokens after the joint layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossjem_pl.rankers.bert import HIDDEN, attend
from crossjem_pl.rankers.encoders import PLAIN_FAMILIES, first_position

__all__ = [
    "Copies",
    "ItemSideLayers",
    "SharedTokens",
    "check_attention",
    "has_position_table",
    "joint_states",
    "place_table",
]


class SharedTokens(NamedTuple):
    """Tokens whose copies share one feed-forward network in each item-side layer.

    With b_c what a copy c of token u has after attention, its state is LayerNorm(b_c + FFN(mean of b over u's copies))
    in place of LayerNorm(b_c + FFN(b_c)): the same where the token has one copy.

    Args:
        token: int64 [P * Q + G * W], which of the tokens each state is a copy of; `tokens` for padding.
        tokens: how many tokens there are.
    """

    token: Tensor
    tokens: int

    def mean(self, copies: Tensor) -> Tensor:
        """[tokens + 1, width], the mean of each token's copies [P * Q + G * W, width]; 0 for tokens without any."""
        # not index_add: that is exported as ScatterND, in which ONNX Runtime's threads lose sums of the same row
        ones = torch.ones_like(copies[:, 0])
        number = ones.new_zeros(self.tokens + 1).scatter_add(0, self.token, ones)
        own = self.token[:, None].expand_as(copies)
        total = copies.new_zeros(self.tokens + 1, copies.shape[1]).scatter_add(0, own, copies)
        return total / number.clamp(min=1)[:, None]


class Copies(NamedTuple):
    """What `ItemSideLayers` begin with.

    Args:
        states: [n, width].
        columns: int64 [P, Q], rows of `states`: those of the contexts.
        rows: int64 [G, W], those of the items' tokens.
        enter: makes the states, their queries, keys and values from fewer, so that these are projected once.
        shared: the tokens whose copies share a feed-forward network; None for one of its own for each copy.
    """

    states: Tensor
    columns: Tensor
    rows: Tensor
    enter: Callable[[Tensor], Tensor] | None = None
    shared: SharedTokens | None = None


class ItemSideLayers(nn.ModuleList):
    """Takes the last k layers out of an encoder and runs them with the items apart.

    A union gives a shared token one embedding for all its items. From here on each item has its own copies of its
    tokens, in its own order and with repeats, which attend to [CLS], query and [SEP] and to their own item; the
    query attends to itself. Nothing is added to the encoder: where no two items share a token and the joint layers
    have "item" attention, these layers change nothing. Cost: (query + sum of the items) tokens in place of
    (query + union) in k of the layers; queries, keys and values of the first are computed once for all copies that
    are equal. With shared feed-forward networks (see `SharedTokens`) what remains for each copy is its attention.

    Args:
        encoder: the joint encoder; loses its last `layers` layers.
        layers: k, between 1 and one less than the encoder has.
        name: of the argument that gives k.

    Raises:
        ValueError: if the encoder has too few layers, or they need inputs beyond hidden states and a mask.
    """

    def __init__(self, encoder: nn.Module, layers: int, name: str = "item_side_layers") -> None:
        stack = _layer_stack(encoder)
        if not 1 <= layers < len(stack):
            raise ValueError(
                f"{name}={layers}, but the encoder has {len(stack)} layers and one must come before them"
            )
        super().__init__(stack[len(stack) - layers :])
        del stack[len(stack) - layers :]

    def forward(
        self,
        copies: Copies,
        context_mask: Tensor,
        word_mask: Tensor,
        group_item: Tensor,
        group_pass: Tensor,
        query_bias: float,
    ) -> tuple[Tensor, Tensor]:
        """The states of the contexts, [P, Q, width], and of the items' tokens, [G, W, width].

        Args:
            copies: see there.
            context_mask, word_mask, group_item, group_pass: see `CrossJEM.run_axes`.
            query_bias: added to the logits of the items' tokens on the query's words.
        """
        of_context = torch.where(context_mask, 0.0, HIDDEN)
        of_query = torch.where(word_mask, query_bias, of_context)[group_pass]
        same = torch.where(group_item[:, :, None] == group_item[:, None, :], 0.0, HIDDEN)
        seen = torch.cat([of_query[:, None, :].expand(-1, same.shape[1], -1), same], dim=2)
        apart = torch.arange(context_mask.numel(), device=group_pass.device).unflatten(0, context_mask.shape)
        behind = torch.arange(group_item.numel(), device=group_pass.device).unflatten(0, group_item.shape)
        for layer in self:
            states = _run(layer, copies, group_pass, of_context, seen)
            copies = Copies(states, apart, apart.numel() + behind, shared=copies.shared)
        number = apart.numel()
        return states[:number].unflatten(0, apart.shape), states[number:].unflatten(0, behind.shape)


def joint_states(
    joint: Tensor,
    context_mask: Tensor,
    group_token: Tensor,
    group_item: Tensor,
    entry_token: Tensor,
    entry_place: Tensor | None,
    entry_shared: Tensor | None,
    table: Tensor,
) -> Copies:
    """What `ItemSideLayers` take of joint passes.

    From the joint encoding [P, S, width], tensors of `CrossJEM.run_axes` and the embeddings of places (see
    `place_table`): the row of an entry's `entry_place` less that of its `entry_shared` is added to it.
    """
    passes, width = joint.shape[:2]
    count = passes * width
    columns = torch.arange(passes, device=joint.device)[:, None] * width
    columns = columns + torch.arange(context_mask.shape[1], device=joint.device)
    states, rows = joint.flatten(0, 1), entry_token[group_token]
    token = torch.where(context_mask, columns, count), torch.where(group_item >= 0, rows, count)
    shared = SharedTokens(torch.cat([part.flatten() for part in token]), count)
    if entry_place is None or entry_shared is None:
        return Copies(states, columns, rows, shared=shared)
    in_joint = columns.flatten()

    def enter(values: Tensor) -> Tensor:
        """What the contexts and the entries have of values [P * S + places, ...], linear in the states."""
        places = values[count:]
        shift = F.embedding(entry_place, places) - F.embedding(entry_shared, places)
        return torch.cat([F.embedding(in_joint, values), F.embedding(entry_token, values) + shift])

    apart = torch.arange(context_mask.numel(), device=joint.device).unflatten(0, context_mask.shape)
    states = torch.cat([states, table.to(joint.dtype)])
    return Copies(states, apart, context_mask.numel() + group_token, enter, shared)


def place_table(encoder: nn.Module, places: int) -> Tensor:
    """The encoder's embeddings of its first `places` positions, [places, width]."""
    first = first_position(encoder.config)  # type: ignore[arg-type]
    table = _position_table(encoder)[first : first + places]
    # ELECTRA's embeddings may be narrower than its layers
    project = getattr(encoder, "embeddings_project", None)
    return F.linear(table, project.weight) if isinstance(project, nn.Linear) else table


def has_position_table(encoder: nn.Module) -> bool:
    """Whether `place_table` is there for the encoder."""
    return _position_table(encoder) is not None


def check_attention(encoder: nn.Module, what: str) -> None:
    """Raises a ValueError if the encoder's layers do not take a mask that says which token sees which."""
    config: Any = encoder.config
    kernel = str(getattr(config, "_attn_implementation", None) or "eager")
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()) or kernel not in ("eager", "sdpa"):
        raise ValueError(
            f"{what} needs an encoder whose layers see the whole sequence, with eager or sdpa attention; "
            f"{config.model_type} with {kernel} attention is not one"
        )


def _position_table(encoder: nn.Module) -> Any:
    table = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    return table.weight if isinstance(table, nn.Embedding) else None


def _layer_stack(encoder: nn.Module) -> nn.ModuleList:
    family: Any = encoder.config.model_type  # type: ignore[union-attr]
    if family not in PLAIN_FAMILIES:
        raise ValueError(
            f"item-side layers need an encoder whose layers take only hidden states and a mask (BERT, DistilBERT, "
            f"MiniLM, ELECTRA, RoBERTa); {type(encoder).__name__} is not one"
        )
    stack = encoder.get_submodule("transformer.layer" if family == "distilbert" else "encoder.layer")
    assert isinstance(stack, nn.ModuleList)
    return stack


def _run(layer: Any, copies: Copies, group_pass: Tensor, of_context: Tensor, seen: Tensor) -> Tensor:
    """One layer, as BERT's or DistilBERT's, [P * Q + G * W, width].

    `of_context` [P, Q] and `seen` [G, W, Q + W] are added to the logits of the contexts, and of the groups on the
    context of their pass and on themselves.
    """
    states, columns, rows, enter, shared = copies
    keys = torch.cat([columns[group_pass], rows], dim=1)
    bert = hasattr(layer, "intermediate")
    attention = layer.attention.self if bert else layer.attention
    linear = (
        (attention.query, attention.key, attention.value)
        if bert
        else (attention.q_lin, attention.k_lin, attention.v_lin)
    )
    size = attention.attention_head_size
    q, k, v = (project(states) for project in linear)
    if enter is not None:
        states, q, k, v = enter(states), enter(q), enter(k), enter(v)

    def heads(values: Tensor, index: Tensor) -> Tensor:
        return F.embedding(index, values).unflatten(-1, (-1, size))

    options = {"scaling": size**-0.5, "dropout": attention.dropout.p if attention.training else 0.0}
    context = attend(heads(q, columns), heads(k, columns), heads(v, columns), of_context, **options)
    items = attend(heads(q, rows), heads(k, keys), heads(v, keys), seen, **options)
    mixed = torch.cat([part.flatten(2).flatten(0, 1) for part in (context, items)])
    before = F.embedding(torch.cat([columns.flatten(), rows.flatten()]), states)
    if bert:
        between, last, norm = layer.attention.output(mixed, before), layer.output, layer.output.LayerNorm

        def feed_forward(x: Tensor) -> Tensor:
            return last.dropout(last.dense(layer.intermediate(x)))

    else:
        between = layer.sa_layer_norm(attention.out_lin(mixed) + before)
        feed_forward, norm = layer.ffn, layer.output_layer_norm
    if shared is None:
        return norm(feed_forward(between) + between)
    return norm(F.embedding(shared.token, feed_forward(shared.mean(between))) + between)
