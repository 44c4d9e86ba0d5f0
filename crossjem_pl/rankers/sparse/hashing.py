"""Stable 64-bit hashes of words and of combinations of hashes: equal in every process, on every machine."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from crossjem_pl.hashing import text_key

__all__ = ["combined", "word_hash"]

Hashes = NDArray[np.uint64]


@lru_cache(maxsize=1 << 20)
def word_hash(word: str) -> int:
    """`text_key` of the word, unsigned."""
    return text_key(word) % 2**64


def combined(first: Hashes, second: Hashes | int) -> Hashes:
    """A hash of each ordered pair, uint64 [n]; `combined(a, b)` and `combined(b, a)` differ."""
    constant = np.array(second, dtype=np.uint64) if isinstance(second, int) else second
    return _mixed(first + _mixed(constant ^ np.uint64(0x9E3779B97F4A7C15)))


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every bit depends on every bit."""
    values = np.atleast_1d(values)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
