"""Scoring heads of CROSS-JEM: from the token embeddings of joint passes to one score per item."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossjem_pl.rankers.crossjem.segments import segment_max, segment_mean, segment_sum

__all__ = [
    "Contributions",
    "JointTokens",
    "LinearHead",
    "MatchHead",
    "MaxSimHead",
    "QueryHead",
    "ScoringHead",
    "sinusoids",
]


@dataclass
class JointTokens:
    """The token embeddings of P passes and the flat index pairs that say which item holds which token.

    Args:
        embeddings: float32 [M, width], all positions of all passes end to end.
        query_token: int64 [K], positions in `embeddings` of the query's tokens, [CLS] and [SEP] left out.
        query_pass: int64 [K], the pass of each of them.
        cls_token: int64 [P], position of each pass's [CLS].
        sep_token: int64 [P], position of each pass's [SEP].
        item_pass: int64 [I], the pass of each item.
        item_embeddings: float32 [E, width]; the same tensor as `embeddings`, or what the item layers made of
            it.
        pair_token: int64 [pairs], rows of `item_embeddings`.
        pair_item: int64 [pairs], ascending; the item that holds the token.
        pair_position: int64 [pairs], the token's (first) position inside the item.
    """

    embeddings: Tensor
    query_token: Tensor
    query_pass: Tensor
    cls_token: Tensor
    sep_token: Tensor
    item_pass: Tensor
    item_embeddings: Tensor
    pair_token: Tensor
    pair_item: Tensor
    pair_position: Tensor

    @property
    def passes(self) -> int:
        return self.sep_token.shape[0]

    @property
    def items(self) -> int:
        return self.item_pass.shape[0]


@dataclass
class Contributions:
    """An exact decomposition: the values of an item, plus `constant`, sum to its score.

    Args:
        pair: float32 [pairs], what each pair (item, token) of the item adds.
        context_item: int64 [C], the item that a context token adds to.
        context_token: int64 [C], position in `JointTokens.embeddings` of the context token.
        context: float32 [C], what it adds.
        constant: what every item gets alike (the classifier's bias).
    """

    pair: Tensor
    context_item: Tensor
    context_token: Tensor
    context: Tensor
    constant: float


class ScoringHead(nn.Module, ABC):
    """One score per item from `JointTokens`, with segment operations, never an items x tokens mask."""

    def __init__(self, init_args: dict[str, Any]) -> None:
        super().__init__()
        self.init_args = init_args

    def build(self, width: int) -> None:
        """Creates the parameters for embeddings of `width`; heads without such parameters leave it empty."""

    @abstractmethod
    def forward(self, tokens: JointTokens) -> Tensor:
        """Scores, float32 [I]."""

    @abstractmethod
    def contributions(self, tokens: JointTokens) -> Contributions:
        """What every token adds to every score, exactly."""


class LinearHead(ScoringHead):
    """The paper's selective mean pooling and linear classifier (section 3.1), computed as scalars.

    f_j = <w, mean over pool j of e_t> + b with pool j = the query's tokens, [SEP] and the item's distinct
    tokens. Mean and classifier are linear, so each token is projected once, z_t = <w, e_t>, and scalars are
    averaged: O(M width + pairs) instead of O(I M width). With `positions`, the sinusoid of the token's first
    position inside the item is added before pooling (Table 6b): z_t + <w, PE(p)>. The mean of these sums does
    not tell which token stood where: items of the same distinct tokens differ only if repeats move first
    positions.

    Args:
        positions: the positional variant of Table 6b.
        pool_cls: whether [CLS] joins the pool (not in the paper).
        bias: whether the classifier has a bias (the same for all items: no effect on the ranking).
    """

    def __init__(self, positions: bool = False, pool_cls: bool = False, bias: bool = True) -> None:
        super().__init__({"positions": positions, "pool_cls": pool_cls, "bias": bias})
        self.positions, self.pool_cls, self.bias = positions, pool_cls, bias

    def build(self, width: int) -> None:
        self.classifier = nn.Linear(width, 1, bias=self.bias)

    def forward(self, tokens: JointTokens) -> Tensor:
        z, pair_z = self._project(tokens)
        context_token, context_pass = self._context(tokens)
        context = segment_sum(z[context_token], context_pass, tokens.passes)
        total = context[tokens.item_pass] + segment_sum(pair_z, tokens.pair_item, tokens.items)
        return total / self._pool_sizes(tokens, context_pass) + self._constant()

    def contributions(self, tokens: JointTokens) -> Contributions:
        z, pair_z = self._project(tokens)
        context_token, context_pass = self._context(tokens)
        sizes = self._pool_sizes(tokens, context_pass)
        item, context = torch.nonzero(tokens.item_pass[:, None] == context_pass[None, :], as_tuple=True)
        bias = self.classifier.bias
        return Contributions(
            pair=pair_z / sizes[tokens.pair_item],
            context_item=item,
            context_token=context_token[context],
            context=z[context_token[context]] / sizes[item],
            constant=0.0 if bias is None else float(bias),
        )

    def _project(self, tokens: JointTokens) -> tuple[Tensor, Tensor]:
        weight = self.classifier.weight[0]
        z = tokens.embeddings @ weight
        z_items = z if tokens.item_embeddings is tokens.embeddings else tokens.item_embeddings @ weight
        pair_z = z_items[tokens.pair_token]
        if self.positions:
            table = sinusoids(int(tokens.pair_position.max()) + 1, weight.shape[0], weight.device)
            pair_z = pair_z + (table @ weight)[tokens.pair_position]
        return z, pair_z

    def _context(self, tokens: JointTokens) -> tuple[Tensor, Tensor]:
        passes = torch.arange(tokens.passes, device=tokens.sep_token.device)
        token, of_pass = [tokens.query_token, tokens.sep_token], [tokens.query_pass, passes]
        if self.pool_cls:
            token, of_pass = [*token, tokens.cls_token], [*of_pass, passes]
        return torch.cat(token), torch.cat(of_pass)

    def _pool_sizes(self, tokens: JointTokens, context_pass: Tensor) -> Tensor:
        context = torch.bincount(context_pass, minlength=tokens.passes)
        own = torch.bincount(tokens.pair_item, minlength=tokens.items)
        return (context[tokens.item_pass] + own).to(torch.float32)

    def _constant(self) -> Tensor | float:
        return 0.0 if self.classifier.bias is None else self.classifier.bias


class QueryHead(ScoringHead):
    """Scaled cosine between an item's mean embedding and the query's, both from the joint encoding.

    f_j = s <v_j, u> / (|v_j| |u|), v_j = mean of the item's token embeddings, u = mean of the query's. The
    scale s is learned. The dot product is a sum over the item's tokens, so explanations stay exact.

    Args:
        scale: where s starts. 10 measured best; 1 gives up the head's gain over a linear classifier.
    """

    def __init__(self, scale: float = 10.0) -> None:
        super().__init__({"scale": scale})
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def forward(self, tokens: JointTokens) -> Tensor:
        return self.scale * _mean_cosines(tokens)

    def contributions(self, tokens: JointTokens) -> Contributions:
        return _only_pairs(self.scale * _mean_cosine_parts(tokens))


class MaxSimHead(ScoringHead):
    """Late interaction inside the joint encoding: mean over query tokens of the best matching item token.

    f_j = s / L_q * sum over query tokens i of max over tokens t of item j of cos(e_i, e_t), plus a linear
    term as in `LinearHead` if asked for.

    Args:
        scale: where the learned scale s starts.
        linear: whether the paper's linear score is added.
    """

    def __init__(self, scale: float = 10.0, linear: bool = False) -> None:
        super().__init__({"scale": scale, "linear": linear})
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.linear = LinearHead() if linear else None

    def build(self, width: int) -> None:
        if self.linear is not None:
            self.linear.build(width)

    def forward(self, tokens: JointTokens) -> Tensor:
        score = self.scale * _recall(tokens, *_similarity(tokens))
        return score if self.linear is None else score + self.linear(tokens)

    def contributions(self, tokens: JointTokens) -> Contributions:
        pair = self.scale * _recall_parts(tokens, *_similarity(tokens))
        if self.linear is None:
            return _only_pairs(pair)
        parts = self.linear.contributions(tokens)
        parts.pair = parts.pair + pair
        return parts


class MatchHead(ScoringHead):
    """The means' cosine and the best matches of single tokens, in both directions.

    f_j = s_1 <v_j, u> / (|v_j| |u|) + s_2 R_j + s_3 P_j, with `QueryHead`'s means, R_j = mean over query tokens of the
    best cosine with a token of item j (`MaxSimHead`), P_j = mean over the item's tokens of the best cosine with a
    query token. R and P are BERTScore's recall and precision (Zhang et al., 2020) on contextual embeddings that have
    met. All three scales are learned.

    Args:
        scale: where the scales start.
    """

    def __init__(self, scale: float = 10.0) -> None:
        super().__init__({"scale": scale})
        self.scale = nn.Parameter(torch.full((3,), float(scale)))

    def forward(self, tokens: JointTokens) -> Tensor:
        similarity, valid = _similarity(tokens)
        precision = segment_sum(_precision_parts(tokens, similarity, valid), tokens.pair_item, tokens.items)
        parts = [_mean_cosines(tokens), _recall(tokens, similarity, valid), precision]
        return torch.stack(parts, dim=1) @ self.scale

    def contributions(self, tokens: JointTokens) -> Contributions:
        similarity, valid = _similarity(tokens)
        parts = [
            _mean_cosine_parts(tokens),
            _recall_parts(tokens, similarity, valid),
            _precision_parts(tokens, similarity, valid),
        ]
        return _only_pairs(torch.stack(parts, dim=1) @ self.scale)


def _means(tokens: JointTokens) -> tuple[Tensor, Tensor]:
    """The query's mean of each pass, normalised [P, width], and each item's mean [I, width]."""
    query = segment_mean(tokens.embeddings[tokens.query_token], tokens.query_pass, tokens.passes)
    sizes = torch.bincount(tokens.pair_item, minlength=tokens.items)
    mean = F.embedding_bag(tokens.pair_token, tokens.item_embeddings, sizes.cumsum(0) - sizes, mode="mean")
    return F.normalize(query, dim=-1), mean


def _mean_cosines(tokens: JointTokens) -> Tensor:
    """Cosine of each item's mean with its query's, [I]."""
    query, mean = _means(tokens)
    return (F.normalize(mean, dim=-1) * query[tokens.item_pass]).sum(-1)


def _mean_cosine_parts(tokens: JointTokens) -> Tensor:
    """What each pair adds to `_mean_cosines`, [pairs]."""
    query, mean = _means(tokens)
    sizes = torch.bincount(tokens.pair_item, minlength=tokens.items)
    norms = mean.norm(dim=-1).clamp(min=1e-12) * sizes
    dots = (tokens.item_embeddings[tokens.pair_token] * _of_pairs(query, tokens)).sum(-1)
    return dots / norms[tokens.pair_item]


def _recall(tokens: JointTokens, similarity: Tensor, valid: Tensor) -> Tensor:
    """Mean over the query's tokens of the best match in each item, [I]."""
    best = segment_max(similarity, tokens.pair_item, tokens.items)
    return (best * _mean_weights(valid)[tokens.item_pass]).sum(-1)


def _recall_parts(tokens: JointTokens, similarity: Tensor, valid: Tensor) -> Tensor:
    """What each pair adds to `_recall`, [pairs]; equal matches share."""
    best = segment_max(similarity, tokens.pair_item, tokens.items)
    hit = similarity == best[tokens.pair_item]
    share = hit / segment_sum(hit.float(), tokens.pair_item, tokens.items)[tokens.pair_item]
    return (similarity * share * _of_pairs(_mean_weights(valid), tokens)).sum(-1)


def _precision_parts(tokens: JointTokens, similarity: Tensor, valid: Tensor) -> Tensor:
    """Best match of each pair's token in the query over the item's number of tokens, [pairs]."""
    # -1 is the least cosine; the column that is added stands for a query without tokens
    words = F.pad(similarity.masked_fill(~_of_pairs(valid, tokens), -1.0), (0, 1), value=-1.0)
    sizes = torch.bincount(tokens.pair_item, minlength=tokens.items)
    return words.amax(1) / sizes[tokens.pair_item]


def _mean_weights(valid: Tensor) -> Tensor:
    return valid / valid.sum(1, keepdim=True).clamp(min=1)


def _of_pairs(of_passes: Tensor, tokens: JointTokens) -> Tensor:
    """The row of each pair's pass."""
    return of_passes[tokens.item_pass[tokens.pair_item]]


def _similarity(tokens: JointTokens) -> tuple[Tensor, Tensor]:
    """Cosines of each pair's token with its pass's query tokens [pairs, L_q], which of these there are [P, L_q]."""
    counts = torch.bincount(tokens.query_pass, minlength=tokens.passes)
    slot = (
        torch.arange(len(tokens.query_pass), device=counts.device)
        - (counts.cumsum(0) - counts)[tokens.query_pass]
    )
    width = tokens.embeddings.shape[1]
    query = torch.zeros(tokens.passes, int(counts.max()), width, device=counts.device)
    query = query.index_put(
        (tokens.query_pass, slot), F.normalize(tokens.embeddings[tokens.query_token], dim=-1)
    )
    valid = torch.arange(query.shape[1], device=counts.device)[None, :] < counts[:, None]

    # a token meets its pass's query once, however many items hold it
    token, pair = torch.unique(tokens.pair_token, return_inverse=True)
    token_pass = torch.empty_like(token).scatter_(0, pair, tokens.item_pass[tokens.pair_item])
    # only rows of one pass meet: sort the tokens by pass, pad, multiply pass by pass, undo
    order = torch.argsort(token_pass, stable=True)
    sizes = torch.bincount(token_pass, minlength=tokens.passes)
    place = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[token_pass[order]]
    rows = torch.zeros(tokens.passes, int(sizes.max()), width, device=counts.device)
    items = F.normalize(tokens.item_embeddings[token], dim=-1)
    rows = rows.index_put((token_pass[order], place), items[order])
    similarity = torch.bmm(rows, query.transpose(1, 2))[token_pass[order], place]
    return torch.empty_like(similarity).index_copy(0, order, similarity)[pair], valid


def sinusoids(positions: int, width: int, device: torch.device | None = None) -> Tensor:
    """Sinusoidal position encodings (Vaswani et al., 2017), float32 [positions, width].

    PE(p, 2i) = sin(p / 10000^(2i/width)), PE(p, 2i+1) = cos(p / 10000^(2i/width)).
    """
    position = torch.arange(positions, dtype=torch.float32, device=device)[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float32, device=device)
    angle = position * torch.exp(even * (-math.log(10000.0) / width))
    table = torch.zeros(positions, width, device=device)
    table[:, 0::2] = torch.sin(angle)
    table[:, 1::2] = torch.cos(angle)[:, : width // 2]
    return table


def _only_pairs(pair: Tensor) -> Contributions:
    none = torch.empty(0, dtype=torch.long, device=pair.device)
    return Contributions(pair=pair, context_item=none, context_token=none, context=pair[:0], constant=0.0)
