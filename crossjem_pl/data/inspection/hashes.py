"""Texts remembered by a 64-bit hash."""

from __future__ import annotations

import hashlib
import unicodedata

import numpy as np

__all__ = ["HashMap", "normalise", "text_key"]

_FRESH = 1 << 16


def normalise(text: str) -> str:
    """The text in NFKC, case-folded, its white space collapsed to single blanks."""
    if text.isascii():
        return " ".join(text.lower().split())
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def text_key(*texts: str) -> int:
    """64 bits of BLAKE2b of one or more texts. 10 million texts collide with a chance of 3 in a million."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        raw = text.encode("utf-8")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "little")


class HashMap:
    """64-bit keys to 64-bit values; the first value of a key stays.

    Entries are kept in two sorted arrays, 16 bytes an entry; up to one in sixteen waits in a dictionary
    (about 150 bytes each) to be sorted in, which for a moment takes the arrays twice.
    """

    def __init__(self) -> None:
        self._keys = np.empty(0, dtype=np.uint64)
        self._values = np.empty(0, dtype=np.uint64)
        self._fresh: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._keys) + len(self._fresh)

    def __contains__(self, key: int) -> bool:
        return self.get(key) is not None

    def get(self, key: int) -> int | None:
        """The value of `key`, or None."""
        found = self._fresh.get(key)
        if found is None and len(self._keys):
            at = int(np.searchsorted(self._keys, np.uint64(key)))
            if at < len(self._keys) and int(self._keys[at]) == key:
                return int(self._values[at])
        return found

    def first(self, key: int, value: int = 0) -> int | None:
        """The value that `key` has already; or None, and from now on it has `value`."""
        found = self.get(key)
        if found is None:
            self._fresh[key] = value
            if len(self._fresh) > max(_FRESH, len(self._keys) // 16):
                self._sort_in()
        return found

    def _sort_in(self) -> None:
        count = len(self._fresh)
        keys = np.concatenate([self._keys, np.fromiter(self._fresh.keys(), np.uint64, count)])
        values = np.concatenate([self._values, np.fromiter(self._fresh.values(), np.uint64, count)])
        order = np.argsort(keys, kind="stable")
        self._keys, self._values = keys[order], values[order]
        self._fresh.clear()
