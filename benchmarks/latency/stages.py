"""Where the time of one `Reranker.rank` goes: the stages of CROSS-JEM and monoBERT, timed apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from torch import nn

from benchmarks.latency.contenders import OwnRanker
from benchmarks.measuring.clock import synchronise
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM, MonoBERT
from crossjem_pl.rankers.neural import NeuralRanker

__all__ = ["STAGES", "has_stages", "stage_milliseconds"]

STAGES = (
    "check and look up",
    "tokenise",
    "union and plan",
    "transfer",
    "encoder",
    "item layers",
    "head",
    "sort and result",
)
"""In the order of the path; for monoBERT "union and plan" is sorting by length and padding the pairs."""


def has_stages(contender: object) -> bool:
    """Whether the contender is a CROSS-JEM or a monoBERT of this package."""
    return isinstance(contender, OwnRanker) and isinstance(contender.reranker.ranker, CrossJEM | MonoBERT)


def stage_milliseconds(
    contender: OwnRanker, lists: Sequence[RankingList], warmup: int = 2
) -> dict[str, float]:
    """Median milliseconds of each of `STAGES`, and of the whole under "all".

    The calls are the real ones: `Reranker.rank` runs with clocks around the tokeniser and `collate` and hooks at the
    ranker and its encoder. On an accelerator every boundary waits for the device, so the sum is somewhat larger
    than the latency without clocks. "check and look up" is what comes before `collate`, with a token store;
    "transfer" runs from the end of `collate` to the beginning of `forward`; "sort and result" from the end of
    `forward` on: the scores' way back, their check, sorting, the returned items.

    Raises:
        RuntimeError: if the path has no encoder call to time.
    """
    rounds: list[dict[str, float]] = []
    for number, one in enumerate(lists):
        contender.prepare([one])
        with _Clocks(contender) as clocks:
            whole = contender.milliseconds([one])
        if not clocks.spent["encoder"]:
            raise RuntimeError(
                f"{contender.name}: its encoder was not called as a module, so it has no stages"
            )
        if number >= warmup:
            rounds.append(_stages(clocks, whole))
    return {stage: float(np.median([one[stage] for one in rounds])) for stage in (*STAGES, "all")}


def _stages(clocks: _Clocks, whole: float) -> dict[str, float]:
    spent = {name: 1000 * seconds for name, seconds in clocks.spent.items()}
    before = 1000 * (clocks.began["collate"] - clocks.entered)
    return {
        "check and look up": before,
        "tokenise": spent["tokenise"],
        "union and plan": spent["collate"] - spent["tokenise"],
        "transfer": 1000 * (clocks.began["forward"] - clocks.ended["collate"]),
        "encoder": spent["encoder"],
        "item layers": spent["item layers"],
        "head": spent["forward"] - spent["encoder"] - spent["item layers"],
        "sort and result": whole - before - 1000 * (clocks.ended["forward"] - clocks.began["collate"]),
        "all": whole,
    }


class _Clocks:
    """Seconds spent in parts of a ranker, while the context lasts."""

    def __init__(self, contender: OwnRanker) -> None:
        self._device = contender.device
        ranker = contender.reranker.ranker
        assert isinstance(ranker, NeuralRanker)
        self._ranker: NeuralRanker = ranker
        self.spent = dict.fromkeys(("tokenise", "collate", "forward", "encoder", "item layers"), 0.0)
        self.began: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.entered = 0.0
        self._stack = ExitStack()

    def __enter__(self) -> _Clocks:
        parts = self._ranker.encoders()
        self._stack.enter_context(self._around_method("collate", "collate"))
        for method in ("encode_queries", "encode_items"):
            self._stack.enter_context(self._around_method(method, "tokenise"))
        self._stack.enter_context(self._around_modules([self._ranker], "forward"))
        self._stack.enter_context(self._around_modules(_entrances(parts[0]), "encoder"))
        if len(parts) > 1:
            self._stack.enter_context(self._around_modules([parts[1]], "item layers"))
        synchronise(self._device)
        self.entered = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, part: str) -> None:
        synchronise(self._device)
        self.began[part] = time.perf_counter()

    def _stop(self, part: str) -> None:
        synchronise(self._device)
        self.ended[part] = time.perf_counter()
        self.spent[part] += self.ended[part] - self.began[part]

    @contextmanager
    def _around_method(self, method: str, part: str) -> Iterator[None]:
        """Puts a clock around a method of the ranker."""
        original: Callable[..., Any] = getattr(self._ranker, method)

        def timed(*args: Any, **keywords: Any) -> Any:
            self._start(part)
            out = original(*args, **keywords)
            self._stop(part)
            return out

        setattr(self._ranker, method, timed)
        try:
            yield
        finally:
            delattr(self._ranker, method)

    @contextmanager
    def _around_modules(self, modules: Sequence[nn.Module], part: str) -> Iterator[None]:
        """Puts a clock around modules; those that run inside another of them do not count twice."""
        depth = 0

        def before(*_: object) -> None:
            nonlocal depth
            if depth == 0:
                self._start(part)
            depth += 1

        def after(*_: object) -> None:
            nonlocal depth
            depth -= 1
            if depth == 0:
                self._stop(part)

        handles = [
            hook
            for module in modules
            for hook in (module.register_forward_pre_hook(before), module.register_forward_hook(after))
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _entrances(encoder: nn.Module) -> list[nn.Module]:
    """The encoder and the modules that a faster path may call in its place: its children and its layers."""
    found = [encoder, *encoder.children()]
    for child in encoder.children():
        for inner in child.children():
            found += [inner, *(inner if isinstance(inner, nn.ModuleList) else [])]
    return list(dict.fromkeys(found))
