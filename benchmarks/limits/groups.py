"""What lists are told apart by, from their texts and token ids alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from benchmarks.limits.extended import folded
from crossjem_pl.evaluation.breakdown import Breakdown, Bucket
from crossjem_pl.evaluation.significance import bootstrap_interval
from crossjem_pl.text import Ragged

__all__ = [
    "PIECES",
    "by_label",
    "equal_scores",
    "pieces_label",
    "pieces_per_word",
    "same_set_pairs",
    "union_length",
]

PIECES: tuple[tuple[float, str], ...] = (
    (1.0, "1.00"),
    (1.25, "above 1.00, up to 1.25"),
    (1.5, "above 1.25, up to 1.50"),
    (float("inf"), "above 1.50"),
)
"""Upper ends, which belong to their bucket, and names of the buckets of word pieces a word."""

TIE = 1e-6
"""Scores that differ by less are equal."""


def union_length(items: Ragged) -> int:
    """Distinct tokens of all items of a list, one row of `items` each."""
    return len(np.unique(items.values))


def pieces_per_word(pieces: Sequence[int], words: Sequence[int]) -> float | None:
    """Word pieces over words of some texts together; None where no text has a word.

    Raises:
        ValueError: if there are not as many numbers of pieces as of words.
    """
    if len(pieces) != len(words):
        raise ValueError(f"{len(pieces)} numbers of pieces for {len(words)} numbers of words")
    return sum(pieces) / sum(words) if sum(words) else None


def pieces_label(ratio: float) -> str:
    """The bucket of `PIECES` that a number of word pieces a word is in."""
    return next(label for end, label in PIECES if ratio <= end)


def same_set_pairs(texts: Sequence[str], tokens: Ragged) -> list[tuple[int, int]]:
    """Pairs of positions, the smaller first, of items with different texts and one set of tokens.

    Texts are compared with `folded`.

    Args:
        texts: of the items of one list.
        tokens: of the same items, one row each.

    Raises:
        ValueError: if there are not as many rows as texts.
    """
    if len(texts) != len(tokens.lengths):
        raise ValueError(f"{len(tokens.lengths)} rows of tokens for {len(texts)} texts")
    ends = np.cumsum(tokens.lengths)[:-1]
    alike: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.split(tokens.values, ends)):
        alike.setdefault(np.unique(row).tobytes(), []).append(i)
    return sorted(
        (i, j)
        for group in alike.values()
        for i, j in combinations(group, 2)
        if folded(texts[i]) != folded(texts[j])
    )


def equal_scores(scores: Sequence[float], pairs: Sequence[tuple[int, int]]) -> int:
    """How many of the pairs of positions have scores that differ by less than `TIE`."""
    return sum(abs(scores[i] - scores[j]) < TIE for i, j in pairs)


def by_label(
    property_name: str,
    labels: Mapping[str, str],
    order: Sequence[str],
    per_query: pd.DataFrame,
    metric: str,
    seed: int = 0,
) -> Breakdown:
    """`break_down` with buckets that have names instead of numbers.

    Args:
        property_name: for the headings.
        labels: query id -> bucket; queries of `per_query` that it lacks are counted and left out.
        order: of the buckets; those without a query are left away.
        per_query: index query id, one column of metric values per model.
        metric: name of that metric.
        seed: of the bootstrap.

    Raises:
        ValueError: if a label is none of `order`.
    """
    unknown = set(labels.values()) - set(order)
    if unknown:
        raise ValueError(f"{property_name}: {sorted(unknown)} is none of the buckets {list(order)}")
    of_query = [labels.get(str(query)) for query in per_query.index]
    buckets = []
    for label in order:
        rows = per_query[[own == label for own in of_query]].to_numpy(dtype=np.float64)
        if len(rows):
            low, high = bootstrap_interval(rows, seed=seed)
            means = {
                str(name): (float(rows[:, i].mean()), float(low[i]), float(high[i]))
                for i, name in enumerate(per_query.columns)
            }
            buckets.append(Bucket(label, len(rows), means))
    return Breakdown(property_name, metric, tuple(buckets), of_query.count(None))
