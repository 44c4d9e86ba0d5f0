"""Set-Encoder: a cross-encoder whose sequences see each other through one interaction token per item."""

from __future__ import annotations

from math import isqrt
from typing import Unpack

import numpy as np
from torch import Tensor, nn

from crossjem_pl.rankers.base import init_arguments, register
from crossjem_pl.rankers.neural import RankerOptions, check_positions, linear_float32
from crossjem_pl.rankers.pairwise.packed import PACKED_AXES, PackedRanker, attention_plan
from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import Ints, side_by_side

__all__ = ["SetEncoder"]


@register
class SetEncoder(PackedRanker):
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
        options: see `RankerOptions`; `attn_implementation` must stay unset.

    Raises:
        ValueError: on an encoder of another family, or limits beyond its positions.
    """

    name = "setencoder"

    def __init__(self, encoder: str, **options: Unpack[RankerOptions]) -> None:
        super().__init__(init_arguments(locals(), options), encoder, options)
        query, item = self.max_query_tokens, self.max_item_tokens
        limits = f"max_query_tokens={query} + max_item_tokens={item} + 3"
        check_positions(self.encoder_config, query + item + 3, limits)
        self.classifier = nn.Linear(int(self.encoder_config.hidden_size), 1)

    def run_inputs(self, queries: Ragged, items: Ragged, counts: Ints) -> dict[str, Ints]:
        list_of_item = np.repeat(np.arange(len(counts)), counts)
        pairs = side_by_side(queries.take(list_of_item), items)
        in_item = pairs.position_of >= queries.lengths[list_of_item][pairs.row_of]
        # keys are copied into every row, and a row's own tokens are compared with each other: this balances both
        row_tokens = max(32, 8 * isqrt(int(counts.max())))
        interaction = Ragged(pairs.starts, counts)
        plan = attention_plan(pairs.lengths, list_of_item, interaction, row_tokens, hide_first=True)
        tokens = np.stack([pairs.values, in_item, pairs.position_of])
        return {"tokens": tokens, **plan, "item_start": pairs.starts}

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
