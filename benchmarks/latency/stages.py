"""Where the time of one `Reranker.rank` goes: the stages of CROSS-JEM and monoBERT, timed apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.contenders import WARMUP, Contender, OwnRanker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, MonoBERT

STAGES = (
    "check and look up",
    "tokenise",
    "union and plan",
    "transfer",
    "encoder",
    "item-side layers",
    "head",
    "sort and result",
)
"""In the order of the path; for monoBERT "union and plan" is sorting by length and padding the pairs."""


def has_stages(contender: Contender) -> bool:
    """Whether the contender is a CROSS-JEM or a monoBERT of this package."""
    return isinstance(contender, OwnRanker) and isinstance(contender.reranker.ranker, CrossJEM | MonoBERT)


def stage_milliseconds(
    contender: OwnRanker, lists: Sequence[RankingList], warmup: int = WARMUP
) -> dict[str, float]:
    """Median milliseconds of each of `STAGES`, and of the whole under "all".

    The calls are the real ones: `Reranker.rank` runs with clocks around the tokeniser, `collate`, the ranker and its
    encoder. On a GPU every boundary waits for the device, so the sum is somewhat larger than the
    latency without clocks. "check and look up" is what comes before `collate`; "transfer" runs from the end of
    `collate` to the beginning of `forward`; "sort and result" from the end of `forward` on: the scores' way back,
    their check, sorting, the returned items.

    Raises:
        RuntimeError: if the encoder was not called as a module, so that there is nothing to time.
    """
    rounds: list[dict[str, float]] = []
    for number, ranking_list in enumerate(lists):
        contender.prepare([ranking_list])
        with _clocks(contender.reranker.ranker) as clocks:
            start = _now()
            contender.rank([ranking_list])
            end = _now()
        if not clocks["encoder"]:
            raise RuntimeError(
                f"{contender.name}: its encoder was not called as a module, so it has no stages"
            )
        if number >= warmup:
            rounds.append(_stages(clocks, start, end))
    return {stage: float(np.median([found[stage] for found in rounds])) for stage in (*STAGES, "all")}


def _stages(clocks: dict[str, list[tuple[float, float]]], start: float, end: float) -> dict[str, float]:
    spent = {part: sum(b - a for a, b in spans) for part, spans in clocks.items()}
    tokenise, item_side = spent["tokenise"], spent.get("item-side layers", 0.0)
    (collate_start, collate_end), (forward_start, forward_end) = clocks["collate"][0], clocks["forward"][0]
    return {
        "check and look up": collate_start - start,
        "tokenise": tokenise,
        "union and plan": collate_end - collate_start - tokenise,
        "transfer": forward_start - collate_end,
        "encoder": spent["encoder"],
        "item-side layers": item_side,
        "head": forward_end - forward_start - spent["encoder"] - item_side,
        "sort and result": end - forward_end,
        "all": end - start,
    }


@contextmanager
def _clocks(ranker: Any) -> Iterator[dict[str, list[tuple[float, float]]]]:
    """Start and end, in milliseconds, of every call of a ranker's parts while the context lasts."""
    encoder, *item_side = ranker.encoders()
    parts = [(ranker, "collate", "collate"), (ranker, "encode_queries", "tokenise")]
    parts += [(ranker, "encode_items", "tokenise"), (ranker, "forward", "forward")]
    parts += [
        (encoder, "forward", "encoder"),
        *((layers, "forward", "item-side layers") for layers in item_side),
    ]
    spans: dict[str, list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        for owner, method, part in parts:
            timed = _timed(getattr(owner, method), spans.setdefault(part, []))
            stack.enter_context(patch.object(owner, method, timed))
        yield spans


def _timed(call: Callable[..., Any], times: list[tuple[float, float]]) -> Callable[..., Any]:
    def timed(*args: Any, **keywords: Any) -> Any:
        start = _now()
        result = call(*args, **keywords)
        times.append((start, _now()))
        return result

    return timed


def _now() -> float:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return 1000 * time.perf_counter()
