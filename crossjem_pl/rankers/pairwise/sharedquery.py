"""Shared-query cross-encoder: the query is encoded once per list, items attend to it and to themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Unpack, get_args

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.attention import attend
from crossjem_pl.rankers.base import (
    Batch,
    Explanation,
    TokenContribution,
    init_arguments,
    item_mask,
    register,
)
from crossjem_pl.rankers.crossjem.heads import JointTokens, QueryHead
from crossjem_pl.rankers.crossjem.segments import segment_mean
from crossjem_pl.rankers.encoders import EncoderOptions
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.rankers.pairwise.context_attention import Groups, attend_with_context, group
from crossjem_pl.rankers.pairwise.packed_attention import Packing, pack
from crossjem_pl.rankers.pairwise.packed_encoder import PackedEncoder, heads_last
from crossjem_pl.rankers.pairwise.sequences import joined
from crossjem_pl.rankers.precision import linear_float32

__all__ = ["ItemPositions", "SharedQuery", "SharedQueryBatch", "SharedQueryHead"]

_ATTENTION = "crossjem_shared_query"

SharedQueryHead = Literal["query", "linear"]
ItemPositions = Literal["continue", "restart"]


class _Layout(NamedTuple):
    """Where the sequences lie: the queries' tokens first, then the items'.

    Args:
        queries: one sequence per list.
        items: one sequence per item; positions count from the first item token.
        item_list: int64 [items].
    """

    queries: Packing
    items: Groups
    item_list: Tensor


@dataclass
class SharedQueryBatch(Batch):
    """One packed row of T tokens: `[CLS] query [SEP]` of every list, then `item [SEP]` of every item.

    Args:
        input_ids, segment_ids, position_ids: int64 [T].
        query_list, query_position: int64 [query tokens], list of each and place in its sequence.
        item_index, item_position: int64 [item tokens], item of each and place in its sequence.
        item_list: int64 [I], the list of each item.
        item_slot: int64 [I], place of each item in the flattened [lists, max_items].
    """

    input_ids: Tensor
    segment_ids: Tensor
    position_ids: Tensor
    query_list: Tensor
    query_position: Tensor
    item_index: Tensor
    item_position: Tensor
    item_list: Tensor
    item_slot: Tensor


@register
class SharedQuery(NeuralRanker):
    """Cross-encoder with asymmetric attention: query tokens see the query, item tokens the query and their
    item.

    In a cross-encoder the query need not attend to the item (Schlatt et al., arXiv 2312.17649; MICE, arXiv
    2602.16299). Then its states do not depend on the item, one encoding of it serves the whole list, and the
    cost of a layer is that of (query + sum of the items) tokens in place of (number of items x query + sum of
    items):

        h_q = Attention(q; [q]),    h_j = Attention(item_j; [q, item_j])   with one softmax over both parts.

    An item's score depends on the query and the item alone, as monoBERT's does. Both heads are sums over the
    item's tokens, which `explain` returns.

    Heads: "query", s * cos(mean of the item's states, mean of the query's), s learned (`QueryHead`; [CLS] and
    [SEP] are in neither mean); "linear", <w, mean of the item's states and its [SEP]> + b.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`; BERT, DistilBERT, ELECTRA, RoBERTa and their
            kin.
        head: see above.
        scale: where s of the query head starts.
        item_positions: "continue" numbers an item's tokens on from the query's [SEP], as a cross-encoder
            does; "restart" begins at 1, the place after [CLS], which makes items independent of the query's
            length.
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        options: how the encoder is loaded, see `EncoderOptions`; `attn_implementation` must stay unset.

    Raises:
        ValueError: on an unknown option, an encoder of another family, or limits beyond its positions.
    """

    name = "sharedquery"

    def __init__(
        self,
        encoder: str,
        head: SharedQueryHead = "query",
        scale: float = 10.0,
        item_positions: ItemPositions = "continue",
        max_query_tokens: int = 64,
        max_item_tokens: int = 32,
        **options: Unpack[EncoderOptions],
    ) -> None:
        super().__init__(init_arguments(locals(), options), encoder, max_query_tokens, max_item_tokens)
        for field, value, choices in (
            ("head", head, get_args(SharedQueryHead)),
            ("item_positions", item_positions, get_args(ItemPositions)),
        ):
            if value not in choices:
                raise ValueError(f"{field} must be one of {', '.join(choices)}; got {value!r}")
        self.encoder = PackedEncoder(encoder, options, _ATTENTION)
        self.item_positions = item_positions
        self._check_positions()
        self.head: QueryHead | nn.Linear
        if head == "query":
            self.head = QueryHead(scale)
        else:
            self.head = nn.Linear(int(self.encoder_config.hidden_size), 1)

    @property
    def encoder_config(self) -> PretrainedConfig:
        return self.encoder.config

    def encoders(self) -> list[nn.Module]:
        return [self.encoder]

    def collate(self, lists: Sequence[RankingList]) -> SharedQueryBatch:
        mask = item_mask(lists)
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        tokenizer = self.tokenizer.hf
        query_rows = joined([tokenizer.cls_token_id], queries.tokens, [tokenizer.sep_token_id])
        item_rows = joined(items.tokens, [tokenizer.sep_token_id])
        item_list = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
        first = (
            query_rows.lengths[item_list] if self.item_positions == "continue" else np.ones_like(item_list)
        )
        positions = [query_rows.position_of, first[item_rows.row_of] + item_rows.position_of]
        in_item = np.repeat([0, 1], [len(query_rows.values), len(item_rows.values)])
        return SharedQueryBatch(
            item_mask=mask,
            truncated_items=items.truncated,
            truncated_queries=queries.truncated,
            input_ids=torch.from_numpy(np.concatenate([query_rows.values, item_rows.values])),
            segment_ids=torch.from_numpy(in_item),
            position_ids=torch.from_numpy(np.concatenate(positions)),
            query_list=torch.from_numpy(query_rows.row_of),
            query_position=torch.from_numpy(query_rows.position_of),
            item_index=torch.from_numpy(item_rows.row_of),
            item_position=torch.from_numpy(item_rows.position_of),
            item_list=torch.from_numpy(item_list),
            item_slot=torch.from_numpy(np.flatnonzero(mask.numpy().ravel())),
        )

    def forward(self, batch: SharedQueryBatch) -> Tensor:
        hidden = self._hidden(batch)
        with torch.autocast(hidden.device.type, enabled=False):
            scores = self._score(hidden.float(), batch)
        flat = torch.zeros(batch.item_mask.numel(), dtype=torch.float32, device=scores.device)
        return flat.index_copy(0, batch.item_slot, scores).view(batch.item_mask.shape)

    @torch.no_grad()
    def explain(self, ranking_list: RankingList) -> list[Explanation]:
        batch = self.collate([ranking_list]).to(next(self.parameters()).device)
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            hidden = self._hidden(batch).float()
            scores = self._score(hidden, batch).tolist()
            values, bias = self._contributions(hidden, batch)
        pieces = self.tokenizer.hf.convert_ids_to_tokens(batch.input_ids[len(batch.query_list) :].tolist())
        is_sep = (batch.item_position == _last(batch.item_index)).tolist()
        found: list[list[TokenContribution]] = [[] for _ in ranking_list.items]
        for item, piece, sep, value in zip(
            batch.item_index.tolist(), pieces, is_sep, values.tolist(), strict=True
        ):
            if not sep or value:
                found[item].append(TokenContribution(piece, "special" if sep else "item", value))
        rest = (TokenContribution("", "bias", bias),) if bias else ()
        return [
            Explanation(text, score, (*own, *rest))
            for text, score, own in zip(ranking_list.items, scores, found, strict=True)
        ]

    def _hidden(self, batch: SharedQueryBatch) -> Tensor:
        layout = _Layout(
            pack(batch.query_list, batch.query_position, len(batch.item_mask)),
            group(pack(batch.item_index, batch.item_position, len(batch.item_list)), batch.item_list),
            batch.item_list,
        )
        return self.encoder(batch.input_ids, batch.segment_ids, batch.position_ids, layout=layout)

    def _score(self, hidden: Tensor, batch: SharedQueryBatch) -> Tensor:
        """float32 [I]."""
        if isinstance(self.head, QueryHead):
            return self.head(_joint_tokens(hidden, batch))
        own = hidden[len(batch.query_list) :]
        return linear_float32(self.head, segment_mean(own, batch.item_index, len(batch.item_list)))[:, 0]

    def _contributions(self, hidden: Tensor, batch: SharedQueryBatch) -> tuple[Tensor, float]:
        """What each item token adds to its item's score, float32 [item tokens], and what all items get."""
        if isinstance(self.head, QueryHead):
            pair = self.head.contributions(_joint_tokens(hidden, batch)).pair
            return pair.new_zeros(len(batch.item_index)).index_copy(0, _item_words(batch), pair), 0.0
        sizes = torch.bincount(batch.item_index)[batch.item_index]
        return hidden[len(batch.query_list) :] @ self.head.weight[0].float() / sizes, float(self.head.bias)

    def _check_positions(self) -> None:
        start = self.max_query_tokens + 2 if self.item_positions == "continue" else 1
        needed = max(self.max_query_tokens + 2, start + self.max_item_tokens + 1)
        if needed > self.encoder.positions:
            raise ValueError(
                f"max_query_tokens={self.max_query_tokens} and max_item_tokens={self.max_item_tokens} need "
                f"{needed} positions, the encoder has {self.encoder.positions}; lower a limit or use "
                "item_positions='restart'"
            )


def _last(row: Tensor) -> Tensor:
    """The last place in the sequence of each token, from each token's sequence int64 [tokens]."""
    return torch.bincount(row)[row] - 1


def _item_words(batch: SharedQueryBatch) -> Tensor:
    """Which of the item tokens are word pieces, int64 [pieces]."""
    return torch.nonzero(batch.item_position < _last(batch.item_index))[:, 0]


def _joint_tokens(hidden: Tensor, batch: SharedQueryBatch) -> JointTokens:
    """What the query head reads: a list is a pass."""
    last = _last(batch.query_list)
    word = torch.nonzero((batch.query_position > 0) & (batch.query_position < last))[:, 0]
    own = _item_words(batch)
    return JointTokens(
        embeddings=hidden,
        query_token=word,
        query_pass=batch.query_list[word],
        cls_token=torch.nonzero(batch.query_position == 0)[:, 0],
        sep_token=torch.nonzero(batch.query_position == last)[:, 0],
        item_pass=batch.item_list,
        item_embeddings=hidden,
        pair_token=len(batch.query_list) + own,
        pair_item=batch.item_index[own],
        pair_position=batch.item_position[own],
    )


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
    """Attention of the packed row; query, key, value [1, heads, T, head width]."""
    q, k, v = heads_last(query, key, value)
    queries, split = layout.queries, len(layout.queries.flat)
    query_rows, query_key, query_value = (states[:split][queries.rows] for states in (q, k, v))
    of_queries = attend(
        query_rows, query_key, query_value, queries.mask, scaling=scaling, dropout=dropout
    ).flatten(0, 1)[queries.flat]
    of_items = attend_with_context(
        q[split:],
        k[split:],
        v[split:],
        layout.items,
        query_key,
        query_value,
        queries.mask[layout.item_list],
        scaling=scaling,
        dropout=dropout,
    )
    return torch.cat([of_queries, of_items])[None], None


AttentionInterface.register(_ATTENTION, _attention)
