"""Scoring heads of CROSS-JEM: from the states of an item's tokens and of its query to one score."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Explanation, TokenContribution
from crossjem_pl.rankers.crossjem.batch import Steps
from crossjem_pl.rankers.neural import NeuralRanker

__all__ = [
    "Contributions",
    "HeadRanker",
    "LinearHead",
    "MatchHead",
    "QueryHead",
    "ScoringHead",
    "TokenStates",
    "best_head",
    "full_precision",
    "sinusoids",
]

_LEAST = 1e-12
"""A norm below counts as this."""


@dataclass
class TokenStates:
    """The states of the tokens of P passes, of which Q each are `[CLS] query [SEP]`, and of R items with T tokens.

    Args:
        context: float32 [P, Q, width].
        context_mask: bool [P, Q], True on [CLS], query and [SEP].
        word_mask: bool [P, Q], True on the query's tokens.
        states: float32 [B, L, width], blocks of one pass each.
        state_pass: int64 [B], the pass of each block.
        item_rows: int64 [R, T], which of the B * L states are the tokens of each item; padding is masked.
        item_mask: bool [R, T].
        item_positions: int64 [R, T], the tokens' (first) positions in the item.
        item_pass: int64 [R].
    """

    context: Tensor
    context_mask: Tensor
    word_mask: Tensor
    states: Tensor
    state_pass: Tensor
    item_rows: Tensor
    item_mask: Tensor
    item_positions: Tensor
    item_pass: Tensor

    def of_items(self, values: Tensor) -> Tensor:
        """[R, T, ...]: of what there is for each of the states [B, L, ...], that of the items' tokens."""
        flat = values.flatten(0, 1)
        return flat[self.item_rows] if flat.ndim == 1 else F.embedding(self.item_rows, flat)

    def products(self, vectors: Tensor) -> Tensor:
        """[R, T, K]: the dot products of the items' tokens with the K vectors of their pass, [P, K, width]."""
        own = F.embedding(self.state_pass, vectors.flatten(1)).unflatten(1, vectors.shape[1:])
        return self.of_items(self.states @ own.transpose(1, 2))

    @property
    def lengths(self) -> Tensor:
        """float32 [R], how many tokens each item has, at least 1."""
        return self.item_mask.sum(1).clamp(min=1).float()

    @property
    def sum_norms(self) -> Tensor:
        """float32 [R, 1], the norm of the sum of each item's states, above 0."""
        total = self.item_mask.float()[:, None, :] @ self.of_items(self.states)
        return total[:, 0].norm(dim=-1, keepdim=True).clamp(min=_LEAST)

    def mean_query(self, of_query: Tensor) -> Tensor:
        """float32 [P, 1, width], the mean of the context's states `of_query`, bool [P, Q], at length 1."""
        words = of_query.float() / of_query.sum(1, keepdim=True).clamp(min=1)
        return F.normalize(words[:, None, :] @ self.context, dim=-1)


@dataclass
class Contributions:
    """An exact decomposition: the values of an item sum to its score.

    Args:
        items: float32 [R, T], what each token of the item adds; 0 on padding.
        context: float32 [R, Q], what each token of `[CLS] query [SEP]` adds; None if the head reads none of them.
        constant: float32 [1], what every item gets alike (the classifier's bias); None for nothing.
    """

    items: Tensor
    context: Tensor | None = None
    constant: Tensor | None = None

    def scores(self) -> Tensor:
        """float32 [R]."""
        total = self.items.sum(1)
        if self.context is not None:
            total = total + self.context.sum(1)
        return total if self.constant is None else total + self.constant


class ScoringHead(nn.Module, ABC):
    """One score per item, as a sum of what its tokens and the query's contribute."""

    def __init__(self, init_args: dict[str, Any]) -> None:
        super().__init__()
        self.init_args = init_args

    def build(self, width: int, max_item_tokens: int) -> None:
        """Creates the parameters for states of `width`; heads without such parameters leave it empty."""

    @abstractmethod
    def contributions(self, tokens: TokenStates) -> Contributions:
        """What every token adds to every score."""

    def forward(self, tokens: TokenStates) -> Tensor:
        """Scores, float32 [R]."""
        return self.contributions(tokens).scores()


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

    sinusoids: Tensor

    def __init__(self, positions: bool = False, pool_cls: bool = False, bias: bool = True) -> None:
        super().__init__({"positions": positions, "pool_cls": pool_cls, "bias": bias})
        self.positions, self.pool_cls, self.bias = positions, pool_cls, bias

    def build(self, width: int, max_item_tokens: int) -> None:
        self.classifier = nn.Linear(width, 1, bias=self.bias)
        if self.positions:
            self.register_buffer("sinusoids", sinusoids(max_item_tokens, width), persistent=False)

    def contributions(self, tokens: TokenStates) -> Contributions:
        weight = self.classifier.weight[0].float()
        z = tokens.of_items(tokens.states @ weight)
        if self.positions:
            z = z + (self.sinusoids.float() @ weight)[tokens.item_positions]
        pool = (
            tokens.context_mask if self.pool_cls else F.pad(tokens.context_mask[:, 1:], (1, 0), value=False)
        )
        size = (tokens.lengths + pool.sum(1)[tokens.item_pass])[:, None]
        context = ((tokens.context @ weight) * pool)[tokens.item_pass]
        return Contributions(z * tokens.item_mask / size, context / size, self.classifier.bias)


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

    def contributions(self, tokens: TokenStates) -> Contributions:
        means = tokens.products(tokens.mean_query(tokens.word_mask))[..., 0] * tokens.item_mask
        return Contributions(self.scale.float() * means / tokens.sum_norms)


class MatchHead(ScoringHead):
    """The means' cosine and the best matches of single tokens, in both directions.

    f_j = s_1 <v_j, u> / (|v_j| |u|) + s_2 R_j + s_3 P_j, with v_j = mean of the item's token embeddings, u = mean of
    the query's, R_j = mean over query tokens of the best cosine with a token of item j, P_j = mean over the item's
    tokens of the best cosine with a query token. R and P are BERTScore's recall and precision (Zhang et al., 2020) on
    contextual embeddings that have met. All three scales are learned.

    Args:
        scale: where the scales start.
        precision_scale: where s_3 starts; None for `scale`. Before any training a quarter of it ranks best: an item's
            words that match nothing say less against it than a query's.
        whole_query: whether [CLS] and [SEP] join the query's mean u, as in the mean of a sentence encoder.
    """

    def __init__(
        self, scale: float = 10.0, precision_scale: float | None = None, whole_query: bool = False
    ) -> None:
        more = {"precision_scale": precision_scale, "whole_query": whole_query or None}
        # what is not given is not stored, so that the same head of an older folder, which has a scale alone, is equal
        super().__init__(
            {"scale": scale} | {name: value for name, value in more.items() if value is not None}
        )
        self.whole_query = whole_query
        last = scale if precision_scale is None else precision_scale
        self.scale = nn.Parameter(torch.tensor([scale, scale, last], dtype=torch.float32))

    def contributions(self, tokens: TokenStates) -> Contributions:
        query = tokens.mean_query(tokens.context_mask if self.whole_query else tokens.word_mask)
        products = tokens.products(torch.cat([F.normalize(tokens.context, dim=-1), query], dim=1))
        norms = tokens.of_items(tokens.states.norm(dim=-1).clamp(min=_LEAST))[:, :, None]
        similarity = products[..., :-1] / norms  # [R, T, Q]
        word, item = tokens.word_mask[tokens.item_pass][:, None, :], tokens.item_mask[:, :, None]
        # the best match of each word; equal matches share it
        best = similarity.masked_fill(~item, -torch.inf).amax(1, keepdim=True)
        hits = (similarity == best) & item & word
        share = hits / hits.sum(1, keepdim=True).clamp(min=1) / word.sum(2, keepdim=True).clamp(min=1)
        recall = (similarity * share).sum(2)
        # -1 is the least cosine: it stands for a query without words
        precision = similarity.masked_fill(~word, -1.0).amax(2) * tokens.item_mask / tokens.lengths[:, None]
        means = products[..., -1] * tokens.item_mask / tokens.sum_norms
        return Contributions(torch.stack([means, recall, precision], dim=2) @ self.scale.float())


def best_head() -> MatchHead:
    """The head of the recommended form."""
    return MatchHead(precision_scale=2.5, whole_query=True)


class HeadRanker(NeuralRanker):
    """A ranker whose score is what a scoring head makes of token states, and which can therefore explain it.

    Attributes:
        steps: the multiples to which `collate` pads, see `Steps`.
    """

    head: ScoringHead
    steps: Steps

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        return super().from_folder(folder, {**init_args, "head": _read_head(init_args["head"], folder)})

    def pad_to_few_shapes(self) -> None:
        self.steps = Steps(4, 64, 64, 64)

    def apply_head(self, states: TokenStates) -> Tensor:
        """Scores of distinct items, float32 [R]."""
        with full_precision(states.context.device):
            return self.head(states).float()

    @property
    def explains_every_token(self) -> bool:
        """Whether the head reads all tokens of an item in its order, and not each once by its id."""
        return True

    @torch.no_grad()
    def explain(self, ranking_list: RankingList) -> list[Explanation]:
        batch = self.collate([ranking_list]).to(next(self.parameters()).device)
        seen: list[TokenStates] = []

        def note(states: TokenStates) -> Tensor:
            seen.append(states)
            return states.lengths

        reader = copy.copy(self)  # other threads score with this one
        reader.apply_head = note  # type: ignore[method-assign]
        for run in batch.runs:
            reader.score_run(**run)
        hf, tokens = self.tokenizer.hf, self.encode_items([ranking_list]).tokens
        query = self.encode_queries([ranking_list]).tokens.values.tolist()
        context = hf.convert_ids_to_tokens([hf.cls_token_id, *query, hf.sep_token_id])
        kinds: list[Any] = ["special", *["query"] * len(query), "special"]
        columns: list[tuple[float, list[float], list[float]]] = []  # score and contributions of each output
        bias: list[TokenContribution] = []
        for states in seen:
            with full_precision(states.context.device):
                parts = self.head.contributions(states)
            outside = parts.items.new_zeros(len(parts.items), 0) if parts.context is None else parts.context
            columns += zip(parts.scores().tolist(), parts.items.tolist(), outside.tolist(), strict=True)
            if parts.constant is not None:
                bias = [TokenContribution("", "bias", float(parts.constant))]
        explained = []
        for number, (text, place) in enumerate(
            zip(ranking_list.items, batch.places[0].tolist(), strict=True)
        ):
            ids, (score, of_item, of_context) = tokens.row(number).tolist(), columns[place]
            pieces = hf.convert_ids_to_tokens(ids if self.explains_every_token else sorted(set(ids)))
            # values behind the last piece are padding, and a token of the context with 0 is not in the pool
            made = [TokenContribution(piece, "item", x) for piece, x in zip(pieces, of_item, strict=False)]
            around = zip(context, kinds, of_context, strict=False)
            made += [TokenContribution(piece, kind, x) for piece, kind, x in around if x]
            explained.append(Explanation(text, score, (*made, *bias)))
        return explained


def _read_head(stored: dict[str, Any], folder: str) -> ScoringHead:
    """The head that a model folder describes, without its weights."""
    kind = {cls.__name__: cls for cls in (LinearHead, QueryHead, MatchHead)}.get(stored["class"])
    if kind is None:
        raise ValueError(f"{folder}: unknown scoring head {stored['class']!r}")
    return kind(**stored["init_args"])


def full_precision(device: torch.device) -> Any:
    """Outside any autocast: heads compute in float32."""
    kind = device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def sinusoids(positions: int, width: int) -> Tensor:
    """Sinusoidal position encodings (Vaswani et al., 2017), float32 [positions, width].

    PE(p, 2i) = sin(p / 10000^(2i/width)), PE(p, 2i+1) = cos(p / 10000^(2i/width)).
    """
    position = torch.arange(positions, dtype=torch.float32)[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float32)
    angle = position * torch.exp(even * (-math.log(10000.0) / width))
    table = torch.zeros(positions, width)
    table[:, 0::2] = torch.sin(angle)
    table[:, 1::2] = torch.cos(angle)[:, : width // 2]
    return table
