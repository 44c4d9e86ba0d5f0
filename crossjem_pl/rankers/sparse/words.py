"""Words of a text, for the rankers that know no word pieces (BM25, MEB)."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

__all__ = ["Words"]

_WORD = re.compile(r"\w+")


class Words:
    """Lower-cased runs of letters, digits and underscores (Unicode `\\w+`), in the order of the text.

    "C++ vs. C#" is `c, vs, c`: punctuation is no word, one letter is one. A text without any has no words.

    Args:
        stopwords: words to leave out; "en" is bm25s' English list; None leaves none out.
        stemmer: language of a Snowball stemmer ("english", "german", ...), applied after the stopwords; None
            keeps words as they are.

    Raises:
        ImportError: if a stemmer is asked for and PyStemmer is not installed.
        ValueError: on an unknown name of stopwords.
        KeyError: if PyStemmer does not know the language.
    """

    def __init__(
        self, stopwords: Literal["en"] | Sequence[str] | None = None, stemmer: str | None = None
    ) -> None:
        self.stopwords = _stopwords(stopwords)
        self.stemmer = stemmer
        if stemmer is not None:
            _stem_words(stemmer)  # a missing package or language is told now, not in a worker

    def __call__(self, text: str) -> list[str]:
        words: list[str] = _WORD.findall(text.lower())
        if self.stopwords:
            words = [word for word in words if word not in self.stopwords]
        return words if self.stemmer is None else _stem_words(self.stemmer)(words)


def _stopwords(given: Literal["en"] | Sequence[str] | None) -> frozenset[str]:
    if given is None:
        return frozenset()
    if isinstance(given, str):
        if given != "en":
            raise ValueError(f"stopwords must be 'en', a list of words or None, got {given!r}")
        from bm25s.stopwords import STOPWORDS_EN

        return frozenset(STOPWORDS_EN)
    return frozenset(word.lower() for word in given)


@cache
def _stem_words(language: str) -> Callable[[list[str]], list[str]]:
    try:
        module: Any = importlib.import_module("Stemmer")
    except ImportError as error:
        raise ImportError("stemmer needs PyStemmer: pip install PyStemmer") from error
    return module.Stemmer(language).stemWords
