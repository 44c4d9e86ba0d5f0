"""Drawing N items of a list for one training step."""

from __future__ import annotations

import numpy as np

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker

__all__ = ["ItemSampler"]


class ItemSampler:
    """Draws the items that a training step sees; the draw is a pure function of (seed, epoch, list).

    One positive (label above 0), drawn at random, is always kept where the list has one; the others are drawn
    uniformly. If the drawn items do not fit one pass of the ranker, the last drawn are left out, so that no token
    of a drawn item is ever dropped. What the draw leaves out returns in other epochs.

    Args:
        n_items: how many items to draw; None keeps all that fit.
        seed: seed of the draws.
    """

    def __init__(self, n_items: int | None, seed: int) -> None:
        if n_items is not None and n_items < 2:
            raise ValueError(f"n_items must be at least 2, got {n_items}")
        self.n_items, self.seed = n_items, seed

    def draw(
        self, ranking_list: RankingList, ranker: Ranker, epoch: int, index: int
    ) -> tuple[RankingList, int]:
        """The list with the drawn items, and how many of the N did not fit one pass."""
        wanted = min(self.n_items or len(ranking_list), len(ranking_list))
        order = self._order(ranking_list, np.random.default_rng([self.seed, epoch, index]))[:wanted]
        drawn = ranking_list.select(order)
        fits = ranker.one_pass_items(drawn)
        return (drawn, 0) if fits == wanted else (drawn.select(range(fits)), wanted - fits)

    @staticmethod
    def _order(ranking_list: RankingList, random: np.random.Generator) -> list[int]:
        order = random.permutation(len(ranking_list)).tolist()
        labels = ranking_list.labels
        first = next((i for i in order if labels is not None and labels[i] > 0), None)
        if first is not None:
            order.remove(first)
            order.insert(0, first)
        return order
