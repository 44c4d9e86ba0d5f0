"""Tokenisation of short texts, token unions and the plan of passes. CPU and numpy only."""

from crossjem_pl.text.passes import PassOrder, leading_items, plan_passes
from crossjem_pl.text.ragged import Ragged
from crossjem_pl.text.runs import length_runs
from crossjem_pl.text.tokenized import TokenizedList
from crossjem_pl.text.tokens import Encoded, ShortTextTokenizer
from crossjem_pl.text.union import TokenUnion, token_union

__all__ = [
    "Encoded",
    "PassOrder",
    "Ragged",
    "ShortTextTokenizer",
    "TokenUnion",
    "TokenizedList",
    "leading_items",
    "length_runs",
    "plan_passes",
    "token_union",
]
