"""Item vectors computed once: ragged vectors of texts, and the cache that dual rankers keep of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from crossjem_pl.rankers.dual.text_rows import TextRows

__all__ = ["ItemVectors", "Vectors"]


@dataclass(frozen=True)
class Vectors:
    """The vectors of some texts, end to end.

    Args:
        values: floating point [total, width].
        lengths: int64 [texts], how many vectors each text has: 1 for a dual encoder, one per token for
            ColBERT.
    """

    values: Tensor
    lengths: Tensor

    @classmethod
    def cat(cls, parts: Sequence[Vectors]) -> Vectors:
        """The texts of all parts, one part after the other."""
        return cls(torch.cat([p.values for p in parts]), torch.cat([p.lengths for p in parts]))

    def take(self, texts: Tensor) -> Vectors:
        """The texts with these numbers, int64 [n], in this order."""
        lengths = self.lengths[texts]
        starts = (self.lengths.cumsum(0) - self.lengths)[texts]
        inside = torch.arange(int(lengths.sum()), device=lengths.device) - (
            lengths.cumsum(0) - lengths
        ).repeat_interleave(lengths)
        return Vectors(self.values[starts.repeat_interleave(lengths) + inside], lengths)

    def padded(self) -> tuple[Tensor, Tensor]:
        """[texts, longest, width], 0 on padding, and bool [texts, longest]: there is a vector."""
        column = torch.arange(int(self.lengths.max()), device=self.lengths.device)
        mask = column[None, :] < self.lengths[:, None]
        out = self.values.new_zeros(*mask.shape, self.values.shape[1])
        return out.masked_scatter(mask[:, :, None], self.values), mask

    def to(self, device: torch.device, dtype: torch.dtype) -> Vectors:
        """On another device and in another precision."""
        return Vectors(self.values.to(device, dtype), self.lengths.to(device))


class ItemVectors:
    """Vectors by item text. They stay behind when the object is copied or pickled into a worker process."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._vectors: Vectors | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_number": {}, "_vectors": None}

    def __len__(self) -> int:
        return len(self._number)

    def __contains__(self, text: object) -> bool:
        return text in self._number

    @property
    def memory(self) -> int:
        """Bytes that the vectors take."""
        return 0 if self._vectors is None else self._vectors.values.nbytes

    def clear(self) -> None:
        """Forgets everything."""
        self._number, self._vectors = {}, None

    def add(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Remembers the vectors of texts that are not in it yet."""
        self._number.update({text: len(self._number) + i for i, text in enumerate(texts)})
        self._vectors = vectors if self._vectors is None else Vectors.cat([self._vectors, vectors])

    def complete(
        self, rows: TextRows, encode: Callable[[TextRows], Vectors], device: torch.device
    ) -> Vectors:
        """The vectors of `rows`: those known from here in float32 on `device`, the others from `encode`."""
        known = [i for i, text in enumerate(rows.texts) if text in self._number]
        if self._vectors is None or not known:
            return encode(rows)
        numbers = torch.tensor(
            [self._number[rows.texts[i]] for i in known], device=self._vectors.values.device
        )
        found = self._vectors.take(numbers).to(device, torch.float32)
        if len(known) == len(rows.texts):
            return found
        there = set(known)
        missing = [i for i in range(len(rows.texts)) if i not in there]
        both = Vectors.cat([found, encode(rows.select(missing))])
        place = torch.empty(len(rows.texts), dtype=torch.int64)
        place[known + missing] = torch.arange(len(rows.texts))
        return both.take(place.to(device))
