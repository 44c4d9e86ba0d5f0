"""An encoder over token sequences that lie end to end: what each token sees is planned ahead, in padded rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, item_mask, item_places, tensors
from crossjem_pl.rankers.bert import HIDDEN, attend
from crossjem_pl.rankers.encoders import (
    PLAIN_FAMILIES,
    EncoderOptions,
    first_position,
    has_segments,
    load_encoder,
)
from crossjem_pl.rankers.neural import NeuralRanker, RankerOptions, distinct_in, list_runs
from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import Ints, side_by_side

__all__ = ["PACKED_AXES", "PackedEncoder", "PackedRanker", "attention_plan"]

_NAME = "crossjem_planned"
_EVERYONE, _NOBODY, _PADDING = -1, -2, -3

PACKED_AXES = {
    "tokens": ("3", "tokens"),
    "rows": ("2", "rows", "row_tokens"),
    "keys": ("2", "rows", "row_keys"),
    "place": ("tokens",),
}
"""The inputs of `PackedEncoder`, all int64, and the names of their axes."""


class PackedRanker(NeuralRanker):
    """A ranker whose `score_run` encodes all sequences of some lists end to end; see `PackedEncoder`."""

    encoder: PackedEncoder

    def __init__(self, init_args: dict[str, Any], encoder: str, options: RankerOptions) -> None:
        super().__init__(init_args, encoder, options)
        self.encoder = PackedEncoder(encoder, options)

    @abstractmethod
    def run_inputs(self, queries: Ragged, items: Ragged, counts: Ints) -> dict[str, Ints]:
        """Inputs of `score_run` for some lists: from rows `[CLS] query [SEP]`, rows `item [SEP]`, items by list."""

    def collate(self, lists: Sequence[RankingList]) -> Batch:
        mask = item_mask(lists)
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        cls, sep = self.tokenizer.hf.cls_token_id, self.tokenizer.hf.sep_token_id
        query_rows, item_rows = side_by_side([cls], queries.tokens, [sep]), side_by_side(items.tokens, [sep])
        counts = np.array([len(one) for one in lists])
        member = np.arange(len(item_rows.lengths))
        if self.independent:
            list_of_item = np.repeat(np.arange(len(lists)), counts)
            first, member = distinct_in(list_of_item, item_rows)
            item_rows, counts = item_rows.take(first), np.bincount(list_of_item[first])
        begin = np.cumsum(counts) - counts
        tokens = counts * query_rows.lengths + np.add.reduceat(item_rows.lengths, begin)
        runs = []
        for a, b in list_runs(tokens):
            chosen = item_rows.slice(int(begin[a]), int(begin[b - 1] + counts[b - 1]))
            runs.append(tensors(self.run_inputs(query_rows.slice(a, b), chosen, counts[a:b])))
        places = item_places(mask, member)
        return Batch(mask, items.truncated, queries.truncated, runs=runs, places=places)


def attention_plan(
    lengths: Ints, context_of: Ints, contexts: Ragged, row_tokens: int = 32, hide_first: bool = False
) -> dict[str, Ints]:
    """Plans softmax(q [context, sequence]^T) [context, sequence] for every token of every sequence.

    Sequences with one context share a row of about `row_tokens` tokens, whose keys are the context and the row
    itself: one kernel with few, small matrices, and no copy of the context for every sequence. Tokens see the
    context and their own sequence.

    Args:
        lengths: tokens of each sequence; the sequences lie end to end.
        context_of: the context of each sequence.
        contexts: positions of the tokens of each context; a context may be empty.
        row_tokens: how many tokens a row has, about; a sequence is never cut.
        hide_first: whether a sequence's first token is no key of its own, because the context holds it.

    Returns:
        `rows` [2, rows, row tokens]: the tokens' positions and their sequences; `keys` [2, rows, row keys]: the
        keys' positions and the sequences that see them, -1 for all and -2 for none; `place` [tokens]: where
        each token stands in the rows seen as one flat array.
    """
    order = np.argsort(context_of, kind="stable")
    ordered, context = lengths[order], context_of[order]
    start = np.cumsum(ordered) - ordered
    new_row = (np.diff(context, prepend=-1) != 0) | (np.diff(start // row_tokens, prepend=-1) != 0)
    row_of, column_of = np.empty_like(order), np.empty_like(order)
    row_of[order] = np.cumsum(new_row) - 1
    column_of[order] = start - start[new_row][row_of[order]]
    tokens = Ragged(np.arange(int(lengths.sum())), lengths)
    column = column_of[tokens.row_of] + tokens.position_of
    rows = np.zeros((2, int(new_row.sum()), int(column.max()) + 1), dtype=np.int64)
    rows[1] = _PADDING
    place = row_of[tokens.row_of] * rows.shape[2] + column
    rows.reshape(2, -1)[:, place] = tokens.values, tokens.row_of
    own = rows.copy()
    own[1][own[1] == _PADDING] = _NOBODY
    if hide_first:
        own[1].flat[place[tokens.starts]] = _NOBODY
    inside = np.arange(contexts.lengths.max(initial=0)) < contexts.lengths[:, None]
    shared = np.stack([contexts.padded(0), np.where(inside, _EVERYONE, _NOBODY)])[:, context[new_row]]
    return {"rows": rows, "keys": np.concatenate([shared, own], axis=2), "place": place}


class _Layout(NamedTuple):
    """A plan whose sequences have become `bias`, float32 [rows, row tokens, row keys], added to the logits."""

    rows: Tensor
    keys: Tensor
    bias: Tensor
    place: Tensor


class PackedEncoder(nn.Module):
    """Embeddings and layers of an encoder over one row of tokens without padding, with planned attention.

    Args:
        name: hub id, folder, or `packaged:all-MiniLM-L6-v2`.
        options: how the encoder is loaded, see `EncoderOptions`.

    Raises:
        ValueError: if the encoder is not of a family whose layers take only hidden states, or if
            `attn_implementation` is given.
    """

    def __init__(self, name: str, options: EncoderOptions) -> None:
        super().__init__()
        if options.get("attn_implementation") is not None:
            raise ValueError("attn_implementation is given, but this ranker brings its own attention")
        self.model = load_encoder(name, options, AutoModel)
        family = self.model.config.model_type  # type: ignore[union-attr]
        if family not in PLAIN_FAMILIES:
            raise ValueError(
                f"{name!r} is of the family {family!r}; attention over packed lists is there for "
                f"{', '.join(PLAIN_FAMILIES)} (MiniLM and other BERT-like encoders included)"
            )
        from transformers import AttentionInterface  # loads all of transformers' modeling

        AttentionInterface.register(_NAME, _attention)
        self.model.set_attn_implementation(_NAME)  # type: ignore[operator]
        self._segments = has_segments(self.model)
        self._first_position = first_position(self.config)

    @property
    def config(self) -> Any:
        return self.model.config

    def forward(self, tokens: Tensor, rows: Tensor, keys: Tensor, place: Tensor) -> Tensor:
        """Last hidden state, float [tokens, width].

        Args:
            tokens: int64 [3, tokens]: ids, segments (read by encoders that have them) and positions.
            rows, keys, place: see `attention_plan`.
        """
        row, key = rows[1][:, :, None], keys[1][:, None, :]
        bias = torch.where((row == key) | (key == _EVERYONE), 0.0, HIDDEN)
        layout = _Layout(rows[0], keys[0], bias, place)
        ids, segments, positions = tokens[:, None]
        inputs = {"input_ids": ids, "position_ids": positions + self._first_position}
        if self._segments:
            inputs["token_type_ids"] = segments
        hidden: Tensor = self.model.embeddings(**inputs)  # type: ignore[operator]
        project = getattr(self.model, "embeddings_project", None)
        if project is not None:
            hidden = project(hidden)
        stack = self.model.transformer if self.config.model_type == "distilbert" else self.model.encoder
        layers: list[nn.Module] = list(stack.layer)  # type: ignore[union-attr, arg-type]
        for layer in layers:
            hidden = layer(hidden, attention_mask=None, layout=layout)
        return hidden[0]


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
    """What transformers calls; query, key and value [1, heads, tokens, head width]."""
    q, k, v = (states[0].transpose(0, 1) for states in (query, key, value))
    rows, keys = layout.rows, layout.keys
    out = attend(q[rows], k[keys], v[keys], layout.bias, scaling=scaling, dropout=dropout)
    return out.flatten(0, 1)[layout.place][None], None
