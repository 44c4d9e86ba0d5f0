"""CROSS-JEM: all items of a query scored in one pass over the union of their tokens."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self, Unpack, get_args

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import (
    Explanation,
    TokenContribution,
    init_arguments,
    into_slots,
    item_mask,
    register,
)
from crossjem_pl.rankers.crossjem import heads
from crossjem_pl.rankers.crossjem.attention import item_attention
from crossjem_pl.rankers.crossjem.batch import JointBatch, UnionAttention, UnionPositions, joint_batch
from crossjem_pl.rankers.crossjem.heads import JointTokens, LinearHead, ScoringHead
from crossjem_pl.rankers.crossjem.item_layers import ItemLayers
from crossjem_pl.rankers.crossjem.joint_graph import joint_axes, joint_part, place_in_segment
from crossjem_pl.rankers.crossjem.split_layers import SplitLayers
from crossjem_pl.rankers.encoders import EncoderOptions, encode_tokens, first_position, load_encoder
from crossjem_pl.rankers.exportable import Exportable, TensorPart
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.rankers.pairwise.packed_attention import pack
from crossjem_pl.text import PassOrder, Ragged, leading_items, length_runs, plan_passes

__all__ = ["CrossJEM"]

_RUN_COST = 64
"""Tokens of padding that a further run of the encoder must spare on one CPU thread. With 6 layers of width 384 on
an AMD EPYC (Zen 4) 16 to 64 measured alike, and 100 or more slower."""


@register
class CrossJEM(NeuralRanker, Exportable):
    """CROSS-JEM (Paliwal et al., 2024): `[CLS] q [SEP] u_1..u_M`, u = the distinct item tokens, ascending.

    Lists that exceed `max_items_per_pass` or `max_union_tokens` are split into passes that run in one batch;
    no token is dropped. Texts longer than their own limits are cut and counted.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`; any Hugging Face encoder with [CLS] and
            [SEP].
        head: how token embeddings become scores; the paper's `LinearHead` by default.
        item_layers: encoder layers that are added and run inside each item after the joint ones, see `ItemLayers`
            (0: the paper's form).
        union_positions: "sequential", the encoder's own positions (the paper); "shared", one position for
            all union tokens, which makes the union a set; or "item", a token's first place in the items that
            hold it, counted from 1 as in `[CLS] item`, in the first segment. The last two let the union be
            longer than the position table.
        union_attention: "full", all tokens see each other (the paper), or "item": a union token sees the query
            and the tokens that it shares an item with, the query sees itself. Then other items change an item's
            score only through the tokens they share with it, and an encoder trained on single texts starts near
            what it knows.
        query_bias: with "item" attention, what is added to the attention logits of union tokens on the query's
            words. Below 0, training begins near an encoding of the items on their own.
        split_layers: how many of the encoder's own last layers run on each item's own copies of its tokens, see
            `SplitLayers` (0: the paper's form).
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        max_items_per_pass: N of the paper.
        max_union_tokens: L_u of the paper.
        pass_order: how items of a split list are put into passes, see `plan_passes`.
        options: how the encoder is loaded, see `EncoderOptions`.

    Raises:
        ValueError: on limits that contradict each other or the encoder's number of positions, for an unknown
            `union_positions`, `union_attention` or `pass_order`, for item layers together with split layers, and
            for "item" attention with an encoder that has windows of attention of its own.
    """

    name = "crossjem"

    def __init__(
        self,
        encoder: str,
        head: ScoringHead | None = None,
        item_layers: int = 0,
        union_positions: UnionPositions = "sequential",
        union_attention: UnionAttention = "full",
        query_bias: float = 0.0,
        split_layers: int = 0,
        max_query_tokens: int = 64,
        max_item_tokens: int = 32,
        max_items_per_pass: int = 100,
        max_union_tokens: int = 262,
        pass_order: PassOrder = "sorted",
        **options: Unpack[EncoderOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        head = head or LinearHead()
        init_args["head"] = {"class": type(head).__name__, "init_args": head.init_args}
        super().__init__(init_args, encoder, max_query_tokens, max_item_tokens)
        self.encoder = load_encoder(encoder, options)
        if getattr(self.encoder, "pooler", None) is not None:
            # [CLS] is not pooled; a pooler would only be dead weight
            self.encoder.register_module("pooler", None)
        self.union_positions = union_positions
        self.union_attention, self.query_bias = union_attention, query_bias
        self.max_items_per_pass = max_items_per_pass
        self.max_union_tokens = max_union_tokens
        self.pass_order = pass_order
        self._check_limits()
        width = int(self.encoder_config.hidden_size)
        self.head = head
        self.head.build(width)
        if item_layers and split_layers:
            raise ValueError(f"item_layers={item_layers} and split_layers={split_layers}: give one of them")
        self.item_layers = ItemLayers(self.encoder, item_layers, max_item_tokens) if item_layers else None
        self.split_layers = SplitLayers(self.encoder, split_layers) if split_layers else None

    @property
    def encoder_config(self) -> PretrainedConfig:
        return self.encoder.config  # type: ignore[return-value]

    def encoders(self) -> list[nn.Module]:
        return [m for m in (self.encoder, self.item_layers, self.split_layers) if m is not None]

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        head = init_args["head"]
        head_class = getattr(heads, head["class"], None)
        if not (isinstance(head_class, type) and issubclass(head_class, ScoringHead)):
            raise ValueError(
                f"{folder}: unknown scoring head {head['class']!r}; the package's are in rankers/heads.py"
            )
        return super().from_folder(folder, {**init_args, "head": head_class(**head["init_args"])})

    @property
    def union_limit(self) -> int | None:
        """The largest `max_union_tokens` that the encoder's positions allow; None if they set no limit."""
        config = self.encoder_config
        available = getattr(config, "max_position_embeddings", None)
        if available is None or self.union_positions != "sequential":
            return None
        return int(available) - first_position(config) - self.max_query_tokens - 2

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
        other._check_limits()
        return other

    def one_pass_items(self, ranking_list: RankingList) -> int:
        items = self.encode_items([ranking_list]).tokens
        return leading_items(items, self.max_items_per_pass, self.max_union_tokens)

    def collate(self, lists: Sequence[RankingList]) -> JointBatch:
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        item_pass, list_of_pass = self._plan(items.tokens, np.array([len(one) for one in lists]))
        return joint_batch(
            item_mask(lists),
            queries,
            items,
            item_pass,
            list_of_pass,
            self.tokenizer.hf,
            self.union_positions,
            self.union_attention,
            context=self.split_layers is not None,
        )

    def forward(self, batch: JointBatch) -> Tensor:
        tokens = self._tokens(batch)
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            scores = self.head(tokens)
        return self.tensor_scores(batch, [scores])

    def tensor_part(self) -> TensorPart:
        axes = self._axes()
        after = self.item_layers or self.split_layers
        return joint_part(self.encoder, self.head, after, axes, self.max_item_tokens, self.query_bias)

    def tensor_inputs(self, batch: JointBatch) -> list[dict[str, Tensor]]:
        """One run: all passes at once, the pools as padded rows; see `PaddedTokens`."""
        items = len(batch.item_pass)
        place = place_in_segment(batch.query_pass, len(batch.sep_token))
        query = pack(batch.query_pass, place, len(batch.sep_token))
        query_token, sep_token, _ = batch.context_rows()
        inputs: dict[str, Tensor | None] = {
            "input_ids": batch.input_ids,
            "attention_mask": self._attention(batch),
            "segment_ids": batch.segment_ids,
            "position_ids": batch.position_ids,
            "query_rows": query_token[query.rows],
            "query_mask": query.mask,
            "sep_token": sep_token,
            "item_pass": batch.item_pass,
            "context_token": batch.context_token,
            "context_mask": batch.context_mask,
        }
        if self.item_layers is None and self.split_layers is None:
            own = pack(batch.pair_item, place_in_segment(batch.pair_item, items), items)
            rows, position = batch.pair_token[own.rows], batch.pair_position
        else:  # the output of the layers inside the items is read, not the joint encoding
            own = pack(batch.own_item, batch.own_position, items)
            rows, position = own.rows, batch.own_position
            inputs |= {
                "own_token": batch.own_token,
                "own_position": batch.own_position,
                "own_flat": own.flat,
            }
        inputs |= {"item_rows": rows, "item_mask": own.mask, "item_positions": position[own.rows]}
        return [{name: value for name in self._axes() if (value := inputs[name]) is not None}]

    def tensor_scores(self, batch: JointBatch, outputs: Sequence[Tensor]) -> Tensor:
        return into_slots(outputs, batch.item_slot, batch.item_mask)

    @torch.no_grad()
    def explain(self, ranking_list: RankingList) -> list[Explanation]:
        batch = self.collate([ranking_list]).to(next(self.encoder.parameters()).device)
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            tokens = self._tokens(batch)
            scores = self.head(tokens)
            parts = self.head.contributions(tokens)
        pieces = self.tokenizer.hf.convert_ids_to_tokens(batch.input_ids.flatten().tolist())
        apart = self.item_layers is not None or self.split_layers is not None
        joint = batch.own_token if apart else tokens.pair_token
        special = set(tokens.cls_token.tolist()) | set(tokens.sep_token.tolist())
        if batch.context_token is not None:  # the context has rows of its own: back to the passes'
            parts.context_token = batch.context_token.flatten()[parts.context_token]
            special = set(batch.context_token[:, 0].tolist()) | set(batch.sep_token.tolist())
        found: list[list[TokenContribution]] = [[] for _ in ranking_list.items]
        for item, token, value in zip(
            tokens.pair_item.tolist(), joint.tolist(), parts.pair.tolist(), strict=True
        ):
            found[item].append(TokenContribution(pieces[token], "item", value))
        for item, token, value in zip(
            parts.context_item.tolist(), parts.context_token.tolist(), parts.context.tolist(), strict=True
        ):
            found[item].append(
                TokenContribution(pieces[token], "special" if token in special else "query", value)
            )
        bias = (TokenContribution("", "bias", parts.constant),) if parts.constant else ()
        return [
            Explanation(text, score, (*own, *bias))
            for text, score, own in zip(ranking_list.items, scores.tolist(), found, strict=True)
        ]

    def _tokens(self, batch: JointBatch) -> JointTokens:
        hidden = self._encode_passes(batch)
        passes, width, size = hidden.shape
        joint = hidden.reshape(passes * width, size)
        pair_token, pair_item, pair_position = batch.pair_token, batch.pair_item, batch.pair_position
        embeddings = item_embeddings = joint.float()
        own = None
        if self.item_layers is not None:
            own = self.item_layers(
                joint, batch.own_token, batch.own_item, batch.own_position, len(batch.item_pass)
            )
        elif self.split_layers is not None:
            packing = pack(batch.own_item, batch.own_position, len(batch.item_pass))
            of_context = (batch.context_token, batch.context_mask)
            context, own = self.split_layers(
                joint, *of_context, batch.own_token, packing, batch.item_pass, self.query_bias
            )
            embeddings = context.float()
        if own is not None:
            item_embeddings = own.float()
            pair_token = torch.arange(len(batch.own_token), device=joint.device)
            pair_item, pair_position = batch.own_item, batch.own_position
        query_token, sep_token, row = batch.context_rows()
        return JointTokens(
            embeddings=embeddings,
            query_token=query_token,
            query_pass=batch.query_pass,
            cls_token=torch.arange(passes, device=joint.device) * row,
            sep_token=sep_token,
            item_pass=batch.item_pass,
            item_embeddings=item_embeddings,
            pair_token=pair_token,
            pair_item=pair_item,
            pair_position=pair_position,
        )

    def _encode_passes(self, batch: JointBatch) -> Tensor:
        """Last hidden state, [P, S, width]; what stands on padding is never read.

        For inference on a CPU, where padding costs as much as tokens, passes of unequal length are encoded in
        runs of similar length.
        """
        attention = self._attention(batch)
        if batch.input_ids.device.type == "cpu" and not torch.is_grad_enabled():
            lengths = batch.attention_mask.sum(1).numpy()
            cuts = length_runs(lengths, _RUN_COST * torch.get_num_threads())
            if len(cuts) > 1:
                runs = [(torch.from_numpy(c), int(lengths[c].max())) for c in cuts]
                return self._encode_runs(batch, attention, runs)
        return self._encode_rows(batch, attention, slice(None), batch.input_ids.shape[1])

    def _encode_runs(
        self, batch: JointBatch, attention: Tensor, runs: Sequence[tuple[Tensor, int]]
    ) -> Tensor:
        encoded = [self._encode_rows(batch, attention, rows, length) for rows, length in runs]
        hidden = encoded[0].new_zeros((*batch.input_ids.shape, encoded[0].shape[-1]))
        for (rows, length), own in zip(runs, encoded, strict=True):
            hidden[rows, :length] = own
        return hidden

    def _encode_rows(self, batch: JointBatch, attention: Tensor, rows: Tensor | slice, length: int) -> Tensor:
        position_ids = batch.position_ids
        seen = attention[rows, :length] if attention.ndim == 2 else attention[rows, None, :length, :length]
        return encode_tokens(
            self.encoder,
            batch.input_ids[rows, :length],
            seen,
            batch.segment_ids[rows, :length],
            None if position_ids is None else position_ids[rows, :length],
        )

    def _attention(self, batch: JointBatch) -> Tensor:
        """The padding mask, int64 [P, S], or what is added to the attention logits, float32 [P, S, S]."""
        if batch.neighbours is None:
            return batch.attention_mask
        return item_attention(batch.attention_mask, batch.sep_token, batch.neighbours, self.query_bias)

    def _axes(self) -> dict[str, tuple[str, ...]]:
        return joint_axes(
            self.encoder,
            own_positions=self.union_positions != "sequential",
            attention_table=self.union_attention == "item",
            own_tokens=self.item_layers is not None or self.split_layers is not None,
            context=self.split_layers is not None,
        )

    def _plan(self, items: Ragged, counts: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """The pass of every item over the whole batch, and the list of every pass."""
        item_pass = np.empty(len(items.lengths), dtype=np.int64)
        list_of_pass: list[int] = []
        begin = 0
        for i, count in enumerate(counts):
            own = items.slice(begin, begin + int(count))
            plan = plan_passes(own, self.max_items_per_pass, self.max_union_tokens, self.pass_order)
            item_pass[begin : begin + int(count)] = plan + len(list_of_pass)
            list_of_pass += [i] * (int(plan.max()) + 1)
            begin += int(count)
        return item_pass, list_of_pass

    def _check_limits(self) -> None:
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
        config = self.encoder_config
        windows = "sliding_attention" in (getattr(config, "layer_types", None) or ())
        if self.union_attention == "item" and (windows or _kernel(config) not in ("eager", "sdpa")):
            raise ValueError(
                f"union_attention='item' needs an encoder whose layers see the whole sequence, with eager or sdpa "
                f"attention; {config.model_type} with {_kernel(config)} attention is not one"
            )
        needed = self.max_query_tokens + 2
        if self.union_positions == "item":
            needed = max(needed, self.max_item_tokens + 1)
        else:
            needed += 1 if self.union_positions == "shared" else self.max_union_tokens
        first = first_position(config)
        available = getattr(config, "max_position_embeddings", needed + first) - first
        if needed > available:
            raise ValueError(
                f"max_query_tokens={self.max_query_tokens} + 2 + max_union_tokens={self.max_union_tokens} "
                f"need {needed} positions, the encoder has {available}; lower a limit or use "
                "union_positions='shared'"
            )


def _kernel(config: PretrainedConfig) -> str:
    return str(getattr(config, "_attn_implementation", None) or "eager")
