"""Set-Encoder: a cross-encoder whose sequences see each other through one interaction token per item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, init_arguments, item_mask, register
from crossjem_pl.rankers.encoders import EncoderOptions
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.rankers.pairwise.context_attention import Groups, attend_with_context, group
from crossjem_pl.rankers.pairwise.packed_attention import pack
from crossjem_pl.rankers.pairwise.packed_encoder import PackedEncoder, heads_last
from crossjem_pl.rankers.pairwise.sequences import joined
from crossjem_pl.rankers.precision import linear_float32

__all__ = ["SetBatch", "SetEncoder"]

_ATTENTION = "crossjem_set"


class _Layout(NamedTuple):
    """Where the sequences lie and which interaction tokens each of them sees.

    Args:
        pairs: one sequence per item.
        interaction: int64 [lists, max_items], flat position of each item's interaction token, 0 on padding.
        others: bool [I, max_items], True on the list's other items.
    """

    pairs: Groups
    interaction: Tensor
    others: Tensor


@dataclass
class SetBatch(Batch):
    """One packed row of T tokens: `[CLS] query [SEP] item [SEP]` of every item, list after list.

    Args:
        input_ids, segment_ids, position_ids: int64 [T].
        item_index: int64 [T], the item of each token.
        item_start: int64 [I], flat position of each item's [CLS].
        item_list, item_place: int64 [I], the list of each item and its place in it.
    """

    input_ids: Tensor
    segment_ids: Tensor
    position_ids: Tensor
    item_index: Tensor
    item_start: Tensor
    item_list: Tensor
    item_place: Tensor


@register
class SetEncoder(NeuralRanker):
    """Set-Encoder (Schlatt et al., ECIR 2025, arXiv 2404.06912): attention between items, in no order.

    Every pair `[CLS] q [SEP] item [SEP]` is a sequence with positions of its own. In each layer its tokens
    attend to the sequence and to the interaction tokens of the list's other items:

        h_j = Attention(x_j; [x_j, {[CLS]_k : k != j}])   with one softmax over both parts; f_j = <w, [CLS]_j>
        + b.

    Interaction tokens all stand at position 0, so the others are a set: permuting the items permutes the
    scores, exactly. A score depends on which items share the list. As in the authors' default the [CLS] token
    is the interaction token. Cost: that of a pointwise cross-encoder, plus N keys for every token of a list
    of N items.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`; BERT, DistilBERT, ELECTRA, RoBERTa and their
            kin.
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        options: how the encoder is loaded, see `EncoderOptions`; `attn_implementation` must stay unset.

    Raises:
        ValueError: on an encoder of another family, or limits beyond its positions.
    """

    name = "setencoder"

    def __init__(
        self,
        encoder: str,
        max_query_tokens: int = 64,
        max_item_tokens: int = 32,
        **options: Unpack[EncoderOptions],
    ) -> None:
        super().__init__(init_arguments(locals(), options), encoder, max_query_tokens, max_item_tokens)
        self.encoder = PackedEncoder(encoder, options, _ATTENTION)
        needed = max_query_tokens + max_item_tokens + 3
        if needed > self.encoder.positions:
            raise ValueError(
                f"max_query_tokens={max_query_tokens} + max_item_tokens={max_item_tokens} + 3 need {needed} "
                f"positions, the encoder has {self.encoder.positions}"
            )
        self.classifier = nn.Linear(int(self.encoder_config.hidden_size), 1)

    @property
    def encoder_config(self) -> PretrainedConfig:
        return self.encoder.config

    def encoders(self) -> list[nn.Module]:
        return [self.encoder]

    def collate(self, lists: Sequence[RankingList]) -> SetBatch:
        mask = item_mask(lists)
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        counts = np.array([len(one) for one in lists])
        item_list = np.repeat(np.arange(len(lists)), counts)
        cls, sep = self.tokenizer.hf.cls_token_id, self.tokenizer.hf.sep_token_id
        rows = joined([cls], queries.tokens.take(item_list), [sep], items.tokens, [sep])
        position = rows.position_of
        item_segment = position >= (queries.tokens.lengths[item_list] + 2)[rows.row_of]
        return SetBatch(
            item_mask=mask,
            truncated_items=items.truncated,
            truncated_queries=queries.truncated,
            input_ids=torch.from_numpy(rows.values),
            segment_ids=torch.from_numpy(item_segment.astype(np.int64)),
            position_ids=torch.from_numpy(position),
            item_index=torch.from_numpy(rows.row_of),
            item_start=torch.from_numpy(rows.starts),
            item_list=torch.from_numpy(item_list),
            item_place=torch.from_numpy(np.arange(len(item_list)) - (np.cumsum(counts) - counts)[item_list]),
        )

    def forward(self, batch: SetBatch) -> Tensor:
        place = (batch.item_list, batch.item_place)
        interaction = torch.zeros_like(batch.item_mask, dtype=torch.long).index_put(place, batch.item_start)
        others = batch.item_mask[batch.item_list]
        column = torch.arange(others.shape[1], device=others.device)
        others = others & (column[None, :] != batch.item_place[:, None])
        pairs = pack(batch.item_index, batch.position_ids, len(batch.item_start))
        layout = _Layout(group(pairs, batch.item_list), interaction, others)
        hidden = self.encoder(batch.input_ids, batch.segment_ids, batch.position_ids, layout=layout)
        scores = linear_float32(self.classifier, hidden[batch.item_start])[:, 0]
        return torch.zeros_like(batch.item_mask, dtype=torch.float32).index_put(place, scores)


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
    out = attend_with_context(
        q,
        k,
        v,
        layout.pairs,
        k[layout.interaction],
        v[layout.interaction],
        layout.others,
        scaling=scaling,
        dropout=dropout,
    )
    return out[None], None


AttentionInterface.register(_ATTENTION, _attention)
