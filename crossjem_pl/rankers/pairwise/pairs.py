"""What rankers share that read every (query, item) pair as one sequence of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Batch, item_mask, item_places, tensors
from crossjem_pl.rankers.neural import NeuralRanker, RankerOptions, distinct_in
from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import Ints

__all__ = ["PairOptions", "PairRanker"]


class PairOptions(RankerOptions, total=False):
    """What rankers of pairs take as keyword arguments, see `RankerOptions` too.

    Args:
        pairs_per_pass: pairs that go through the network together; they are sorted by length first. 32 if not
            given, 16 for `RankingGPT`.
    """

    pairs_per_pass: int


class PairRanker(NeuralRanker):
    """A ranker whose `score_run` gets pairs of similar length: `input_ids` and `attention_mask` int64 [pairs, tokens],
    padded on the right."""

    independent = True
    limits: ClassVar[dict[str, int]] = {**NeuralRanker.limits, "pairs_per_pass": 32}
    pairs_per_pass: int

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
        # the length tells where the query ends
        first, member = distinct_in(query_rows.lengths, pairs)
        by_length = np.argsort(pairs.lengths[first], kind="stable")
        order = first[by_length]
        runs = []
        for chosen in np.split(order, range(self.pairs_per_pass, len(order), self.pairs_per_pass)):
            rows = pairs.take(chosen)
            ids = rows.padded(self.tokenizer.hf.pad_token_id or 0)
            inside = (np.arange(ids.shape[1]) < rows.lengths[:, None]).astype(np.int64)
            more = self.more_inputs(rows, query_rows.take(chosen))
            runs.append(tensors({"input_ids": ids, "attention_mask": inside, **more}))
        places = item_places(mask, np.argsort(by_length)[member])
        return Batch(mask, items.truncated, queries.truncated, runs=runs, places=places)

    @property
    def run_axes(self) -> dict[str, tuple[str, ...]]:
        return dict.fromkeys(("input_ids", "attention_mask"), ("pairs", "pair_tokens"))
