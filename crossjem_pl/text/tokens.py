"""Batch tokenisation of short texts with a fast tokenizer and a cache by word or text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossjem_pl.lists import RankingList, shown
from crossjem_pl.text.ragged import Ints, Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Encoded", "ItemStates", "ShortTextTokenizer", "StateRows", "TokenizedList"]


_LOCK = Lock()


class Encoded(NamedTuple):
    """Token ids of some texts and the number of texts that lost tokens to the limit."""

    tokens: Ragged
    truncated: int


class ShortTextTokenizer:
    """Token ids without special tokens, computed once per distinct word, or per text where words have no ids alone.

    Short texts share their words, within a list and from query to query. BERT's normaliser and pre-tokeniser treat
    each character alone and end a word at a space, so that the ids of a text are those of its words; of any other
    tokenizer whole texts are kept. The oldest entries go when `cache_size` is reached. The cache stays behind when
    the object is pickled into a worker process.

    Args:
        tokenizer: a Hugging Face fast tokenizer. If its `split_special_tokens` is set, a special token that a text
            spells out ("[SEP]") is encoded as text, and never becomes the special token's id.
        cache_size: how many words or texts to remember, in some 300 bytes each; 0 switches the cache off.

    Raises:
        ValueError: if the tokenizer is not a fast one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, cache_size: int = 50_000) -> None:
        if not tokenizer.is_fast:
            raise ValueError(
                f"{type(tokenizer).__name__} is not a fast tokenizer; convert it to tokenizer.json"
            )
        self.hf = tokenizer
        self.cache_size = cache_size
        self._by_word = _has_ids_by_word(tokenizer)
        self._cache: dict[str, Sequence[int]] = {}

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_cache": {}}

    def encode(self, texts: Sequence[str], max_tokens: int) -> Encoded:
        """Ids of each text, cut to `max_tokens`.

        Raises:
            ValueError: if a text has no tokens at all (for example only control characters), naming the text.
        """
        whole = self.whole(texts)
        if not whole.lengths.all():
            raise self.no_tokens(texts[int(np.argmin(whole.lengths))])
        return Encoded(*whole.cut(max_tokens))

    def whole(self, texts: Sequence[str]) -> Ragged:
        """Ids of each text, uncut; empty where a text has no tokens."""
        if not self._by_word:
            return Ragged.from_rows(self._ids(texts))
        words = [text.split(" ") for text in texts]
        ids = Ragged.from_rows(self._ids(list(chain.from_iterable(words))))
        return ids.merged(np.fromiter(map(len, words), dtype=np.int64, count=len(words)))

    def no_tokens(self, text: str) -> ValueError:
        """The error for a text without tokens."""
        return ValueError(f"the text {shown(text)} has no tokens in the vocabulary of {self.hf.name_or_path}")

    def _ids(self, texts: Sequence[str]) -> list[Sequence[int]]:
        """Ids of each word or text; empty where it has no tokens."""
        cache = self._cache
        rows = list(map(cache.get, texts))
        if None not in rows:
            return rows  # type: ignore[return-value]
        missing = list(dict.fromkeys(text for text, row in zip(texts, rows, strict=True) if row is None))
        backend = self.hf.backend_tokenizer
        with _LOCK:  # of several threads that share a tokenizer one at a time changes it and its cache
            # a published tokenizer may pad or cut, and any call of `hf` may switch it on: not wanted here
            backend.no_padding()
            backend.no_truncation()
            backend.encode_special_tokens = self.hf.split_special_tokens
            encodings = backend.encode_batch_fast(missing, add_special_tokens=False)
            ids: list[Sequence[int]] = [e.ids for e in encodings]
            if self.hf.split_special_tokens:
                self._replace_special(ids)
            fresh = dict(zip(missing, ids, strict=True))
            if self.cache_size:
                cache.update(fresh)
                for oldest in list(islice(cache, max(len(cache) - self.cache_size, 0))):
                    del cache[oldest]
        return [fresh[text] if row is None else row for text, row in zip(texts, rows, strict=True)]

    def _replace_special(self, rows: list[Sequence[int]]) -> None:
        """Puts the unknown token (or nothing, where there is none) in place of special ones: some vocabularies hold
        the special tokens as words too."""
        hf = self.hf
        unknown = None if hf.unk_token_id in (hf.bos_token_id, hf.eos_token_id) else hf.unk_token_id
        special = {i for i in hf.all_special_ids if i != unknown}
        for i, row in enumerate(rows):
            if not special.isdisjoint(row):
                replaced = (unknown if value in special else value for value in row)
                rows[i] = [value for value in replaced if value is not None]


def _has_ids_by_word(tokenizer: PreTrainedTokenizerBase) -> bool:
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    backend = tokenizer.backend_tokenizer
    parts = (
        (backend.normalizer, BertNormalizer),
        (backend.pre_tokenizer, BertPreTokenizer),
        (backend.model, WordPiece),
    )
    added = backend.get_added_tokens_decoder().values()
    return all(isinstance(part, kind) for part, kind in parts) and not any(
        " " in token.content for token in added
    )


class StateRows(NamedTuple):
    """States of items' tokens that a model has made ahead.

    Args:
        values: float16 [states, width], one item after the other.
        lengths: int64 [items], how many each item has.
    """

    values: NDArray[np.float16]
    lengths: Ints

    def take(self, items: Ints) -> StateRows:
        """The items with these numbers, in this order."""
        index = Ragged(np.arange(len(self.values)), self.lengths).take(items)
        return StateRows(self.values[index.values], index.lengths)


class ItemStates(NamedTuple):
    """What a model makes of items without a query, and stores ahead.

    Args:
        of: the states float16 [tokens and two more of each item, width] of items, from rows of token ids.
        model: a hash of the weights that they depend on.
        width: numbers of a state.
    """

    of: Callable[[Ragged], NDArray[np.float16]]
    model: str
    width: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenizedList(RankingList):
    """A list that is scored from `tokens`; its `items` are never tokenised and may be the item ids.

    Args:
        tokens: token ids of the items without special tokens, one row each, not yet cut to a ranker's limit.
        states: what the store has of them from a model beside, see `TokenStore.states`; None for nothing.

    Raises:
        ValueError: as for `RankingList`, and if there are not as many rows as items.
    """

    tokens: Ragged
    states: StateRows | None = None

    def __post_init__(self) -> None:
        RankingList.__post_init__(self)
        if len(self.tokens.lengths) != len(self.items):
            raise self._error("tokens", f"{len(self.tokens.lengths)} rows for {len(self.items)} items")

    def select(self, positions: Sequence[int]) -> TokenizedList:
        """The same query with the items at `positions`, in that order."""
        chosen = np.asarray(positions, dtype=np.int64)
        states = None if self.states is None else self.states.take(chosen)
        return replace(self, **self._picked(positions), tokens=self.tokens.take(chosen), states=states)
