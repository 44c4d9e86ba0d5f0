"""Lists whose items share as much vocabulary as one likes."""

from __future__ import annotations

import numpy as np

from crossjem_pl.lists import RankingList
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["pooled_lists", "words_of"]

WORDS_PER_ITEM, WORDS_PER_QUERY = 4, 3


def words_of(tokenizer: ShortTextTokenizer, seed: int = 7) -> list[str]:
    """The lower-case words of at least three letters that are one token each, in a shuffled order."""
    pieces = sorted(piece for piece in tokenizer.hf.get_vocab() if piece.isalpha() and piece.islower())
    words = [piece for piece in pieces if len(piece) >= 3]
    lengths = tokenizer.encode(words, 2**31).tokens.lengths if words else np.empty(0)
    single = np.array([word for word, length in zip(words, lengths, strict=True) if length == 1])
    return [str(word) for word in np.random.default_rng(seed).permutation(single)]


def pooled_lists(
    tokenizer: ShortTextTokenizer, count: int, items: int, pool: int, seed: int = 7
) -> list[RankingList]:
    """Lists of different items, of `WORDS_PER_ITEM` words drawn from a pool of `pool` words; the query likewise.

    A small pool gives keywords that say nearly the same, a large one unrelated texts. Every word is one token, so a
    pointwise ranker's cost is the same everywhere, while the union grows with the pool.

    Raises:
        ValueError: if the vocabulary has fewer words, or the pool is too small for so many different items.
    """
    words = words_of(tokenizer, seed)
    if pool > len(words):
        raise ValueError(f"a pool of {pool} words was asked for, the tokenizer has {len(words)} of one token")
    if pool < WORDS_PER_ITEM or pool**2 < items:
        raise ValueError(f"a pool of {pool} words is too small for {items} items of {WORDS_PER_ITEM} words")
    draw = np.random.default_rng(seed)

    def text(length: int) -> str:
        return " ".join(words[i] for i in draw.choice(pool, size=length, replace=False))

    out = []
    for number in range(count):
        texts: dict[str, None] = {}
        while len(texts) < items:
            texts[text(WORDS_PER_ITEM)] = None
        out.append(RankingList.from_texts(text(WORDS_PER_QUERY), list(texts), f"pool-{pool}-{number}"))
    return out
