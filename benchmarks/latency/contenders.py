"""What takes part in a measurement: something that ranks the items of lists and can be timed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from benchmarks.measuring.clock import milliseconds
from benchmarks.measuring.work import Work, ranker_work
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import BM25
from crossjem_pl.rankers.dual.towers import DecoupledRanker
from crossjem_pl.rankers.neural import NeuralRanker

__all__ = ["ById", "Contender", "InProcess", "OwnRanker"]


class Contender(ABC):
    """A ranker under measurement.

    Args:
        name: in the tables.
        precision: of its matrix products.
    """

    def __init__(self, name: str, precision: str = "float32") -> None:
        self.name, self.precision = name, precision

    def prepare(self, lists: Sequence[RankingList]) -> None:  # noqa: B027 - most need nothing
        """What is done ahead of the query in production and is not timed."""

    @abstractmethod
    def milliseconds(self, lists: Sequence[RankingList]) -> float:
        """How long it takes to rank the items of all lists, texts in to sorted items out."""

    def work(self, lists: Sequence[RankingList]) -> Work | None:
        """Operations and traffic of the model; None where they are not known."""
        return None

    def close(self) -> None:  # noqa: B027 - most start nothing
        """Ends what it has started."""


class InProcess(Contender):
    """A contender that runs here."""

    device: torch.device

    @abstractmethod
    def rank(self, lists: Sequence[RankingList]) -> object:
        """Ranks the items of all lists."""

    def milliseconds(self, lists: Sequence[RankingList]) -> float:
        return milliseconds(lambda: self.rank(lists), self.device)


class OwnRanker(InProcess):
    """One of this package's rankers behind `Reranker.rank`.

    Cold: its token cache is switched off, so every text is tokenised within the measured time. Warm: each list has
    been ranked before. Rankers that encode queries and items apart have their item vectors computed ahead, cold or
    warm, as the paper assumes; their item tokens are then in the cache, the query is not unless warm. BM25 has its
    statistics ahead.
    """

    def __init__(self, name: str, reranker: Reranker, warm: bool, precision: str = "float32") -> None:
        super().__init__(name, precision)
        self.reranker, self.warm = reranker, warm
        self.device = reranker.device
        ranker = reranker.ranker
        if not warm and isinstance(ranker, NeuralRanker) and not isinstance(ranker, DecoupledRanker):
            ranker.tokenizer.cache_size = 0

    def prepare(self, lists: Sequence[RankingList]) -> None:
        ranker = self.reranker.ranker
        if isinstance(ranker, DecoupledRanker):
            ranker.item_cache.clear()
            ranker.precompute_items(text for one in lists for text in one.items)
        if isinstance(ranker, BM25):
            ranker.index_items(text for one in lists for text in one.items)
        if self.warm:
            self.rank(lists)

    def rank(self, lists: Sequence[RankingList]) -> object:
        if len(lists) == 1:
            return self.reranker.rank(lists[0].query, lists[0].items)
        return self.reranker.rank_batch([one.query for one in lists], [one.items for one in lists])

    def work(self, lists: Sequence[RankingList]) -> Work | None:
        return ranker_work(self.reranker.ranker, lists)


class ById(OwnRanker):
    """The same by id: the items' token ids are in the reranker's store, the query is a text."""

    def rank(self, lists: Sequence[RankingList]) -> object:
        if len(lists) == 1:
            return self.reranker.rank(lists[0].query, lists[0].item_ids)
        return self.reranker.rank_batch([one.query for one in lists], [one.item_ids for one in lists])
