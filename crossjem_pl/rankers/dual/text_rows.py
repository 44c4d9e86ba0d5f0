"""Texts as padded token rows, each on its own: what encoders that read one text at a time are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from crossjem_pl.rankers.base import TensorRecord
from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import Ints

__all__ = ["RowFormat", "TextRows", "TokenGroup", "text_rows"]


@dataclass
class TokenGroup(TensorRecord):
    """Rows of similar length that go through an encoder together.

    Args:
        input_ids: int64 [rows, length], padded on the right.
        attention_mask: int64 [rows, length], 1 where the encoder attends.
        used: bool [rows, length], the positions that pooling or matching reads.
    """

    input_ids: Tensor
    attention_mask: Tensor
    used: Tensor

    def select(self, rows: Tensor) -> TokenGroup:
        """The rows at `rows` int64 [n]."""
        return TokenGroup(self.input_ids[rows], self.attention_mask[rows], self.used[rows])


@dataclass
class TextRows(TensorRecord):
    """Distinct texts, sorted by length and cut into groups.

    Args:
        groups: the rows; a text's row number counts through the groups.
        texts: the texts, by row number.
    """

    groups: list[TokenGroup]
    texts: list[str]

    def select(self, rows: Sequence[int]) -> TextRows:
        """The rows with these numbers, which ascend."""
        wanted = torch.zeros(len(self.texts), dtype=torch.bool)
        wanted[list(rows)] = True
        groups, begin = [], 0
        for group in self.groups:
            end = begin + len(group.input_ids)
            chosen = wanted[begin:end].nonzero()[:, 0]
            if len(chosen):
                groups.append(group.select(chosen.to(group.input_ids.device)))
            begin = end
        return TextRows(groups, [self.texts[i] for i in rows])


@dataclass(frozen=True)
class RowFormat:
    """What surrounds the tokens of a text in its row, and which positions count.

    Args:
        prefix: token ids in front of the text ([CLS], markers).
        suffix: token ids behind it ([SEP]).
        pad: id that fills rows up.
        skip_first: leading positions that are not `used` (an instruction).
        skip_tokens: ids that are not `used` wherever they stand in the text (punctuation).
        fill_token: id that fills rows shorter than `fill_length`; such positions are `used`.
        fill_length: length up to which rows are filled; 0 fills none.
        attend_to_fill: whether the encoder attends to what was filled in.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
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
            return cls((tokenizer.cls_token_id,), (tokenizer.sep_token_id,), pad)
        if tokenizer.eos_token_id is not None:
            return cls((), (tokenizer.eos_token_id,), pad)
        raise ValueError(
            "the tokenizer has neither [CLS] and [SEP] nor an end-of-text token; an encoder needs one"
        )

    @property
    def added(self) -> int:
        """How many positions a row has beyond its text's tokens."""
        return len(self.prefix) + len(self.suffix)


def text_rows(
    tokens: Ragged, texts: Sequence[str], row_format: RowFormat, rows_per_group: int
) -> tuple[TextRows, Ints]:
    """One row per distinct text.

    Args:
        tokens: the token ids of every text.
        texts: the texts; equal texts have equal tokens.
        row_format: how a row looks.
        rows_per_group: the most rows that go through the encoder together.

    Returns:
        The rows, and the row number of every text, int64 [texts].
    """
    number: dict[str, int] = {}
    distinct_of = np.fromiter(
        (number.setdefault(t, len(number)) for t in texts), dtype=np.int64, count=len(texts)
    )
    first = np.unique(distinct_of, return_index=True)[1]
    lengths = tokens.lengths[first]
    order = np.argsort(lengths, kind="stable")
    padded, distinct = tokens.padded(row_format.pad)[first], list(number)
    groups = [
        _group(padded[chosen], lengths[chosen], row_format)
        for chosen in np.split(order, range(rows_per_group, len(order), rows_per_group))
    ]
    row_of = np.empty(len(order), dtype=np.int64)
    row_of[order] = np.arange(len(order))
    return TextRows(groups, [distinct[i] for i in order]), row_of[distinct_of]


def _group(tokens: Ints, lengths: Ints, row_format: RowFormat) -> TokenGroup:
    """Rows from padded tokens [rows, longest], all at once."""
    first = len(row_format.prefix)
    whole = lengths + row_format.added
    filled = np.maximum(whole, row_format.fill_length)
    column = np.arange(int(filled.max()))[None, :]
    ids = np.full((len(tokens), column.shape[1]), row_format.pad, dtype=np.int64)
    ids[:, :first] = row_format.prefix
    in_text = (column >= first) & (column < first + lengths[:, None])
    ids[in_text] = tokens[np.arange(tokens.shape[1])[None, :] < lengths[:, None]]
    behind = (first + lengths)[:, None] + np.arange(len(row_format.suffix))[None, :]
    np.put_along_axis(ids, behind, np.array(row_format.suffix, dtype=np.int64)[None, :], axis=1)
    fill = (column >= whole[:, None]) & (column < filled[:, None])
    ids[fill] = row_format.fill_token
    used = (column >= row_format.skip_first) & (column < filled[:, None])
    if row_format.skip_tokens:
        used &= ~(in_text & np.isin(ids, row_format.skip_tokens))
    attended = column < (filled if row_format.attend_to_fill else whole)[:, None]
    return TokenGroup(
        torch.from_numpy(ids),
        torch.from_numpy(attended.astype(np.int64)),
        torch.from_numpy(np.ascontiguousarray(used)),
    )
