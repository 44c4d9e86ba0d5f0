"""On which kinds of lists each model does well, the lists as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from torch import Tensor

from benchmarks.limits.extended import relevant_items
from benchmarks.limits.groups import (
    PIECES,
    by_label,
    equal_scores,
    pieces_label,
    pieces_per_word,
    same_set_pairs,
    union_length,
)
from benchmarks.limits.scoring import per_query
from crossjem_pl.evaluation.breakdown import Breakdown, break_down
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM
from crossjem_pl.rankers.neural import NeuralRanker

__all__ = ["METRIC", "KindOfList", "SameSets", "breakdowns", "kinds_of", "same_sets", "tokenizing"]

METRIC = "RR@10"
_WORD = re.compile(r"\w+")
_QUARTERS = 4
_NO_LIMIT = 2**31
"""Tokens of a text: none are cut off for a count."""
_WITH, _WITHOUT = "with such items", "the rest"


@dataclass(frozen=True)
class KindOfList:
    """What a list is told apart by.

    Args:
        union: distinct tokens of its items.
        pieces: word pieces a word of query and relevant items; None if they have no word.
        query_words: words of the query, parted by white space.
        pairs: positions of items with different texts and one set of tokens.
        same_order: how many of the pairs have the same tokens in the same order, too.
        decisive: how many of the pairs are a relevant and another item.
    """

    union: int
    pieces: float | None
    query_words: int
    pairs: tuple[tuple[int, int], ...]
    same_order: int
    decisive: int


@dataclass(frozen=True)
class SameSets:
    """Items with different texts and one set of tokens.

    Args:
        lists: that have such items.
        pairs: of such items.
        same_order: pairs whose tokens are the same in the same order, too: no model on these tokens tells them apart.
        decisive: pairs of a relevant and another item.
        equal: model -> pairs with equal scores.
    """

    lists: int
    pairs: int
    same_order: int
    decisive: int
    equal: dict[str, int]


def tokenizing(rerankers: Mapping[str, Reranker]) -> tuple[str, NeuralRanker]:
    """Name and ranker of the model whose tokens lists are told apart by: the first CROSS-JEM, else the first that
    reads plain token ids.

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


def kinds_of(lists: Sequence[RankingList], ranker: NeuralRanker) -> list[KindOfList]:
    """The kind of every list, in the ranker's tokens; items are cut at its limit, as it cuts them.

    Raises:
        ValueError: for a text without tokens; names the list.
    """
    return [_kind(one, ranker) for one in lists]


def breakdowns(
    lists: Sequence[RankingList], kinds: Sequence[KindOfList], scores: Mapping[str, Sequence[Tensor]]
) -> list[Breakdown]:
    """`RR@10` of every model (a column each) on all lists and by every property of the lists.

    Args:
        lists: labelled.
        kinds: of the lists.
        scores: model -> float32 [items] for each list.
    """
    frame = pd.DataFrame({name: per_query(lists, own)[METRIC] for name, own in scores.items()})
    of = dict(zip([one.query_id for one in lists], kinds, strict=True))
    everything = dict.fromkeys(of, "all")
    union = {query: float(kind.union) for query, kind in of.items()}
    pieces = {query: pieces_label(kind.pieces) for query, kind in of.items() if kind.pieces is not None}
    words = {query: float(kind.query_words) for query, kind in of.items()}
    alike = {query: _WITH if kind.pairs else _WITHOUT for query, kind in of.items()}
    return [
        by_label("lists", everything, ["all"], frame, METRIC),
        break_down("tokens in the union of the items", union, frame, METRIC, most=_QUARTERS),
        by_label("word pieces a word", pieces, [label for _, label in PIECES], frame, METRIC),
        break_down("words of the query", words, frame, METRIC, most=_QUARTERS),
        by_label("different items of one set of tokens", alike, [_WITH, _WITHOUT], frame, METRIC),
    ]


def same_sets(kinds: Sequence[KindOfList], scores: Mapping[str, Sequence[Tensor]]) -> SameSets:
    """How many pairs of items have one set of tokens, and how many of them each model scores equally.

    Args:
        kinds: of the lists.
        scores: model -> float32 [items] for each list.
    """
    equal = {
        name: sum(equal_scores(values.tolist(), kind.pairs) for kind, values in zip(kinds, own, strict=True))
        for name, own in scores.items()
    }
    return SameSets(
        lists=sum(bool(kind.pairs) for kind in kinds),
        pairs=sum(len(kind.pairs) for kind in kinds),
        same_order=sum(kind.same_order for kind in kinds),
        decisive=sum(kind.decisive for kind in kinds),
        equal=equal,
    )


def _kind(one: RankingList, ranker: NeuralRanker) -> KindOfList:
    items = ranker.encode_items([one]).tokens
    pairs = same_set_pairs(one.items, items)
    relevant = set(relevant_items(one))
    rows = [items.row(i).tobytes() for i in range(len(one))] if pairs else []
    return KindOfList(
        union=union_length(items),
        pieces=_pieces(ranker, [one.query, *(one.items[i] for i in relevant)]),
        query_words=len(one.query.split()),
        pairs=tuple(pairs),
        same_order=sum(rows[i] == rows[j] for i, j in pairs),
        decisive=sum((i in relevant) != (j in relevant) for i, j in pairs),
    )


def _pieces(ranker: NeuralRanker, texts: Sequence[str]) -> float | None:
    """Word pieces of the words alone, punctuation left out, over the words."""
    words = [found for found in map(_WORD.findall, texts) if found]
    if not words:
        return None
    pieces = ranker.tokenizer.encode([" ".join(found) for found in words], _NO_LIMIT).tokens.lengths
    return pieces_per_word(pieces.tolist(), [len(found) for found in words])
