"""CROSS-JEM: all items of a query scored in one pass over the union of their tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, Unpack, get_args

import numpy as np
import torch
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import (
    Batch,
    check_choice,
    init_arguments,
    item_mask,
    item_places,
    register,
)
from crossjem_pl.rankers.crossjem.attention import (
    ItemSideLayers,
    check_attention,
    has_position_table,
    joint_states,
    place_table,
)
from crossjem_pl.rankers.crossjem.batch import (
    Layout,
    Passes,
    Steps,
    UnionAttention,
    UnionPositions,
    deal,
    runs,
)
from crossjem_pl.rankers.crossjem.heads import (
    HeadRanker,
    LinearHead,
    QueryHead,
    ScoringHead,
    TokenStates,
    best_head,
)
from crossjem_pl.rankers.encoders import (
    EncoderOptions,
    encode_tokens,
    first_position,
    has_segments,
    load_encoder,
)
from crossjem_pl.rankers.neural import check_positions
from crossjem_pl.text import PassOrder, Ragged, leading_items
from crossjem_pl.text.ragged import Ints

if TYPE_CHECKING:
    from transformers import PretrainedConfig

__all__ = ["FORMS", "CrossJEM", "Form"]

Form = Literal["paper", "paper-positional", "best", "best-query"]


class _Preset(NamedTuple):
    head: Callable[[], ScoringHead]
    union_positions: UnionPositions
    union_attention: UnionAttention
    query_bias: float
    item_side_layers: int
    own_places: bool
    shared_feed_forward: bool
    max_items_per_pass: int
    max_union_tokens: int


_PAPER = _Preset(LinearHead, "sequential", "full", 0.0, 0, False, False, 100, 262)
_BEST = _Preset(best_head, "item", "item", -3.0, 1, True, True, 700, 450)

FORMS: dict[Form, _Preset] = {
    "paper": _PAPER,
    "paper-positional": _PAPER._replace(head=lambda: LinearHead(positions=True)),
    "best": _BEST,
    "best-query": _BEST._replace(head=QueryHead),
}
"""What the arguments of `CrossJEM` are in each form where they are not given."""

_LAST_READER = "crossjem_pl 0.1 (commit f314800) reads such folders"


@register
class CrossJEM(HeadRanker):
    """CROSS-JEM (Paliwal et al., 2024): `[CLS] q [SEP] u_1..u_M`, u = the distinct item tokens, ascending.

    Lists that exceed `max_items_per_pass` or `max_union_tokens` are split into passes that run in one batch;
    no token is dropped. Texts longer than their own limits are cut and counted.

    An argument that is None is that of the form: "paper" (linear head, sequential positions, full attention, no
    item-side layers, N = 100, L_u = 262), "paper-positional" (the same with the sinusoids of Table 6b), "best", the
    recommended form (match head, item positions, item attention with a query bias of -3, one item-side layer with the
    items' own places and shared feed-forward networks, N = 700, L_u = 450), or "best-query" (the same, query head).

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`; any Hugging Face encoder with [CLS] and
            [SEP].
        head: how token states become scores.
        form: see above.
        union_positions: "sequential", the encoder's own positions (the paper), or "item": a token's first place in
            the items that hold it, counted from 1 as in `[CLS] item`, in the first segment, which lets the union be
            longer than the position table.
        union_attention: "full", all tokens see each other (the paper), or "item": a union token sees the query
            and the tokens that it shares an item with, the query sees itself. Then other items change an item's
            score only through the tokens they share with it, and an encoder trained on single texts starts near
            what it knows.
        query_bias: with "item" attention, what is added to the attention logits of union tokens on the query's
            words. Below 0, training begins near an encoding of the items on their own.
        item_side_layers: how many of the encoder's own last layers run on each item's own copies of its tokens, see
            `ItemSideLayers`.
        own_places: whether a copy enters these layers with the difference between the position embeddings of its
            place in its own item and of its place in the union added, so that word order counts.
        shared_feed_forward: whether the copies of a token share one feed-forward network in these layers, see
            `SharedTokens`: lists that share many tokens then cost little more than in the joint layers.
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        max_items_per_pass: N of the paper.
        max_union_tokens: L_u of the paper.
        pass_order: how items of a split list are put into passes, see `plan_passes`.
        options: how the encoder is loaded, see `EncoderOptions`.

    Raises:
        ValueError: on limits that contradict each other or the encoder's number of positions, for an unknown
            `form`, `union_positions`, `union_attention` or `pass_order`, for `own_places` without item positions or
            item-side layers, and for "item" attention with an encoder that has windows of attention of its own.
    """

    name = "crossjem"

    def __init__(
        self,
        encoder: str,
        head: ScoringHead | None = None,
        form: Form = "paper",
        union_positions: UnionPositions | None = None,
        union_attention: UnionAttention | None = None,
        query_bias: float | None = None,
        item_side_layers: int | None = None,
        own_places: bool | None = None,
        shared_feed_forward: bool | None = None,
        max_query_tokens: int = 64,
        max_item_tokens: int = 32,
        max_items_per_pass: int | None = None,
        max_union_tokens: int | None = None,
        pass_order: PassOrder = "sorted",
        **options: Unpack[EncoderOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        check_choice("form", form, FORMS)
        given = {field: init_args[field] for field in _Preset._fields if init_args[field] is not None}
        whole = FORMS[form]._replace(**given)
        if own_places is None and not (whole.item_side_layers and whole.union_positions == "item"):
            whole = whole._replace(own_places=False)
        if shared_feed_forward is None and not whole.item_side_layers:
            whole = whole._replace(shared_feed_forward=False)
        made = head if head is not None else whole.head()
        init_args |= {**whole._asdict(), "head": {"class": type(made).__name__, "init_args": made.init_args}}
        limits = {"max_query_tokens": max_query_tokens, "max_item_tokens": max_item_tokens}
        super().__init__(init_args, encoder, limits)
        self.encoder = load_encoder(encoder, options)
        self.union_positions, self.union_attention = whole.union_positions, whole.union_attention
        self.query_bias, self.own_places = whole.query_bias, whole.own_places
        self.shared_feed_forward = whole.shared_feed_forward
        self.max_items_per_pass, self.max_union_tokens = whole.max_items_per_pass, whole.max_union_tokens
        self.pass_order = pass_order
        self.steps = Steps()
        self._segments = has_segments(self.encoder)
        layers = whole.item_side_layers
        self._check(layers)
        self.head = made
        self.head.build(int(self.encoder_config.hidden_size), max_item_tokens)
        self.item_side_layers = ItemSideLayers(self.encoder, layers) if layers else None
        self.register_load_state_dict_pre_hook(_renamed)

    @property
    def encoder_config(self) -> PretrainedConfig:
        return self.encoder.config

    def encoders(self) -> list[nn.Module]:
        return [m for m in (self.encoder, self.item_side_layers) if m is not None]

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        known = {"own_places": False, "shared_feed_forward": False, **init_args}  # version 0.1 had neither
        known["item_side_layers"] = known.pop("split_layers", known.get("item_side_layers"))
        lost = {
            "item layers": known.pop("item_layers", 0),
            "union_positions='shared'": known.get("union_positions") == "shared",
            "pass_order='given'": known.get("pass_order") == "given",
            "the head MaxSimHead": known["head"]["class"] == "MaxSimHead",
        }
        for what in (name for name, used in lost.items() if used):
            raise ValueError(f"{folder}: a CROSS-JEM with {what}; {_LAST_READER}, this version does not")
        return super().from_folder(folder, known)

    @property
    def most_tokens(self) -> int | None:
        """How many tokens the encoder's positions allow in a pass; None if they set no limit."""
        available = getattr(self.encoder_config, "max_position_embeddings", None)
        if available is None or self.union_positions != "sequential":
            return None
        return int(available) - first_position(self.encoder_config)

    @property
    def union_limit(self) -> int | None:
        """The largest `max_union_tokens` that the encoder's positions allow; None if they set no limit."""
        return None if self.most_tokens is None else self.most_tokens - self.max_query_tokens - 2

    def with_limits(self, max_items_per_pass: int, max_union_tokens: int, pass_order: PassOrder) -> Self:
        """This ranker, with the same weights, that splits lists in another way.

        Raises:
            ValueError: as the constructor does.
        """
        limits = {
            "max_items_per_pass": max_items_per_pass,
            "max_union_tokens": max_union_tokens,
            "pass_order": pass_order,
        }
        other = copy.copy(self)
        for name, value in limits.items():
            setattr(other, name, value)
        other.init_args = {**self.init_args, **limits}
        other._check(int(other.init_args["item_side_layers"]))
        return other

    def one_pass_items(self, ranking_list: RankingList) -> int:
        items = self.encode_items([ranking_list]).tokens
        return leading_items(items, self.max_items_per_pass, self.max_union_tokens)

    def passes(self, lists: Sequence[RankingList]) -> Passes:
        """How the items of the lists are dealt to passes."""
        queries, items = self.encode_queries(lists).tokens, self.encode_items(lists).tokens
        return self._deal(queries, items, lists)

    def parts(self, ranking_list: RankingList) -> list[Ints]:
        passes = self.passes([ranking_list])
        number = passes.pass_of_row[passes.row_of_item]
        return [np.flatnonzero(number == i) for i in range(len(passes.queries.lengths))]

    def collate(self, lists: Sequence[RankingList]) -> Batch:
        mask = item_mask(lists)
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        passes = self._deal(queries.tokens, items.tokens, lists)
        made: list[dict[str, Tensor]] = []
        outputs, before = np.empty_like(passes.items), 0
        for run, members, rows in runs(self._layout(), passes, self.padding_cost()):
            outputs[members] = before + rows
            before += len(run["item_pass"])
            made.append(run)
        places = item_places(mask, outputs)
        return Batch(mask, items.truncated, queries.truncated, runs=made, places=places)

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        """The names of the tensors of a run and of their axes.

        P passes of S tokens `[CLS] query [SEP] union`, Q of them `[CLS] query [SEP]`; R rows of distinct items with
        T tokens:

        - input_ids, segment_ids, position_ids: int64 [P, S].
        - attention_mask: int64 [P, S], or with "item" attention float32 [P, S, S], what is added to the logits.
        - context_mask, word_mask: bool [P, Q], which of the first Q tokens are [CLS], query or [SEP], and which
          query.
        - item_pass: int64 [R], item_mask: bool [R, T].
        - item_rows: int64 [R, T], where the states of the item's tokens are: among all P * S, in ascending order
          and each token once; with item-side layers among all P * Q + G * W, in the item's order.
        - item_positions: int64 [R, T], the (first) place of each of these tokens in its item.
        - entry_token: int64 [E], the states among all P * S that enter the item-side layers, entry_place and
          entry_shared: int64 [E], the place of the token in the item, and that which it has in the union.
        - group_token, group_item: int64 [G, W], items put into rows of W tokens: which entry each token is, and the
          row (of R) of its item, -1 on padding; group_pass: int64 [G].
        """
        passes, context, items = (
            ("passes", "pass_tokens"),
            ("passes", "context_tokens"),
            ("items", "item_tokens"),
        )
        axes: dict[str, tuple[str, ...]] = {"input_ids": passes}
        axes["attention_mask"] = passes if self.union_attention == "full" else (*passes, "pass_tokens")
        if self.union_positions == "item":
            axes["position_ids"] = passes
        elif self._segments:
            axes["segment_ids"] = passes
        axes |= {"context_mask": context, "word_mask": context, "item_pass": ("items",), "item_mask": items}
        axes |= {"item_rows": items, "item_positions": items}
        if self.item_side_layers is not None:
            entries = ("entry_token", "entry_place", "entry_shared") if self.own_places else ("entry_token",)
            axes |= dict.fromkeys(entries, ("entries",))
            axes |= dict.fromkeys(("group_token", "group_item"), ("groups", "group_tokens"))
            axes["group_pass"] = ("groups",)
        return axes

    def score_run(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        context_mask: Tensor,
        word_mask: Tensor,
        item_pass: Tensor,
        item_mask: Tensor,
        item_rows: Tensor,
        item_positions: Tensor,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        entry_token: Tensor | None = None,
        entry_place: Tensor | None = None,
        entry_shared: Tensor | None = None,
        group_token: Tensor | None = None,
        group_item: Tensor | None = None,
        group_pass: Tensor | None = None,
    ) -> Tensor:
        """Scores of distinct items, float32 [R], from the tensors of `run_axes`."""
        seen = attention_mask if attention_mask.ndim == 2 else attention_mask.unsqueeze(1)
        hidden = encode_tokens(self.encoder, input_ids, seen, segment_ids, position_ids)
        context, states = hidden[:, : context_mask.shape[1]], hidden
        state_pass = torch.arange(hidden.shape[0], device=hidden.device)
        if self.item_side_layers is not None:
            places = self.max_item_tokens + 1 if self.own_places else 0
            table = place_table(self.encoder, places) if places else hidden[0, :0]
            assert entry_token is not None
            assert group_token is not None
            assert group_item is not None
            assert group_pass is not None
            entries = entry_token, entry_place, entry_shared
            copies = joint_states(hidden, context_mask, group_token, group_item, *entries, table)
            if not self.shared_feed_forward:
                copies = copies._replace(shared=None)
            masks = context_mask, word_mask, group_item, group_pass
            context, states = self.item_side_layers(copies, *masks, self.query_bias)
            state_pass, item_rows = group_pass, (item_rows - context_mask.numel()).clamp(min=0)
        items = item_rows, item_mask, item_positions, item_pass
        query = context.float(), context_mask, word_mask
        return self.apply_head(TokenStates(*query, states.float(), state_pass, *items))

    @property
    def explains_every_token(self) -> bool:
        return self.item_side_layers is not None

    def _deal(self, queries: Ragged, items: Ragged, lists: Sequence[RankingList]) -> Passes:
        limits = self.max_items_per_pass, self.max_union_tokens, self.pass_order
        return deal(queries, items, [len(one) for one in lists], *limits)

    def _layout(self) -> Layout:
        hf = self.tokenizer.hf
        return Layout(
            names=tuple(self.run_axes),
            cls=hf.cls_token_id,
            sep=hf.sep_token_id,
            pad=hf.pad_token_id or 0,
            steps=self.steps,
            most_tokens=self.most_tokens,
            union_attention=self.union_attention,
            query_bias=self.query_bias,
        )

    def _check(self, item_side_layers: int) -> None:
        """Raises a ValueError for settings that contradict each other or the encoder."""
        check_choice("union_positions", self.union_positions, get_args(UnionPositions))
        check_choice("union_attention", self.union_attention, get_args(UnionAttention))
        check_choice("pass_order", self.pass_order, get_args(PassOrder))
        config = self.encoder_config
        joint = self.union_attention == "item"
        for wrong, problem in (
            (
                self.max_items_per_pass < 1,
                f"max_items_per_pass must be at least 1, got {self.max_items_per_pass}",
            ),
            (
                self.max_union_tokens < self.max_item_tokens,
                f"max_union_tokens={self.max_union_tokens} cannot hold one item of "
                f"max_item_tokens={self.max_item_tokens}",
            ),
            (
                self.query_bias and not joint,
                f"query_bias={self.query_bias} needs union_attention='item'",
            ),
            (
                self.own_places and not (item_side_layers and self.union_positions == "item"),
                "own_places needs union_positions='item' and item-side layers",
            ),
            (
                self.shared_feed_forward and not item_side_layers,
                "shared_feed_forward needs item-side layers",
            ),
            (
                self.own_places and not has_position_table(self.encoder),
                f"own_places needs an encoder with a table of positions, not {type(self.encoder).__name__}",
            ),
        ):
            if wrong:
                raise ValueError(problem)
        if joint:
            check_attention(self.encoder, "union_attention='item'")
        needed, limits = self.max_query_tokens + 2, f"max_query_tokens={self.max_query_tokens} + 2"
        if self.union_positions == "item":
            needed = max(needed, self.max_item_tokens + 1)
        else:
            needed += self.max_union_tokens
            limits += f" + max_union_tokens={self.max_union_tokens}"
        check_positions(config, needed, limits)


def _renamed(module: nn.Module, state: dict[str, Tensor], *_: Any) -> None:
    """Version 0.1 called the item-side layers `split_layers.layers`."""
    for key in [key for key in state if key.startswith("split_layers.layers.")]:
        state["item_side_layers." + key.removeprefix("split_layers.layers.")] = state.pop(key)
