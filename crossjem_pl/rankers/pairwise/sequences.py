"""Token sequences of many rows put together from pieces, all rows at once, and cut into padded groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from crossjem_pl.text import Ragged
from crossjem_pl.text.ragged import Ints

__all__ = ["joined", "length_groups"]


def joined(*pieces: Ragged | Sequence[int]) -> Ragged:
    """Row i = the pieces' rows i, one after the other; a plain sequence of ids is the same in every row.

    Raises:
        ValueError: if no piece is `Ragged`, or they have unequal numbers of rows.
    """
    counts = {len(piece.lengths) for piece in pieces if isinstance(piece, Ragged)}
    if len(counts) != 1:
        raise ValueError(f"the pieces need one common number of rows, got {sorted(counts)}")
    rows = counts.pop()
    ragged = [piece if isinstance(piece, Ragged) else _repeated(piece, rows) for piece in pieces]
    lengths = np.sum([piece.lengths for piece in ragged], axis=0)
    values = np.empty(int(lengths.sum()), dtype=np.int64)
    start = np.cumsum(lengths) - lengths
    for piece in ragged:
        values[start[piece.row_of] + piece.position_of] = piece.values
        start = start + piece.lengths
    return Ragged(values, lengths)


def length_groups(sequences: Ragged, rows_per_group: int, pad: int) -> tuple[list[dict[str, Tensor]], Ints]:
    """Groups of at most `rows_per_group` sequences of similar length, padded on the right.

    Returns:
        dicts of `input_ids` and `attention_mask`, int64 [rows, longest], shortest first, and the order of the
        sequences in them, int64 [sequences].
    """
    order = np.argsort(sequences.lengths, kind="stable")
    groups = []
    for first in range(0, len(order), rows_per_group):
        group = sequences.take(order[first : first + rows_per_group])
        ids = torch.from_numpy(group.padded(pad))
        inside = torch.arange(ids.shape[1])[None, :] < torch.from_numpy(group.lengths)[:, None]
        groups.append({"input_ids": ids, "attention_mask": inside.long()})
    return groups, order


def _repeated(ids: Sequence[int], rows: int) -> Ragged:
    return Ragged(np.tile(np.asarray(ids, dtype=np.int64), rows), np.full(rows, len(ids), dtype=np.int64))
