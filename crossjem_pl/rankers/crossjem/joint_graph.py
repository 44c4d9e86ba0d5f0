"""CROSS-JEM's tensor part: from padded passes to one score per item."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossjem_pl.rankers.crossjem.heads import ScoringHead
from crossjem_pl.rankers.crossjem.item_layers import ItemLayers
from crossjem_pl.rankers.crossjem.padded_heads import PaddedTokens, padded_scores
from crossjem_pl.rankers.crossjem.split_layers import SplitLayers
from crossjem_pl.rankers.encoders import encode_tokens, has_segments
from crossjem_pl.rankers.exportable import TensorPart
from crossjem_pl.rankers.pairwise.packed_attention import Packing

__all__ = ["joint_axes", "joint_part", "place_in_segment"]

_PASSES = ("passes", "pass_tokens")
_ITEMS = ("items", "item_tokens")


def joint_axes(
    encoder: nn.Module, own_positions: bool, attention_table: bool, own_tokens: bool, context: bool
) -> dict[str, tuple[str, ...]]:
    """The inputs of `joint_part`'s module and their axes, in order.

    Args:
        encoder: of the passes.
        own_positions: whether positions are given instead of the encoder's own.
        attention_table: whether `attention_mask` is a float32 table of what each token sees, added to the logits.
        own_tokens: whether layers run inside each item on its own tokens.
        context: whether they take [CLS], query and [SEP] along.
    """
    seen = (*_PASSES, _PASSES[1]) if attention_table else _PASSES
    axes: dict[str, tuple[str, ...]] = {"input_ids": _PASSES, "attention_mask": seen}
    if has_segments(encoder):
        axes["segment_ids"] = _PASSES
    if own_positions:
        axes["position_ids"] = _PASSES
    axes |= {
        "query_rows": ("passes", "query_tokens"),
        "query_mask": ("passes", "query_tokens"),
        "sep_token": ("passes",),
        "item_pass": ("items",),
        "item_rows": _ITEMS,
        "item_mask": _ITEMS,
        "item_positions": _ITEMS,
    }
    if own_tokens:
        axes |= dict.fromkeys(("own_token", "own_position", "own_flat"), ("all_item_tokens",))
    if context:
        axes |= dict.fromkeys(("context_token", "context_mask"), ("passes", "context_tokens"))
    return axes


def joint_part(
    encoder: nn.Module,
    head: ScoringHead,
    inside: ItemLayers | SplitLayers | None,
    axes: dict[str, tuple[str, ...]],
    max_item_tokens: int,
    query_bias: float,
) -> TensorPart:
    """The tensor part of a CROSS-JEM ranker with these components; see `joint_axes` and `PaddedTokens`.

    Raises:
        ValueError: for a head that has no padded form.
    """
    if padded_scores.dispatch(type(head)) is padded_scores.dispatch(object):
        padded_scores(head, None)  # type: ignore[arg-type]  # raises, naming the head
    return TensorPart(_JointGraph(encoder, head, inside, max_item_tokens, query_bias), axes)


def place_in_segment(segment: Tensor, segments: int) -> Tensor:
    """How many entries of the same segment stand before each entry of `segment`, ascending int64 [n]."""
    counts = torch.bincount(segment, minlength=segments)
    return torch.arange(len(segment), device=segment.device) - (counts.cumsum(0) - counts)[segment]


class _JointGraph(nn.Module):
    def __init__(
        self,
        encoder: nn.Module,
        head: ScoringHead,
        inside: ItemLayers | SplitLayers | None,
        max_item_tokens: int,
        query_bias: float,
    ) -> None:
        super().__init__()
        self.encoder, self.head, self.inside = encoder, head, inside
        self.max_item_tokens, self.query_bias = max_item_tokens, query_bias

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        query_rows: Tensor,
        query_mask: Tensor,
        sep_token: Tensor,
        item_pass: Tensor,
        item_rows: Tensor,
        item_mask: Tensor,
        item_positions: Tensor,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        own_token: Tensor | None = None,
        own_position: Tensor | None = None,
        own_flat: Tensor | None = None,
        context_token: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        seen = attention_mask if attention_mask.ndim == 2 else attention_mask.unsqueeze(1)
        hidden = encode_tokens(self.encoder, input_ids, seen, segment_ids, position_ids).float()
        own = None
        if self.inside is not None:
            assert own_token is not None
            assert own_position is not None
            assert own_flat is not None
            packing = Packing(item_rows, item_mask, own_flat)
            if isinstance(self.inside, ItemLayers):
                own = hidden.flatten(0, 1)[own_token] + self.inside.positions(own_position)
                for layer in self.inside.layers:
                    own = layer(own.unsqueeze(0), attention_mask=None, packing=packing)[0]
            else:
                assert context_token is not None
                assert context_mask is not None
                context = (context_token, context_mask)
                states, own = self.inside(
                    hidden.flatten(0, 1), *context, own_token, packing, item_pass, self.query_bias
                )
                hidden = states.unflatten(0, context_token.shape)
        tokens = PaddedTokens(
            hidden,
            query_rows,
            query_mask,
            sep_token,
            item_pass,
            own,
            item_rows,
            item_mask,
            item_positions,
            self.max_item_tokens,
        )
        return padded_scores(self.head, tokens).to(torch.float32)
