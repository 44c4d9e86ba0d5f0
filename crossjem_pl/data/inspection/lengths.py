"""Lengths in words and tokens, what the limits would cut, and how well the encoder knows the words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossjem_pl.data.distributions import IntegerCounts, Summary
from crossjem_pl.data.inspection.problems import Findings
from crossjem_pl.lists import RankingList
from crossjem_pl.text import Ragged, ShortTextTokenizer

__all__ = ["LengthFigures", "LengthInspector"]

_MANY = 0.01


@dataclass(frozen=True)
class LengthFigures:
    """Of queries, or of items (an item counts once in every list that has it).

    Args:
        words: lengths in words, split at white space.
        tokens: lengths in the encoder's tokens, nothing cut.
        pieces_per_word: tokens per word. Near 1.2 for English under an English WordPiece vocabulary; 2 and
            more say that the words are rare to the encoder.
        unknown_tokens: tokens that the encoder does not know, all of which look alike to it.
        limit: the limit in tokens.
        cut_texts: texts longer than the limit.
        cut_tokens: tokens beyond the limit.
    """

    words: Summary | None
    tokens: Summary | None
    pieces_per_word: float | None
    unknown_tokens: int
    limit: int
    cut_texts: int
    cut_tokens: int


class LengthInspector:
    """Looks at the texts of lists as the encoder's tokenizer sees them.

    "cut-queries", "cut-items" and "unknown-tokens" are notes up to one in a hundred and warnings above.
    """

    def __init__(
        self, findings: Findings, tokenizer: ShortTextTokenizer, max_query_tokens: int, max_item_tokens: int
    ) -> None:
        for name, limit in (("max_query_tokens", max_query_tokens), ("max_item_tokens", max_item_tokens)):
            if limit < 1:
                raise ValueError(f"{name} must be at least 1, got {limit}")
        self._findings, self._tokenizer = findings, tokenizer
        self._queries, self._items = _Lengths(max_query_tokens), _Lengths(max_item_tokens)

    def look(self, where: str, one: RankingList) -> None:
        query, items = f"{where}: {one.query_id}, query", f"{where}: {one.query_id}, item "
        self._take(self._queries, "cut-queries", [one.query], [query])
        self._take(self._items, "cut-items", one.items, [items + item_id for item_id in one.item_ids])

    def figures(self) -> tuple[LengthFigures, LengthFigures]:
        """(queries, items). Grades what only the whole tells."""
        both = (self._queries.figures(), self._items.figures())
        for code, found in zip(("cut-queries", "cut-items"), both, strict=True):
            self._share(code, found.cut_texts, found.tokens.count if found.tokens else 0)
        unknown = sum(found.unknown_tokens for found in both)
        self._share("unknown-tokens", unknown, self._queries.all_tokens + self._items.all_tokens)
        return both

    def _share(self, code: str, count: int, total: int) -> None:
        self._findings.of(code, total)
        if count > _MANY * total:
            self._findings.grade(code, "warning")

    def _take(self, lengths: _Lengths, cut: str, texts: Sequence[str], places: Sequence[str]) -> None:
        tokens = self._encode(texts, places)
        unknown_id = self._tokenizer.hf.unk_token_id
        words = [len(text.split()) for text in texts]
        counts = tokens.lengths.tolist()
        unknown = np.zeros(len(texts), dtype=np.int64)
        if unknown_id is not None:
            np.add.at(unknown, tokens.row_of[tokens.values == unknown_id], 1)
        lengths.add(words, counts, int(unknown.sum()))
        for i in np.flatnonzero(unknown).tolist():
            self._findings.add("unknown-tokens", f"{places[i]}: {texts[i]!r}", int(unknown[i]))
        for i in np.flatnonzero(tokens.lengths > lengths.limit).tolist():
            self._findings.add(cut, f"{places[i]}: {counts[i]} tokens, limit {lengths.limit}")

    def _encode(self, texts: Sequence[str], places: Sequence[str]) -> Ragged:
        """Tokens of every text, uncut; a text that has none is noted and gets an empty row."""
        try:
            return self._tokenizer.encode(texts, sys.maxsize).tokens
        except ValueError:
            rows = []
            for text, place in zip(texts, places, strict=True):
                try:
                    rows.append(self._tokenizer.encode([text], sys.maxsize).tokens.values)
                except ValueError:
                    self._findings.add("no-tokens", f"{place}: {text!r}")
                    rows.append(np.empty(0, dtype=np.int64))
            return Ragged.from_rows(rows)


class _Lengths:
    """Sums over the queries, or over the items."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.all_tokens = 0
        self._words, self._tokens = IntegerCounts(), IntegerCounts()
        self._all_words = self._unknown = self._cut_texts = self._cut_tokens = 0

    def add(self, words: list[int], tokens: list[int], unknown: int) -> None:
        self._words.add(words)
        self._tokens.add(tokens)
        self._all_words += sum(words)
        self.all_tokens += sum(tokens)
        self._unknown += unknown
        self._cut_texts += sum(n > self.limit for n in tokens)
        self._cut_tokens += sum(max(n - self.limit, 0) for n in tokens)

    def figures(self) -> LengthFigures:
        return LengthFigures(
            words=self._words.summary(),
            tokens=self._tokens.summary(),
            pieces_per_word=self.all_tokens / self._all_words if self._all_words else None,
            unknown_tokens=self._unknown,
            limit=self.limit,
            cut_texts=self._cut_texts,
            cut_tokens=self._cut_tokens,
        )
