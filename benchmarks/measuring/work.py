"""Floating-point operations and bytes of a forward pass, from the encoder's configuration and the padded batch.

A layer of width d and inner width f, for sequences of T tokens (the padded length: padding is multiplied like the
rest), a multiplication and its addition counted as two:

    operations = (8 d^2 + 4 d f) T + 4 d T K        K: keys that a token may attend to; T inside one sequence

8 d^2 are the query, key, value and output matrices, 4 d f the feed-forward part (6 d f with a gate), 4 d T K the
attention weights and their sums. monoBERT's [CLS] goes on through the pooler and the classifier, 2 d^2 + 2 d a pair;
CROSS-JEM's linear head projects every token once, 2 d a token; the MaxSim and match heads multiply it with each of the
query's Q tokens, 2 d Q. Left out, small beside this: embeddings, normalisation, activation, softmax.

    bytes = s * (passes * W  +  (18 d + 4 f) * T * layers)

s: bytes of a number; W: the layers' weights, read once for each group of sequences that goes through together;
18 d + 4 f: what a token's matrices, activation, normalisation and residuals read and write in a layer if every
operation's result goes to memory and comes back. Caches and fused kernels save some of it, the attention weights of an
unfused attention add to it, and autocast reads the float32 weights once more: it is an estimate of the traffic, to see
whether a model is bound by arithmetic or by memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import PretrainedConfig

from crossjem_pl.data.overlap import EncoderShape
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, DualRanker, MonoBERT, Ranker, SetEncoder, SharedQuery
from crossjem_pl.rankers.crossjem.heads import LinearHead, MatchHead, MaxSimHead
from crossjem_pl.rankers.dual.colbert import ColBERT
from crossjem_pl.rankers.dual.towers import DecoupledBatch
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.rankers.pairwise.context_attention import group
from crossjem_pl.rankers.pairwise.packed_attention import Packing, pack

__all__ = ["Work", "layer_work", "pair_work", "ranker_work", "shape_of"]


@dataclass(frozen=True)
class Work:
    """What one forward pass does.

    Args:
        flops: floating-point operations.
        numbers: numbers read and written; times the bytes of a number it is the traffic.
        tokens: positions that go through the encoder, padding included.
    """

    flops: float
    numbers: float
    tokens: int

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.numbers + other.numbers, self.tokens + other.tokens)

    def bytes(self, precision: str) -> float:
        """The traffic in this precision."""
        return self.numbers * getattr(torch, precision).itemsize


def shape_of(config: PretrainedConfig) -> EncoderShape:
    """The sizes in an encoder's configuration.

    Raises:
        ValueError: if it does not tell them.
    """
    width, layers = getattr(config, "hidden_size", None), getattr(config, "num_hidden_layers", None)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "hidden_dim", None)
    if not (width and layers and inner):
        raise ValueError(f"the configuration of {config.model_type} does not tell its sizes")
    return EncoderShape(int(width), int(inner), int(layers), config.model_type in ("modernbert", "eurobert"))


def layer_work(shape: EncoderShape, tokens: int, attended: float, passes: int = 1) -> Work:
    """The work of all layers.

    Args:
        shape: of the encoder.
        tokens: positions, padding included.
        attended: the sum over positions of the keys that each may attend to, padding included.
        passes: how often the weights are read.
    """
    d, f = shape.width, shape.feed_forward
    weights = 4 * d * d + (3 if shape.gated else 2) * d * f
    flops = shape.layers * (2.0 * weights * tokens + 4.0 * d * attended)
    numbers = shape.layers * (float(passes) * weights + (18 * d + 4 * f) * float(tokens))
    return Work(flops, numbers, tokens)


def pair_work(shape: EncoderShape, groups: Sequence[tuple[int, int]]) -> Work:
    """A pointwise cross-encoder with pooler and classifier, for groups of (pairs, padded length)."""
    tokens = sum(rows * length for rows, length in groups)
    attended = sum(rows * length**2 for rows, length in groups)
    pairs, d = sum(rows for rows, _ in groups), shape.width
    return layer_work(shape, tokens, attended, len(groups)) + Work(2.0 * pairs * (d * d + d), 0.0, 0)


def ranker_work(ranker: Ranker, lists: Sequence[RankingList]) -> Work | None:
    """The work of scoring `lists` in one batch; None for rankers whose cost this module does not know.

    Rankers with item vectors computed ahead are counted without them: only the queries are encoded, and the
    comparison of vectors is left out.
    """
    if not isinstance(ranker, NeuralRanker):
        return None
    batch: Any = ranker.collate(lists)
    if isinstance(ranker, CrossJEM):
        return _joint(ranker, batch)
    if isinstance(ranker, MonoBERT):
        return pair_work(shape_of(ranker.encoder_config), [_size(run) for run in batch.runs])
    if isinstance(ranker, SetEncoder | SharedQuery):
        return _packed(ranker, batch.runs)
    if isinstance(ranker, DualRanker | ColBERT):
        return _queries(ranker, batch)
    return None


def _joint(ranker: CrossJEM, batch: Any) -> Work:
    whole = shape_of(ranker.encoder_config)
    split = 0 if ranker.split_layers is None else len(ranker.split_layers.layers)
    shape = replace(whole, layers=whole.layers - split)
    sizes = _encoder_calls(ranker, batch)
    tokens = sum(passes * length for passes, length in sizes)
    work = layer_work(shape, tokens, sum(passes * length**2 for passes, length in sizes), len(sizes))
    work += _head(ranker, batch, tokens)
    if ranker.item_layers is not None:
        own, longest = len(batch.own_token), int(batch.own_position.max()) + 1
        small = EncoderShape(shape.width, shape.feed_forward, len(ranker.item_layers.layers))
        work += layer_work(small, own, float(len(batch.item_pass)) * longest**2)
    if split:
        rows, context = batch.context_token.shape
        packing = pack(batch.own_item, batch.own_position, len(batch.item_pass))
        attended = rows * context**2 + _grouped(packing, batch.item_pass, context)
        copies = rows * context + len(batch.own_token)
        work += layer_work(replace(whole, layers=split), copies, float(attended))
        assert ranker.split_layers is not None
        if (
            ranker.split_layers.shares_projections
        ):  # queries, keys and values of the first, once for each token
            work += Work(6.0 * shape.width**2 * (batch.input_ids.numel() - copies), 0.0, 0)
    return work


def _head(ranker: CrossJEM, batch: Any, tokens: int) -> Work:
    """What the head multiplies `tokens` joint embeddings with, or the items' own where layers run inside the items."""
    apart = ranker.item_layers is not None or ranker.split_layers is not None
    d, own = ranker.encoder_config.hidden_size, len(batch.own_token) if apart else tokens
    if isinstance(ranker.head, MaxSimHead | MatchHead):
        return Work(2.0 * d * own * int(torch.bincount(batch.query_pass).max()), 0.0, 0)
    return Work(2.0 * d * tokens, 0.0, 0) if isinstance(ranker.head, LinearHead) else Work(0.0, 0.0, 0)


def _grouped(packing: Packing, context_of: torch.Tensor, context: int) -> int:
    """What sequences attend to that lie in groups with a context of so many tokens: both padded."""
    groups, longest = group(packing, context_of).rows.shape
    return groups * longest * (context + longest)


@torch.inference_mode()
def _encoder_calls(ranker: CrossJEM, batch: Any) -> list[tuple[int, int]]:
    """Rows and padded length of each call of the encoder: which passes run together depends on the device."""
    sizes: list[tuple[int, int]] = []

    def see(_: torch.nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        rows, length = (keywords["input_ids"] if "input_ids" in keywords else args[0]).shape
        sizes.append((rows, length))

    hook = ranker.encoder.register_forward_pre_hook(see, with_kwargs=True)
    try:
        ranker(batch.to(next(ranker.encoder.parameters()).device))
    finally:
        hook.remove()
    return sizes


def _packed(ranker: SetEncoder | SharedQuery, runs: list[dict[str, torch.Tensor]]) -> Work:
    """Sequences without padding, in padded rows of attention."""
    tokens = sum(run["tokens"].shape[1] for run in runs)
    attended = sum(run["rows"][0].numel() * run["keys"].shape[2] for run in runs)
    return layer_work(shape_of(ranker.encoder_config), tokens, float(attended), len(runs))


def _queries(ranker: DualRanker | ColBERT, batch: DecoupledBatch) -> Work | None:
    config = ranker.encoder_config if isinstance(ranker, ColBERT) else ranker.tower("query").encoder.config
    if getattr(config, "is_encoder_decoder", False):  # a T5 tower
        return None
    shape = shape_of(config)  # type: ignore[arg-type]
    sizes = np.array([group["input_ids"].shape for group in batch.queries.groups])
    return layer_work(
        shape, int(sizes.prod(1).sum()), float((sizes[:, 0] * sizes[:, 1] ** 2).sum()), len(sizes)
    )


def _size(group: dict[str, torch.Tensor]) -> tuple[int, int]:
    rows, length = group["input_ids"].shape
    return rows, length
