"""Texts as padded token rows, the vectors that encoders make of them, and the cache of item vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from crossjem_pl.rankers.base import TensorRecord, tensors
from crossjem_pl.text import Ragged, length_runs
from crossjem_pl.text.ragged import Ints

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["ItemVectors", "RowFormat", "TextRows", "Vectors", "text_rows"]


@dataclass
class TextRows(TensorRecord):
    """Distinct texts, sorted by length and cut into groups that go through an encoder together.

    Args:
        groups: `input_ids` int64 [rows, length], padded on the right; `attention_mask` int64 [rows, length];
            `used` bool [rows, length], the positions that pooling or matching reads.
        texts: the texts by row number, which counts through the groups.
    """

    groups: list[dict[str, Tensor]]
    texts: list[str]

    def select(self, rows: Ints) -> TextRows:
        """The rows with these numbers, which ascend."""
        groups, begin = [], 0
        for group in self.groups:
            end = begin + len(group["input_ids"])
            chosen = rows[(rows >= begin) & (rows < end)] - begin
            if len(chosen):
                index = torch.from_numpy(chosen).to(group["input_ids"].device)
                groups.append({name: value[index] for name, value in group.items()})
            begin = end
        return TextRows(groups, [self.texts[i] for i in rows])


@dataclass(frozen=True)
class RowFormat:
    """What surrounds the tokens of a text in its row, and which positions count.

    Args:
        prefix, end, pad: token ids in front of the text ([CLS], markers), behind it ([SEP]), and of padding.
        skip_first: leading positions that are not `used` (an instruction).
        skip_tokens: ids that are not `used` wherever they stand in the text (punctuation).
        fill_token: id that fills rows shorter than `fill_length`; such positions are `used`.
        fill_length: length up to which rows are filled; 0 fills none.
        attend_to_fill: whether the encoder attends to what was filled in.
    """

    prefix: tuple[int, ...]
    end: int
    pad: int
    skip_first: int = 0
    skip_tokens: tuple[int, ...] = ()
    fill_token: int = 0
    fill_length: int = 0
    attend_to_fill: bool = False

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> RowFormat:
        """`[CLS] text [SEP]`, or `text </s>` for tokenizers without [CLS] (T5's).

        Raises:
            ValueError: if the tokenizer has neither.
        """
        pad = tokenizer.pad_token_id or 0
        if tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None:
            return cls((tokenizer.cls_token_id,), tokenizer.sep_token_id, pad)
        if tokenizer.eos_token_id is not None:
            return cls((), tokenizer.eos_token_id, pad)
        name = tokenizer.name_or_path
        raise ValueError(f"the tokenizer of {name!r} has neither [CLS] and [SEP] nor an end-of-text token")

    @property
    def added(self) -> int:
        """How many positions a row has beyond its text's tokens."""
        return len(self.prefix) + 1

    def rows(self, tokens: Ragged) -> dict[str, Tensor]:
        """A group of `TextRows`, one row for each of the texts."""
        first, whole = len(self.prefix), tokens.lengths + self.added
        filled = np.maximum(whole, self.fill_length)[:, None]
        column = np.arange(int(filled.max()))
        in_text = (column >= first) & (column < whole[:, None] - 1)
        ids = np.full(in_text.shape, self.pad)
        ids[:, :first] = self.prefix
        ids[in_text] = tokens.values
        ids[np.arange(len(ids)), whole - 1] = self.end
        ids[(column >= whole[:, None]) & (column < filled)] = self.fill_token
        used = (column >= self.skip_first) & (column < filled)
        used &= ~(in_text & np.isin(ids, self.skip_tokens))
        attended = column < (filled if self.attend_to_fill else whole[:, None])
        return tensors({"input_ids": ids, "attention_mask": attended.astype(np.int64), "used": used})


def text_rows(
    tokens: Ragged, texts: Sequence[str], row_format: RowFormat, rows_per_group: int, cost: int | None = None
) -> tuple[TextRows, Ints]:
    """One row per distinct text, from the token ids of every text; and the row number of every text, int64 [texts].

    A group has at most so many rows; it is cut further where that spares `cost` tokens of padding, see `length_runs`.
    """
    number: dict[str, int] = {}
    distinct_of = np.array([number.setdefault(text, len(number)) for text in texts])
    distinct, rows = list(number), tokens.take(np.unique(distinct_of, return_index=True)[1])
    order = np.argsort(rows.lengths, kind="stable")
    chunks = np.split(order, range(rows_per_group, len(order), rows_per_group))
    if cost is not None:
        chunks = [chunk[run] for chunk in chunks for run in reversed(length_runs(rows.lengths[chunk], cost))]
    groups = [row_format.rows(rows.take(chosen)) for chosen in chunks]
    return TextRows(groups, [distinct[i] for i in order]), np.argsort(order)[distinct_of]


class Vectors(NamedTuple):
    """The vectors of some texts: one each for a dual encoder, one per token for ColBERT.

    Args:
        values: floating point [texts, most of a text, width], anything on padding.
        mask: bool [texts, most of a text], True where there is a vector.
    """

    values: Tensor
    mask: Tensor

    @classmethod
    def cat(cls, parts: Sequence[Vectors]) -> Vectors:
        """The texts of all parts, one part after the other."""
        most = max(part.mask.shape[1] for part in parts)
        added = [most - part.mask.shape[1] for part in parts]
        values = [F.pad(part.values, (0, 0, 0, n)) for part, n in zip(parts, added, strict=True)]
        return cls(
            torch.cat(values),
            torch.cat([F.pad(part.mask, (0, n)) for part, n in zip(parts, added, strict=True)]),
        )

    def take(self, texts: Tensor) -> Vectors:
        """The texts with the numbers `texts`, int64 of any shape, in this order."""
        return Vectors(self.values[texts], self.mask[texts])


class ItemVectors:
    """Vectors by item text. They stay behind when the object is copied or pickled into a worker process."""

    def __init__(self) -> None:
        self.clear()

    def __getstate__(self) -> dict[str, object]:
        return vars(ItemVectors())

    def __len__(self) -> int:
        return len(self._number)

    def __contains__(self, text: object) -> bool:
        return text in self._number

    @property
    def memory(self) -> int:
        """Bytes that the vectors take."""
        return self._values.nbytes

    def clear(self) -> None:
        """Forgets everything."""
        self._number: dict[str, int] = {}
        self._lengths = self._starts = np.empty(0, dtype=np.int64)
        self._values = torch.empty(0)

    def add(self, texts: Sequence[str], parts: Sequence[Vectors], dtype: torch.dtype) -> None:
        """Remembers the vectors of texts that are not in it yet, in `dtype`, on the device where they are."""
        new = [part.values[part.mask].to(dtype) for part in parts]
        self._values = torch.cat([self._values, *new] if len(self) else new)
        lengths = [part.mask.sum(1).cpu().numpy() for part in parts]
        self._lengths = np.concatenate([self._lengths, *lengths])
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._number.update({text: len(self._number) + i for i, text in enumerate(texts)})

    def complete(
        self, rows: TextRows, encode: Callable[[TextRows], Vectors], device: torch.device
    ) -> Vectors:
        """The vectors of `rows`: those known from here in float32 on `device`, the others from `encode`."""
        number = np.fromiter((self._number.get(text, -1) for text in rows.texts), dtype=np.int64)
        known, missing = np.flatnonzero(number >= 0), np.flatnonzero(number < 0)
        if not len(known):
            return encode(rows)
        lengths = self._lengths[number[known]]
        start = self._starts[number[known]]
        column = np.arange(lengths.max())
        inside = column < lengths[:, None]
        index = torch.from_numpy(np.where(inside, start[:, None] + column, 0)).to(self._values.device)
        found = Vectors(self._values[index].to(device, torch.float32), torch.from_numpy(inside).to(device))
        if not len(missing):
            return found
        place = np.argsort(np.concatenate([known, missing]))
        return Vectors.cat([found, encode(rows.select(missing))]).take(torch.from_numpy(place).to(device))
