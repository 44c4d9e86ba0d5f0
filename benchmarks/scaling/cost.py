"""The cost that section 5.2 of the CROSS-JEM paper states, and the exponent of a measured one.

    joint:      (L_q + L_k N / C)^2 L        one pass over all items
    pointwise:  (L_q + L_k)^2 L N

L_q, L_k: tokens of the query and of an item; L: layers; N: items; C = L_k N / |union|, the compression. Both count the
square of a sequence's length, which is the attention. The matrices of a layer cost in proportion to the length; with
short sequences they are most of it (benchmarks/measuring/work.py has both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.text import token_union

__all__ = ["Exponent", "Tokens", "count_tokens", "fit_exponent", "joint_cost", "pointwise_cost"]


@dataclass(frozen=True)
class Tokens:
    """The numbers of the cost formula, of one list or averaged over several.

    Args:
        items: N.
        query: L_q.
        item: L_k, mean over the items.
        union: distinct tokens of all items.
    """

    items: int
    query: float
    item: float
    union: float

    @property
    def compression(self) -> float:
        """C = L_k N / |union|."""
        return self.item * self.items / self.union


@dataclass(frozen=True)
class Exponent:
    """The slope of log cost over log size.

    Args:
        value: by least squares.
        error: its standard error; None from two points, where it is not defined.
        points: how many sizes there were.
    """

    value: float
    error: float | None
    points: int

    def __str__(self) -> str:
        return f"{self.value:.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")


def count_tokens(ranker: NeuralRanker, lists: Sequence[RankingList]) -> Tokens:
    """Means over lists of one size, with the ranker's tokens and limits."""
    query, item, union = [], [], []
    for one in lists:
        tokens = ranker.encode_items([one]).tokens
        query.append(float(ranker.encode_queries([one]).tokens.lengths[0]))
        item.append(float(tokens.lengths.mean()))
        group = np.zeros(len(one), dtype=np.int64)
        union.append(float(token_union(tokens, group, 1).tokens.lengths[0]))
    return Tokens(len(lists[0]), float(np.mean(query)), float(np.mean(item)), float(np.mean(union)))


def joint_cost(tokens: Tokens, layers: int) -> float:
    """(L_q + L_k N / C)^2 L."""
    return (tokens.query + tokens.item * tokens.items / tokens.compression) ** 2 * layers


def pointwise_cost(tokens: Tokens, layers: int) -> float:
    """(L_q + L_k)^2 L N."""
    return (tokens.query + tokens.item) ** 2 * layers * tokens.items


def fit_exponent(sizes: Sequence[float], costs: Sequence[float]) -> Exponent:
    """k of cost = a size^k, by least squares on the logarithms.

    Raises:
        ValueError: for fewer than two different sizes, or numbers that are not above 0.
    """
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    if len(x) != len(y) or len(np.unique(x)) < 2 or (x <= 0).any() or (y <= 0).any():
        raise ValueError("an exponent needs at least two different sizes, and sizes and costs above 0")
    x, y = np.log(x), np.log(y)
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float((x - x.mean()) @ (y - y.mean())) / spread
    if len(x) < 3:
        return Exponent(slope, None, len(x))
    rest = y - y.mean() - slope * (x - x.mean())
    return Exponent(slope, float(np.sqrt(rest @ rest / (len(x) - 2) / spread)), len(x))
