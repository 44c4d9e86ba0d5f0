"""Tokenisation of short texts, token unions and the plan of passes. CPU and numpy only."""

from crossjem_pl.text.passes import (
    PassOrder,
    TokenUnion,
    distinct_rows,
    leading_items,
    length_runs,
    plan_passes,
    token_union,
)
from crossjem_pl.text.ragged import Ragged
from crossjem_pl.text.tokens import Encoded, ItemStates, ShortTextTokenizer, StateRows, TokenizedList

__all__ = [
    "Encoded",
    "ItemStates",
    "PassOrder",
    "Ragged",
    "ShortTextTokenizer",
    "StateRows",
    "TokenUnion",
    "TokenizedList",
    "distinct_rows",
    "leading_items",
    "length_runs",
    "plan_passes",
    "token_union",
]
