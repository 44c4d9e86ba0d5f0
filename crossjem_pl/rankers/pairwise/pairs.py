"""What rankers share that read every (query, item) pair as one sequence of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, item_mask
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import Ints

__all__ = ["PairRanker", "joined"]


class PairRanker(NeuralRanker):
    """A ranker whose `score_run` gets pairs of similar length: `input_ids` and `attention_mask` int64 [pairs, tokens].

    Args:
        init_args: the subclass's init arguments (see `Ranker`).
        encoder: where the tokenizer comes from.
        max_query_tokens: limit of a query.
        max_item_tokens: limit of an item.
        pairs_per_pass: pairs of a run; they are sorted by length first and padded on the right.

    Raises:
        ValueError: if a limit or `pairs_per_pass` is below 1.
    """

    independent = True

    def __init__(
        self,
        init_args: dict[str, Any],
        encoder: str,
        max_query_tokens: int,
        max_item_tokens: int,
        pairs_per_pass: int,
    ) -> None:
        super().__init__(init_args, encoder, max_query_tokens, max_item_tokens)
        if pairs_per_pass < 1:
            raise ValueError(f"pairs_per_pass must be at least 1, got {pairs_per_pass}")
        self.pairs_per_pass = pairs_per_pass

    @abstractmethod
    def pair_rows(self, queries: Ragged, items: Ragged) -> Ragged:
        """Token ids of each pair, from those of its query and its item."""

    def more_inputs(self, rows: Ragged, queries: Ragged) -> dict[str, Ints]:
        """Further inputs of a run, from its pairs and their queries."""
        return {}

    def collate(self, lists: Sequence[RankingList]) -> Batch:
        mask = item_mask(lists)
        queries, items = self.encode_queries(lists), self.encode_items(lists)
        query_rows = queries.tokens.take(np.repeat(np.arange(len(lists)), [len(one) for one in lists]))
        pairs = self.pair_rows(query_rows, items.tokens)
        order = np.argsort(pairs.lengths, kind="stable")
        pad, size = self.tokenizer.hf.pad_token_id or 0, self.pairs_per_pass
        runs = []
        for chosen in np.split(order, range(size, len(order), size)):
            rows = pairs.take(chosen)
            ids = rows.padded(pad)
            inside = (np.arange(ids.shape[1]) < rows.lengths[:, None]).astype(np.int64)
            more = self.more_inputs(rows, query_rows.take(chosen))
            run = {"input_ids": ids, "attention_mask": inside, **more}
            runs.append({name: torch.from_numpy(value) for name, value in run.items()})
        slots = torch.from_numpy(np.flatnonzero(mask.numpy().ravel())[order])
        return Batch(mask, items.truncated, queries.truncated, runs=runs, slots=slots)

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(("input_ids", "attention_mask"), ("pairs", "pair_tokens"))


def joined(*pieces: Ragged | Sequence[int]) -> Ragged:
    """Row i = the pieces' rows i, one after the other; a plain sequence of ids is the same in every row.

    Raises:
        ValueError: if no piece is `Ragged`, or they have unequal numbers of rows.
    """
    counts = {len(piece.lengths) for piece in pieces if isinstance(piece, Ragged)}
    if len(counts) != 1:
        raise ValueError(f"the pieces need one common number of rows, got {sorted(counts)}")
    rows = counts.pop()
    ragged = [
        piece
        if isinstance(piece, Ragged)
        else Ragged(np.tile(np.asarray(piece, dtype=np.int64), rows), np.full(rows, len(piece)))
        for piece in pieces
    ]
    lengths = np.sum([piece.lengths for piece in ragged], axis=0)
    values = np.empty(int(lengths.sum()), dtype=np.int64)
    start = np.cumsum(lengths) - lengths
    for piece in ragged:
        values[start[piece.row_of] + piece.position_of] = piece.values
        start = start + piece.lengths
    return Ragged(values, lengths)
