"""CROSS-JEM: all items of a query scored in one pass over the union of their tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple, Self, Unpack, get_args

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import (
    Batch,
    Explanation,
    TokenContribution,
    init_arguments,
    item_mask,
    register,
)
from crossjem_pl.rankers.crossjem import heads
from crossjem_pl.rankers.crossjem.attention import ItemSideLayers, has_position_table, place_table
from crossjem_pl.rankers.crossjem.batch import Passes, RunFormat, Steps, UnionAttention, UnionPositions, deal
from crossjem_pl.rankers.crossjem.heads import LinearHead, MatchHead, QueryHead, ScoringHead, TokenStates
from crossjem_pl.rankers.encoders import (
    EncoderOptions,
    encode_tokens,
    first_position,
    has_segments,
    load_encoder,
)
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.text import PassOrder, Ragged, leading_items
from crossjem_pl.text.ragged import Ints

__all__ = ["FORMS", "CrossJEM", "Form"]

Form = Literal["paper", "paper-positional", "best", "best-query"]


class _Preset(NamedTuple):
    head: Callable[[], ScoringHead]
    union_positions: UnionPositions
    union_attention: UnionAttention
    query_bias: float
    item_side_layers: int
    own_places: bool
    max_items_per_pass: int
    max_union_tokens: int


_PAPER = _Preset(LinearHead, "sequential", "full", 0.0, 0, False, 100, 262)
_BEST = _Preset(MatchHead, "item", "item", -3.0, 1, True, 700, 450)

FORMS: dict[Form, _Preset] = {
    "paper": _PAPER,
    "paper-positional": _PAPER._replace(head=lambda: LinearHead(positions=True)),
    "best": _BEST,
    "best-query": _BEST._replace(head=QueryHead),
}
"""What the arguments of `CrossJEM` are in each form where they are not given."""

_RUN_COST = 64
"""Tokens of padding that a further run must spare on one CPU thread. With 6 layers of width 384 on an AMD EPYC
(Zen 4) 16 to 64 measured alike, and 100 or more slower."""

_LAST_READER = "crossjem_pl 0.1 (commit f314800) reads such folders"


@register
class CrossJEM(NeuralRanker):
    """CROSS-JEM (Paliwal et al., 2024): `[CLS] q [SEP] u_1..u_M`, u = the distinct item tokens, ascending.

    Lists that exceed `max_items_per_pass` or `max_union_tokens` are split into passes that run in one batch;
    no token is dropped. Texts longer than their own limits are cut and counted.

    An argument that is None is that of the form: "paper" (linear head, sequential positions, full attention, no
    item-side layers, N = 100, L_u = 262), "paper-positional" (the same with the sinusoids of Table 6b), "best", the
    recommended form (match head, item positions, item attention with a query bias of -3, one item-side layer with the
    items' own places, N = 700, L_u = 450), or "best-query" (the same with the query head).

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
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        max_items_per_pass: N of the paper.
        max_union_tokens: L_u of the paper.
        pass_order: how items of a split list are put into passes, see `plan_passes`.
        options: how the encoder is loaded, see `EncoderOptions`.

    Attributes:
        steps: the multiples to which `collate` pads, see `Steps`.
        run_cost: tokens of padding that a further run of the network must spare, for inference on passes of unequal
            length; None for 64 per thread on a CPU and one single run elsewhere.

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
        max_query_tokens: int = 64,
        max_item_tokens: int = 32,
        max_items_per_pass: int | None = None,
        max_union_tokens: int | None = None,
        pass_order: PassOrder = "sorted",
        **options: Unpack[EncoderOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        if form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
        given = {field: init_args[field] for field in _Preset._fields if init_args[field] is not None}
        whole = FORMS[form]._replace(**given)
        if own_places is None and not (whole.item_side_layers and whole.union_positions == "item"):
            whole = whole._replace(own_places=False)
        made = head if head is not None else whole.head()
        init_args |= {**whole._asdict(), "head": {"class": type(made).__name__, "init_args": made.init_args}}
        limits = {"max_query_tokens": max_query_tokens, "max_item_tokens": max_item_tokens}
        super().__init__(init_args, encoder, limits)
        self.encoder = load_encoder(encoder, options)
        self.union_positions, self.union_attention = whole.union_positions, whole.union_attention
        self.query_bias, self.own_places = whole.query_bias, whole.own_places
        self.max_items_per_pass, self.max_union_tokens = whole.max_items_per_pass, whole.max_union_tokens
        self.pass_order = pass_order
        self.steps, self.run_cost = Steps(), None
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
        known = {"own_places": False, **init_args}  # version 0.1 had none
        known["item_side_layers"] = known.pop("split_layers", known.get("item_side_layers"))
        lost = {
            "item layers": known.pop("item_layers", 0),
            "union_positions='shared'": known.get("union_positions") == "shared",
            "pass_order='given'": known.get("pass_order") == "given",
            "the head MaxSimHead": known["head"]["class"] == "MaxSimHead",
        }
        for what in (name for name, used in lost.items() if used):
            raise ValueError(f"{folder}: a CROSS-JEM with {what}; {_LAST_READER}, this version does not")
        head_class = getattr(heads, known["head"]["class"], None)
        if not (isinstance(head_class, type) and issubclass(head_class, ScoringHead)):
            raise ValueError(f"{folder}: unknown scoring head {known['head']['class']!r}")
        return super().from_folder(folder, {**known, "head": head_class(**known["head"]["init_args"])})

    @property
    def union_limit(self) -> int | None:
        """The largest `max_union_tokens` that the encoder's positions allow; None if they set no limit."""
        positions = self._positions
        if positions is None or self.union_positions != "sequential":
            return None
        return positions - self.max_query_tokens - 2

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
        return self._deal(queries, items, item_mask(lists))

    def parts(self, ranking_list: RankingList) -> list[Ints]:
        passes = self.passes([ranking_list])
        number = passes.pass_of_row[passes.row_of_item]
        return [np.flatnonzero(number == i) for i in range(len(passes.queries.lengths))]

    def collate(self, lists: Sequence[RankingList]) -> Batch:
        mask = item_mask(lists)
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        passes = self._deal(queries.tokens, items.tokens, mask)
        cost = self.run_cost
        if cost is None and not self.training and next(self.parameters()).device.type == "cpu":
            cost = _RUN_COST * torch.get_num_threads()
        runs, slots = zip(*self._format.runs(passes, mask.numel(), cost), strict=True)
        return Batch(mask, items.truncated, queries.truncated, runs=list(runs), slots=torch.cat(slots))

    def pad_to_few_shapes(self) -> None:
        self.steps = Steps(4, 64, 64, 64)

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        return self._format.axes

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
        item_of_output: Tensor,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        entry_token: Tensor | None = None,
        entry_place: Tensor | None = None,
        entry_shared: Tensor | None = None,
        group_token: Tensor | None = None,
        group_item: Tensor | None = None,
        group_pass: Tensor | None = None,
    ) -> Tensor:
        """Scores, float32 [n], from the tensors of `RunFormat.axes`."""
        seen = attention_mask if attention_mask.ndim == 2 else attention_mask.unsqueeze(1)
        hidden = encode_tokens(self.encoder, input_ids, seen, segment_ids, position_ids)
        context, states = hidden[:, : context_mask.shape[1]], hidden.flatten(0, 1)
        if self.item_side_layers is not None:
            places = self.max_item_tokens + 1 if self.own_places else 0
            table = place_table(self.encoder, places) if places else hidden[0, :0]
            entries = entry_token, entry_place, entry_shared
            groups = group_token, group_item, group_pass
            states = self.item_side_layers(
                hidden, table, context_mask, word_mask, *entries, *groups, self.query_bias
            )
            context = states[: context_mask.numel()].unflatten(0, context_mask.shape)
        items = item_rows, item_mask, item_positions, item_pass
        tokens = TokenStates(context.float(), context_mask, word_mask, states.float(), *items)
        with _full_precision(input_ids.device):
            return self.head(tokens)[item_of_output].float()

    @torch.no_grad()
    def explain(self, ranking_list: RankingList) -> list[Explanation]:
        batch = self.collate([ranking_list]).to(next(self.encoder.parameters()).device)
        tokens = self.encode_items([ranking_list]).tokens
        query = self.encode_queries([ranking_list]).tokens.values.tolist()
        hf, seen = self.tokenizer.hf, []
        convert = hf.convert_ids_to_tokens
        context = convert([hf.cls_token_id, *query, hf.sep_token_id])
        kinds = ["special", *["query"] * len(query), "special"]
        found: dict[int, Explanation] = {}
        begin = 0
        for run in batch.runs:
            handle = self.head.register_forward_hook(lambda head, inputs, output: seen.append(inputs[0]))
            try:
                self.score_run(**run)
            finally:
                handle.remove()
            with _full_precision(batch.slots.device):
                parts = self.head.contributions(seen.pop())
            scores, of_items = parts.scores().tolist(), parts.items.tolist()
            of_context = [[]] * len(scores) if parts.context is None else parts.context.tolist()
            bias = [] if parts.constant is None else [TokenContribution("", "bias", float(parts.constant))]
            rows = run["item_of_output"].tolist()
            for row, slot in zip(rows, batch.slots[begin : begin + len(rows)].tolist(), strict=True):
                if slot == len(ranking_list):  # padding
                    continue
                ids = tokens.row(slot).tolist()
                pieces = convert(ids if self.item_side_layers is not None else sorted(set(ids)))
                made = [
                    TokenContribution(*pair) for pair in _named(pieces, ["item"] * len(pieces), of_items[row])
                ]
                outside = _named(context, kinds, of_context[row])
                made += [TokenContribution(*pair) for pair in outside if pair[2]]  # 0: not in the pool
                found[slot] = Explanation(ranking_list.items[slot], scores[row], (*made, *bias))
            begin += len(rows)
        return [found[i] for i in range(len(ranking_list))]

    def _deal(self, queries: Ragged, items: Ragged, mask: Tensor) -> Passes:
        return deal(queries, items, mask, self.max_items_per_pass, self.max_union_tokens, self.pass_order)

    @property
    def _format(self) -> RunFormat:
        hf = self.tokenizer.hf
        return RunFormat(
            hf.cls_token_id,
            hf.sep_token_id,
            hf.pad_token_id or 0,
            self.union_positions,
            self.union_attention,
            self.query_bias,
            self.init_args["item_side_layers"],
            self.own_places,
            self._segments,
            self._positions if self.union_positions == "sequential" else None,
            self.steps,
        )

    @property
    def _positions(self) -> int | None:
        """How many positions the encoder has; None if it sets no limit."""
        available = getattr(self.encoder_config, "max_position_embeddings", None)
        return None if available is None else int(available) - first_position(self.encoder_config)

    def _check(self, item_side_layers: int) -> None:
        choices = {
            "union_positions": UnionPositions,
            "union_attention": UnionAttention,
            "pass_order": PassOrder,
        }
        for field, allowed in choices.items():
            if getattr(self, field) not in get_args(allowed):
                raise ValueError(
                    f"{field} must be one of {', '.join(get_args(allowed))}, got {getattr(self, field)!r}"
                )
        if self.max_items_per_pass < 1:
            raise ValueError(f"max_items_per_pass must be at least 1, got {self.max_items_per_pass}")
        if self.max_union_tokens < self.max_item_tokens:
            raise ValueError(
                f"max_union_tokens={self.max_union_tokens} cannot hold one item of "
                f"max_item_tokens={self.max_item_tokens}"
            )
        if self.query_bias and self.union_attention != "item":
            raise ValueError(f"query_bias={self.query_bias} needs union_attention='item'")
        if self.own_places and not (item_side_layers and self.union_positions == "item"):
            raise ValueError("own_places needs union_positions='item' and item-side layers")
        if self.own_places and not has_position_table(self.encoder):
            raise ValueError(
                f"own_places needs an encoder with a table of positions, not {type(self.encoder).__name__}"
            )
        config = self.encoder_config
        windows = "sliding_attention" in (getattr(config, "layer_types", None) or ())
        kernel = str(getattr(config, "_attn_implementation", None) or "eager")
        if self.union_attention == "item" and (windows or kernel not in ("eager", "sdpa")):
            raise ValueError(
                f"union_attention='item' needs an encoder whose layers see the whole sequence, with eager or sdpa "
                f"attention; {config.model_type} with {kernel} attention is not one"
            )
        needed = self.max_query_tokens + 2
        if self.union_positions == "item":
            needed = max(needed, self.max_item_tokens + 1)
        else:
            needed += self.max_union_tokens
        if self._positions is not None and needed > self._positions:
            raise ValueError(
                f"max_query_tokens={self.max_query_tokens} + 2 + max_union_tokens={self.max_union_tokens} "
                f"need {needed} positions, the encoder has {self._positions}; lower a limit or use "
                "union_positions='item'"
            )


def _full_precision(device: torch.device) -> Any:
    """Outside any autocast: heads compute in float32."""
    kind = device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _named(pieces: Sequence[str], kinds: Sequence[str], values: Sequence[float]) -> Iterator[Any]:
    """Piece, kind and value; values behind the last piece are padding."""
    return zip(pieces, kinds, values, strict=False)


def _renamed(module: nn.Module, state: dict[str, Tensor], *_: Any) -> None:
    """Version 0.1 called the item-side layers `split_layers.layers`."""
    for key in [key for key in state if key.startswith("split_layers.layers.")]:
        state["item_side_layers." + key.removeprefix("split_layers.layers.")] = state.pop(key)
