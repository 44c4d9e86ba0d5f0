"""Attention inside the items of a union: union tokens see the query and the tokens that they share an item with."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from crossjem_pl.rankers.attention import HIDDEN
from crossjem_pl.text.ragged import Ints

__all__ = ["first_places", "item_attention", "item_neighbours"]


def item_neighbours(pair_token: Ints, pair_item: Ints, width: int) -> Ints:
    """Which union tokens stand together in an item: places in the flattened table [P, S, S], S = `width`.

    Args:
        pair_token: int64 [pairs], flat position (of P * S) of each distinct token of each item.
        pair_item: int64 [pairs], ascending; the item.

    Returns:
        int64 [sum of the squared numbers of distinct tokens of the items], with repetitions where tokens share
        several items; a token stands together with itself.
    """
    sizes = np.bincount(pair_item)
    starts = np.cumsum(sizes) - sizes
    partners = sizes[pair_item]
    ends = np.cumsum(partners)
    place = np.arange(int(ends[-1])) - np.repeat(ends - partners, partners)
    partner = pair_token[np.repeat(starts[pair_item], partners) + place]
    return np.repeat(pair_token, partners) * width + partner % width


def first_places(pair_token: Ints, pair_position: Ints, size: int) -> Ints:
    """The smallest place that each union token has in any of its items, int64 [size]; 0 where no token is.

    Args:
        pair_token: int64 [pairs], values in [0, size).
        pair_position: int64 [pairs], the token's first place in the item.
    """
    order = np.lexsort((pair_position, pair_token))
    token = pair_token[order]
    first = np.ones(len(token), dtype=bool)
    first[1:] = token[1:] != token[:-1]
    places = np.zeros(size, dtype=np.int64)
    places[token[first]] = pair_position[order][first]
    return places


def item_attention(
    attention_mask: Tensor, sep_token: Tensor, neighbours: Tensor, query_bias: float
) -> Tensor:
    """What is added to the attention logits of joint passes, float32 [P, S, S]: row sees column.

    [CLS], the query and [SEP] see each other and nothing else, so that they do not depend on the items. A union
    token sees them, the query's words with `query_bias` added, and the tokens of `neighbours`.

    Args:
        attention_mask: int64 [P, S].
        sep_token: int64 [P], flat position of each pass's [SEP].
        neighbours: int64, see `item_neighbours`.
        query_bias: added to the logits of union tokens on the query's words.
    """
    passes, width = attention_mask.shape
    column = torch.arange(width, device=attention_mask.device)[None, :]
    sep = (sep_token % width)[:, None]
    of_query = column <= sep
    words = of_query & (column > 0) & (column < sep)
    seen_by_union = torch.where(of_query, query_bias * words, HIDDEN)
    seen_by_query = torch.where(of_query, 0.0, HIDDEN)
    bias = torch.where(of_query[:, :, None], seen_by_query[:, None, :], seen_by_union[:, None, :])
    return bias.flatten().index_fill(0, neighbours, 0.0).view(passes, width, width)
