"""What an exact explanation of a score is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Explanation", "TokenContribution"]


@dataclass(frozen=True)
class TokenContribution:
    """What one token adds to one item's score.

    Args:
        token: the word piece.
        part: whether it belongs to the item, the query, is a special token, or the classifier's bias.
        value: what it adds, in units of the score.
    """

    token: str
    part: Literal["item", "query", "special", "bias"]
    value: float


@dataclass(frozen=True)
class Explanation:
    """An item's score and the contributions that sum to it (to float32 rounding)."""

    item: str
    score: float
    contributions: tuple[TokenContribution, ...]
