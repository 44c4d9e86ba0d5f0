"""Places of texts in [0, 1) that depend on nothing but the text: for splits and for bucket sorting."""

from __future__ import annotations

import hashlib

__all__ = ["fraction", "one_line"]


def fraction(text: str, salt: str) -> float:
    """A number in [0, 1): the 48-bit BLAKE2b digest of salt and text. Other salts give independent numbers."""
    digest = hashlib.blake2b(f"{salt}\n{text}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2.0**48


def one_line(text: str) -> str:
    """The text with every run of white space (tabs, line ends, U+00A0...) as one space, none at the ends."""
    return " ".join(text.split())
