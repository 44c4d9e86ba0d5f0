"""Shared-query cross-encoder: the query is encoded once per list, items attend to it and to themselves."""

from __future__ import annotations

from typing import Literal, Unpack, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import (
    Explanation,
    TokenContribution,
    check_choice,
    init_arguments,
    register,
)
from crossjem_pl.rankers.neural import RankerOptions, check_positions
from crossjem_pl.rankers.pairwise.packed import PACKED_AXES, PackedRanker, attention_plan
from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import Ints

__all__ = ["ItemPositions", "SharedQuery", "SharedQueryHead"]

SharedQueryHead = Literal["query", "linear"]
ItemPositions = Literal["continue", "restart"]


@register
class SharedQuery(PackedRanker):
    """Cross-encoder with asymmetric attention: query tokens see the query, item tokens the query and their
    item.

    In a cross-encoder the query need not attend to the item (Schlatt et al., arXiv 2312.17649; MICE, arXiv
    2602.16299). Then its states do not depend on the item, one encoding of it serves the whole list, and the
    cost of a layer is that of (query + sum of the items) tokens in place of (number of items x query + sum of
    items):

        h_q = Attention(q; [q]),    h_j = Attention(item_j; [q, item_j])   with one softmax over both parts.

    An item's score depends on the query and the item alone, as monoBERT's does. Both heads are sums over the
    item's tokens, which `explain` returns.

    Heads: "query", s * cos(mean of the item's states, mean of the query's), s learned ([CLS] and [SEP] are in
    neither mean); "linear", <w, mean of the item's states and its [SEP]> + b.

    Args:
        encoder: hub id, folder, or `packaged:all-MiniLM-L6-v2`; BERT, DistilBERT, ELECTRA, RoBERTa and their
            kin.
        head: see above.
        scale: where s of the query head starts.
        item_positions: "continue" numbers an item's tokens on from the query's [SEP], as a cross-encoder
            does; "restart" begins at 1, the place after [CLS], which makes items independent of the query's
            length.
        options: see `RankerOptions`; `attn_implementation` must stay unset.

    Raises:
        ValueError: on an unknown option, an encoder of another family, or limits beyond its positions.
    """

    name = "sharedquery"
    independent = True

    def __init__(
        self,
        encoder: str,
        head: SharedQueryHead = "query",
        scale: float = 10.0,
        item_positions: ItemPositions = "continue",
        **options: Unpack[RankerOptions],
    ) -> None:
        init_args = init_arguments(locals(), options)
        check_choice("head", head, get_args(SharedQueryHead))
        check_choice("item_positions", item_positions, get_args(ItemPositions))
        super().__init__(init_args, encoder, options)
        self.item_positions = item_positions
        query, item = self.max_query_tokens + 2, self.max_item_tokens + 1
        needed = max(query, (query if item_positions == "continue" else 1) + item)
        limits = f"max_query_tokens={self.max_query_tokens} and max_item_tokens={self.max_item_tokens}"
        check_positions(self.encoder_config, needed, limits)
        self.head = _Cosine(scale) if head == "query" else nn.Linear(int(self.encoder_config.hidden_size), 1)

    def score_run(
        self,
        tokens: Tensor,
        rows: Tensor,
        keys: Tensor,
        place: Tensor,
        query_tokens: Tensor,
        item_tokens: Tensor,
        item_list: Tensor,
    ) -> Tensor:
        """Scores of a run's items, float32 [items].

        Args:
            tokens, rows, keys, place: see `PackedEncoder`; `[CLS] query [SEP]` of every list, then `item [SEP]`
                of every item.
            query_tokens: int64 [lists, query words], places of the queries' words among the tokens; -1 on padding.
            item_tokens: int64 [items, item words], likewise of the items; with their [SEP] for the linear head.
            item_list: int64 [items], the list of each item.
        """
        hidden = self.encoder(tokens, rows, keys, place)
        values = self._token_values(hidden, query_tokens, item_tokens, item_list)
        return values.sum(1) + (self.head.bias.float() if isinstance(self.head, nn.Linear) else 0.0)

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        return {
            **PACKED_AXES,
            "query_tokens": ("lists", "query_words"),
            "item_tokens": ("items", "item_words"),
            "item_list": ("items",),
        }

    @torch.no_grad()
    def explain(self, ranking_list: RankingList) -> list[Explanation]:
        batch = self.collate([ranking_list]).to(next(self.parameters()).device)
        (run,) = batch.runs
        encoded = {name: run[name] for name in PACKED_AXES}
        rest = {name: value for name, value in run.items() if name not in PACKED_AXES}
        with torch.autocast(run["tokens"].device.type, enabled=False):
            values = self._token_values(self.encoder(**encoded), **rest)
            bias = float(self.head.bias) if isinstance(self.head, nn.Linear) else 0.0
        tokenizer, explained = self.tokenizer.hf, []
        for text, number in zip(ranking_list.items, batch.places[0].tolist(), strict=True):
            places, row = run["item_tokens"][number], values[number].tolist()
            ids = run["tokens"][0, places[places >= 0]].tolist()
            parts = [
                TokenContribution(piece, "special" if token == tokenizer.sep_token_id else "item", value)
                for token, piece, value in zip(ids, tokenizer.convert_ids_to_tokens(ids), row, strict=False)
            ]
            if bias:
                parts.append(TokenContribution("", "bias", bias))
            explained.append(Explanation(text, sum(row) + bias, tuple(parts)))
        return explained

    def run_inputs(self, queries: Ragged, items: Ragged, counts: Ints) -> dict[str, Ints]:
        lists = np.arange(len(counts))
        item_list = np.repeat(lists, counts)
        words = len(queries.values)
        begin = queries.lengths[item_list] if self.item_positions == "continue" else np.ones_like(item_list)
        tokens = [
            np.concatenate([queries.values, items.values]),
            np.repeat([0, 1], [words, len(items.values)]),
            np.concatenate([queries.position_of, begin[items.row_of] + items.position_of]),
        ]
        # a query sees itself alone: its context is the empty one behind the lists' own
        contexts = Ragged(np.arange(words), np.append(queries.lengths, 0))
        context_of = np.append(np.full(len(lists), len(lists)), item_list)
        end = int(isinstance(self.head, _Cosine))
        return {
            "tokens": np.stack(tokens),
            **attention_plan(np.append(queries.lengths, items.lengths), context_of, contexts),
            "query_tokens": _places(queries.starts + 1, queries.lengths - 2),
            "item_tokens": _places(words + items.starts, items.lengths - end),
            "item_list": item_list,
        }

    def _token_values(
        self, hidden: Tensor, query_tokens: Tensor, item_tokens: Tensor, item_list: Tensor
    ) -> Tensor:
        """What each item token adds to its item's score, float32 [items, item words]; 0 on padding."""
        with torch.autocast(hidden.device.type, enabled=False):
            hidden, inside = hidden.float(), item_tokens >= 0
            sizes = inside.sum(1, keepdim=True)
            if isinstance(self.head, nn.Linear):
                values = (hidden @ self.head.weight[0].float())[item_tokens.clamp(min=0)]
                return values * inside / sizes
            query = hidden[query_tokens.clamp(min=0)] * (query_tokens >= 0)[:, :, None]
            direction = F.normalize(query.sum(1), dim=-1)[item_list]
            states = hidden[item_tokens.clamp(min=0)] * inside[:, :, None]
            length = states.sum(1).norm(dim=-1).clamp(min=1e-12)
            return self.head.scale * torch.einsum("itd,id->it", states, direction) / length[:, None]


class _Cosine(nn.Module):
    """The scale of the query head."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(float(scale)))


def _places(starts: Ints, lengths: Ints) -> Ints:
    """int64 [rows, longest]: `lengths[i]` numbers from `starts[i]` on; -1 on padding."""
    column = np.arange(int(lengths.max()))
    return np.where(column < lengths[:, None], starts[:, None] + column, -1)
