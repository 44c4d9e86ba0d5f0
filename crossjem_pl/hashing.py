"""Hashes of texts, files and weights that are the same in every process and on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "check_regular",
    "content_id",
    "content_sha256",
    "file_sha256",
    "fraction",
    "text_key",
    "text_keys",
    "weights_sha256",
]


def text_key(text: str) -> int:
    """A signed 64-bit key: the 8-byte BLAKE2b digest of the UTF-8 text, little-endian.

    Ten million texts collide with a chance of 3 in a million.

    >>> text_key("car insurance")
    -4774219290949233923
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def text_keys(texts: Iterable[str]) -> NDArray[np.int64]:
    """int64 [texts]: the `text_key` of each text."""
    return np.fromiter(map(text_key, texts), dtype=np.int64)


def content_id(text: str) -> str:
    """20 hexadecimal digits: the 80-bit BLAKE2b digest of the UTF-8 text, exactly as it stands.

    Equal texts have equal ids in every list, file and run of the program.

    >>> content_id("red shoe")  # b2sum -l 80
    '579d4e9407130ea8368e'
    """
    return hashlib.blake2b(text.encode("utf-8"), digest_size=10).hexdigest()


def fraction(text: str, salt: str) -> float:
    """A number in [0, 1): the 48-bit BLAKE2b digest of salt and text. Other salts give independent numbers."""
    digest = hashlib.blake2b(f"{salt}\n{text}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2.0**48


def content_sha256(content: str | bytes | Iterable[str | bytes]) -> str:
    """SHA-256 in hexadecimal digits, of a text (as UTF-8), of bytes, or of the concatenation of several."""
    digest = hashlib.sha256()
    for part in [content] if isinstance(content, (str, bytes)) else content:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


def check_regular(*paths: Path) -> None:
    """Raises a ValueError that names a pipe or device, whose reader may wait for good."""
    for path in paths:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ValueError(f"{path}: expected a file, got a pipe or device, which cannot be read twice")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal digits."""
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_sha256(ranker: Any) -> str:
    """SHA-256 of a ranker's name and of the names, types, shapes and values of its weights.

    It is the same for every folder, device and file layout that the weights come from.
    """
    import torch

    digest = hashlib.sha256(ranker.name.encode())
    for name, value in sorted(ranker.state_dict().items()):
        digest.update(f"\0{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
