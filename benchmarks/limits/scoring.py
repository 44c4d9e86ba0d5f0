"""Scores of many lists, with the time of each, and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.measuring.clock import milliseconds
from crossjem_pl.evaluation.metrics import compute, tie_order
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList

__all__ = ["METRICS", "Scored", "per_query", "score_in_batches", "score_in_turn"]

METRICS = ("RR@10", "AP@10")


@dataclass
class Scored:
    """A model's scores of lists.

    Args:
        scores: float32 [items] for each list.
        milliseconds: of each list.
    """

    scores: list[Tensor] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)

    def add(self, reranker: Reranker, one: RankingList) -> None:
        """Scores one more list."""

        def score() -> None:
            self.scores += reranker.score([one])

        self.milliseconds.append(milliseconds(score, reranker.device))


def score_in_turn(
    rerankers: Mapping[str, Reranker], lists: Sequence[RankingList], advance: Callable[[int], object]
) -> dict[str, Scored]:
    """Every model's scores of every list, one list at a time, the models taking turns on it.

    Each list begins with another model, so a machine whose speed drifts slows all of them alike.

    Args:
        rerankers: name -> model.
        lists: what they score.
        advance: told the number of items after each list of each model.
    """
    found = {name: Scored() for name in rerankers}
    names = list(rerankers)
    for number, one in enumerate(lists):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            found[name].add(rerankers[name], one)
            advance(len(one))
    return found


def score_in_batches(
    reranker: Reranker, lists: Sequence[RankingList], advance: Callable[[int], object]
) -> list[Tensor]:
    """Scores of all lists, `reranker.batch_size` of them at a time; float32 [items] for each.

    Args:
        reranker: the model.
        lists: what it scores.
        advance: told the number of items after each batch.
    """
    scores: list[Tensor] = []
    for start in range(0, len(lists), reranker.batch_size):
        batch = lists[start : start + reranker.batch_size]
        scores += reranker.score(batch)
        advance(sum(map(len, batch)))
    return scores


def per_query(lists: Sequence[RankingList], scores: Sequence[Tensor]) -> pd.DataFrame:
    """`METRICS` of every list: index query id, one float64 column each.

    Equal scores are ranked by item id, trec_eval's rule; a list without relevant items has 0.

    Raises:
        ValueError: if a list has no labels.
    """
    for one in lists:
        if one.labels is None:
            raise ValueError(f"list {one.query_id!r} has no labels")
    labels = [torch.tensor(one.labels, dtype=torch.float64) for one in lists]
    values = compute(
        METRICS,
        pad_sequence(list(scores), batch_first=True),
        pad_sequence(labels, batch_first=True),
        pad_sequence([torch.ones(len(one), dtype=torch.bool) for one in lists], batch_first=True),
        tie_order([one.item_ids for one in lists]),
    )
    index = pd.Index([one.query_id for one in lists], name="query_id")
    return pd.DataFrame({name: column.double().numpy() for name, column in values.items()}, index=index)
