"""Inference time of the systems at several list lengths, in turn on the same lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from benchmarks.latency.contenders import OwnRanker
from benchmarks.latency.turns import WARMUP, measured_lists
from benchmarks.measuring.clock import milliseconds
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.configuration import Configuration
from crossjem_pl.rankers.base import Ranker

__all__ = ["Cost", "inference_cost"]

Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Cost:
    """Milliseconds a list, one value per round.

    Args:
        scoring: from tensors to scores: encoder and pooling.
        whole: from texts to sorted items, nothing tokenised ahead.
    """

    scoring: tuple[float, ...]
    whole: tuple[float, ...]


@torch.inference_mode()
def inference_cost(
    rankers: Mapping[str, Ranker], sizes: Sequence[int], rounds: int, precision: Precision
) -> dict[str, dict[int, Cost]]:
    """Ranker -> items -> cost, on simulated keyword lists. Vectors of items that can be kept are computed ahead."""
    contenders = {
        name: OwnRanker(name, _stored(ranker, precision), False, precision)
        for name, ranker in rankers.items()
    }
    out: dict[str, dict[int, Cost]] = {name: {} for name in rankers}
    for items in sizes:
        scoring: dict[str, list[float]] = {name: [] for name in rankers}
        whole: dict[str, list[float]] = {name: [] for name in rankers}
        for number, one in enumerate(measured_lists(items, rounds)):
            for name, contender in contenders.items():
                contender.prepare([one])
                spent = contender.milliseconds([one])
                alone = _scoring(contender, one, precision)
                if number >= WARMUP:
                    whole[name].append(spent)
                    scoring[name].append(alone)
        for name in rankers:
            out[name][items] = Cost(tuple(scoring[name]), tuple(whole[name]))
    return out


def _stored(ranker: Ranker, precision: Precision) -> Reranker:
    """The ranker with its matrices kept in the precision, as `tune` leaves it."""
    reranker = Reranker(ranker, "cpu")
    reranker.configure(Configuration(precision))
    return reranker


def _scoring(contender: OwnRanker, one: object, precision: Precision) -> float:
    device, ranker = contender.device, contender.reranker.ranker
    batch = ranker.collate([one]).to(device)  # type: ignore[list-item]
    lower = precision != "float32"
    with torch.autocast(device.type, dtype=getattr(torch, precision) if lower else None, enabled=lower):
        return milliseconds(lambda: ranker(batch), device)
