"""On which kinds of lists each model does well, the lists as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from benchmarks.limits.extended import folded, relevant_items
from benchmarks.statistics import mean_cells
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM
from crossjem_pl.rankers.neural import NeuralRanker

__all__ = ["breakdowns", "properties", "same_sets", "tokenizing"]

PIECES = ("1.00", "above 1.00, up to 1.25", "above 1.25, up to 1.50", "above 1.50")
"""Buckets of word pieces a word; the upper ends belong to their bucket."""
TIE = 1e-6
"""Scores that differ by less are equal."""
_WORD = re.compile(r"\w+")


def tokenizing(rerankers: Mapping[str, Reranker]) -> tuple[str, NeuralRanker]:
    """Name and ranker of the model whose tokens lists are told apart by: a CROSS-JEM, else what reads token ids.

    Raises:
        ValueError: if there is none.
    """
    for wanted in (CrossJEM, NeuralRanker):
        for name, reranker in rerankers.items():
            if isinstance(reranker.ranker, wanted) and reranker.ranker.reads_token_ids():
                return name, reranker.ranker
    raise ValueError(
        "--model: none of the models reads plain token ids, so there are no tokens to count; add a CROSS-JEM "
        "or a cross-encoder"
    )


def properties(ranking_list: RankingList, ranker: NeuralRanker) -> dict[str, Any]:
    """What a list is told apart by, in the ranker's tokens; items are cut at its limit, as it cuts them.

    Returns:
        `union`: distinct tokens of its items; `pieces`: word pieces a word of query and relevant items, punctuation
        left out (None if they have no word); `query_words`; `pairs`: positions of items with different texts (see
        `folded`) and one set of tokens; `same_order`: how many of these have the same tokens in the same order, too;
        `decisive`: how many are a relevant and another item.

    Raises:
        ValueError: for a text without tokens; names the list.
    """
    tokens = ranker.encode_items([ranking_list]).tokens
    rows = [tokens.row(i) for i in range(len(ranking_list))]
    alike: dict[bytes, list[int]] = {}
    for i, row in enumerate(rows):
        alike.setdefault(np.unique(row).tobytes(), []).append(i)
    texts = [folded(text) for text in ranking_list.items]
    pairs = [
        pair
        for group in alike.values()
        for pair in combinations(group, 2)
        if texts[pair[0]] != texts[pair[1]]
    ]
    relevant = set(relevant_items(ranking_list))
    words = [_WORD.findall(text) for text in (ranking_list.query, *(ranking_list.items[i] for i in relevant))]
    words = [found for found in words if found]
    joined = [" ".join(found) for found in words]
    pieces = ranker.tokenizer.encode(joined, 2**31).tokens.lengths.sum() if words else 0
    return {
        "union": len(np.unique(tokens.values)),
        "pieces": float(pieces / sum(map(len, words))) if words else None,
        "query_words": len(ranking_list.query.split()),
        "pairs": sorted(pairs),
        "same_order": sum(rows[i].tobytes() == rows[j].tobytes() for i, j in pairs),
        "decisive": sum((i in relevant) != (j in relevant) for i, j in pairs),
    }


def breakdowns(found: Sequence[Mapping[str, Any]], values: pd.DataFrame) -> list[dict[str, Any]]:
    """A metric of every model on all lists and by every property of the lists.

    Args:
        found: `properties` of the lists.
        values: a row for each of the lists, a column for each model.

    Returns:
        `property` and `buckets` of each: `label`, `lists`, and `means`: model -> `mean`, `low`, `high`.
    """

    table = pd.DataFrame([{**kind, "alike": bool(kind["pairs"]), "lists": "all"} for kind in found])
    pieces = pd.cut(table["pieces"], [-np.inf, 1.0, 1.25, 1.5, np.inf], labels=PIECES)
    groups = {
        "lists": table["lists"],
        "tokens in the union of the items": _quarters(table["union"]),
        "word pieces a word": pieces,
        "words of the query": _quarters(table["query_words"]),
        "different items of one set of tokens": table["alike"].map(
            {True: "with such items", False: "the rest"}
        ),
    }
    out = []
    for name, labels in groups.items():
        buckets = []
        for label, rows in values.reset_index(drop=True).groupby(labels, observed=True):
            buckets.append({"label": str(label), "lists": len(rows), "means": mean_cells([rows])})
        out.append({"property": name, "buckets": buckets})
    return out


def _quarters(numbers: pd.Series) -> pd.Series:
    """Quarters as even as equal values allow, as ordered labels: their smallest and largest value."""
    codes = pd.qcut(numbers.rank(method="min"), 4, labels=False, duplicates="drop").fillna(0).astype(int)
    ends = numbers.groupby(codes).agg(["min", "max"])
    labels = {code: f"{row['min']:,} to {row['max']:,}" for code, row in ends.iterrows()}
    return pd.Series(pd.Categorical(codes.map(labels), list(labels.values()), ordered=True))


def same_sets(found: Sequence[Mapping[str, Any]], scores: Mapping[str, Sequence[Tensor]]) -> dict[str, Any]:
    """How many pairs of items have one set of tokens (see `properties`), and how many of them a model scores equally.

    Args:
        found: `properties` of the lists.
        scores: model -> float32 [items] for each list.
    """

    def equal(of_model: Sequence[Tensor]) -> int:
        pairs = ((own, pair) for kind, own in zip(found, of_model, strict=True) for pair in kind["pairs"])
        return sum(abs(float(own[i] - own[j])) < TIE for own, (i, j) in pairs)

    return {
        "lists": sum(bool(kind["pairs"]) for kind in found),
        "pairs": sum(len(kind["pairs"]) for kind in found),
        "same_order": sum(kind["same_order"] for kind in found),
        "decisive": sum(kind["decisive"] for kind in found),
        "equal": {name: equal(of_model) for name, of_model in scores.items()},
    }
