"""Set-Encoder: a cross-encoder whose sequences see each other through one interaction token per item."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Unpack

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, init_arguments, item_mask, register
from crossjem_pl.rankers.encoders import EncoderOptions
from crossjem_pl.rankers.neural import NeuralRanker, check_positions
from crossjem_pl.rankers.pairwise.packed import PACKED_AXES, PackedEncoder, attention_plan, list_runs
from crossjem_pl.rankers.pairwise.pairs import joined
from crossjem_pl.rankers.precision import linear_float32
from crossjem_pl.text import Ragged

__all__ = ["SetEncoder"]


@register
class SetEncoder(NeuralRanker):
    """Set-Encoder (Schlatt et al., ECIR 2025, arXiv 2404.06912): attention between items, in no order.

    Every pair `[CLS] q [SEP] item [SEP]` is a sequence with positions of its own. In each layer its tokens
    attend to the sequence and to the interaction tokens of the list's other items:

        h_j = Attention(x_j; [x_j, {[CLS]_k : k != j}])   with one softmax over both parts;
        f_j = <w, [CLS]_j> + b.

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
        self.encoder = PackedEncoder(encoder, options)
        limits = f"max_query_tokens={max_query_tokens} + max_item_tokens={max_item_tokens} + 3"
        check_positions(self.encoder_config, max_query_tokens + max_item_tokens + 3, limits)
        self.classifier = nn.Linear(int(self.encoder_config.hidden_size), 1)

    @property
    def encoder_config(self) -> PretrainedConfig:
        return self.encoder.config

    def encoders(self) -> list[nn.Module]:
        return [self.encoder]

    def collate(self, lists: Sequence[RankingList]) -> Batch:
        mask = item_mask(lists)
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        counts = np.array([len(one) for one in lists])
        list_of_item = np.repeat(np.arange(len(lists)), counts)
        cls, sep = self.tokenizer.hf.cls_token_id, self.tokenizer.hf.sep_token_id
        query_rows = joined([cls], queries.tokens.take(list_of_item), [sep])
        rows = joined(query_rows, items.tokens, [sep])
        ends = np.cumsum(counts)
        runs = []
        for a, b in list_runs(np.add.reduceat(rows.lengths, ends - counts)):
            chosen = slice(int(ends[a] - counts[a]), int(ends[b - 1]))
            pairs = rows.slice(chosen.start, chosen.stop)
            in_item = pairs.position_of >= query_rows.lengths[chosen][pairs.row_of]
            interaction = Ragged(pairs.starts, counts[a:b])
            # keys are copied into every row, and a row's own tokens are compared with each other: this balances both
            row_tokens = max(32, 8 * isqrt(int(counts[a:b].max())))
            plan = attention_plan(
                pairs.lengths, list_of_item[chosen] - a, interaction, row_tokens, hide_first=True
            )
            tokens = np.stack([pairs.values, in_item, pairs.position_of])
            starts = torch.from_numpy(pairs.starts)
            runs.append({"tokens": torch.from_numpy(tokens), **plan, "item_start": starts})
        slots = torch.from_numpy(np.flatnonzero(mask.numpy().ravel()))
        return Batch(mask, items.truncated, queries.truncated, runs=runs, slots=slots)

    def score_run(
        self, tokens: Tensor, rows: Tensor, keys: Tensor, place: Tensor, item_start: Tensor
    ) -> Tensor:
        """Scores of a run's items, float32 [items].

        Args:
            tokens, rows, keys, place: see `PackedEncoder`; `[CLS] query [SEP] item [SEP]` of every item.
            item_start: int64 [items], the place of each item's [CLS] among the tokens.
        """
        hidden = self.encoder(tokens, rows, keys, place)
        return linear_float32(self.classifier, hidden[item_start])[:, 0]

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        return {**PACKED_AXES, "item_start": ("items",)}
