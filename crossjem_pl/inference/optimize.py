"""The fastest way to run a ranker on this machine, by measurement."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from crossjem_pl.data.simulator import simulate
from crossjem_pl.inference.agreement import agreement
from crossjem_pl.inference.variants import Settings, attention_of, has_encoder, no_compiler, variant
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker

if TYPE_CHECKING:
    from crossjem_pl.inference.reranker import Reranker

__all__ = ["Bounds", "OptimizeReport", "Trial", "optimize"]

LowPrecision = Literal["bfloat16", "float16"]

_GAIN = 0.97
"""What replaces the best so far takes at most this share of its time: less is noise."""


@dataclass(frozen=True)
class Bounds:
    """What a way to run must keep to be chosen.

    Args:
        difference: greatest difference of a score, relative to the largest score if that is above 1; for
            float32.
        tau: least mean Kendall tau with the float32 ranking; for lower precisions.
        top10: least mean share of the ten best items that stay; for lower precisions.
    """

    difference: float = 1e-4
    tau: float = 0.95
    top10: float = 0.9

    def broken(self, settings: Settings, reference: Sequence[Tensor], scores: Sequence[Tensor]) -> str:
        """Which bound the scores break, "" if none."""
        found = agreement(reference, scores)
        if settings.precision == "float32":
            largest = max(1.0, *(float(own.abs().max()) for own in reference))
            if found.difference > self.difference * largest:
                return f"scores differ by up to {found.difference:.2g}"
            return ""
        if not found.tau >= self.tau:
            return f"Kendall tau is {found.tau:.3f}, less than {self.tau}"
        return (
            ""
            if found.top10 >= self.top10
            else f"top-10 overlap is {found.top10:.2f}, less than {self.top10}"
        )


@dataclass(frozen=True)
class Trial:
    """One way to run that was considered.

    Args:
        settings: the way.
        milliseconds: median time of a list, from tokens at hand to scores; NaN if it was not measured.
        best_milliseconds: that of the best way until then, measured in turn with it.
        difference: greatest difference of a score from float32; NaN if there are no scores.
        tau, top10: agreement with the float32 ranking, see `Agreement`; NaN if there are no scores.
        verdict: "baseline", "chosen", "slower", or why it was skipped or rejected.
    """

    settings: Settings
    milliseconds: float
    best_milliseconds: float
    difference: float
    tau: float
    top10: float
    verdict: str


@dataclass(frozen=True)
class OptimizeReport:
    """What `Reranker.optimize` measured and chose.

    Args:
        trials: in the order of the measurement, the baseline first.
        chosen: how the reranker runs now.
        baseline_milliseconds, milliseconds: median time of a list before and now, measured in turn.
        difference: greatest difference of a score from float32, now.
    """

    trials: tuple[Trial, ...]
    chosen: Settings
    baseline_milliseconds: float
    milliseconds: float
    difference: float

    def __str__(self) -> str:
        rows = [
            f"  {trial.settings}: {trial.milliseconds:.1f} ms, best until then {trial.best_milliseconds:.1f} ms, "
            f"scores differ by {trial.difference:.1g}, tau {trial.tau:.3f}, top-10 {trial.top10:.2f}: "
            f"{trial.verdict}"
            for trial in self.trials
        ]
        return "\n".join(
            [
                f"chosen: {self.chosen}; {self.baseline_milliseconds:.1f} ms a list before, "
                f"{self.milliseconds:.1f} ms now",
                *rows,
            ]
        )


@dataclass(frozen=True)
class _Way:
    settings: Settings
    ranker: Ranker
    reranker: Reranker


def optimize(
    reranker: Reranker,
    lists: Sequence[RankingList] | None = None,
    *,
    allow: Sequence[LowPrecision] = (),
    threads: Sequence[int] | None = None,
    compile: bool = True,
    bounds: Bounds | None = None,
    rounds: int = 5,
) -> OptimizeReport:
    """Makes the reranker run in the fastest way that keeps its scores; see `Reranker.optimize`."""
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    for name in allow:
        if name not in ("bfloat16", "float16"):
            raise ValueError(f"allow: expected 'bfloat16' or 'float16', got {name!r}")
    if threads is not None and (not threads or min(threads) < 1):
        raise ValueError(f"threads must be at least 1, got {list(threads)}")
    if not has_encoder(reranker.ranker):
        raise ValueError(
            f"{type(reranker.ranker).__name__} ({reranker.ranker.name}) runs no encoder in torch: there is "
            "nothing to choose from"
        )
    samples = list(simulate(4, 100, seed=1)) if lists is None else list(lists)
    if not samples:
        raise ValueError("no lists to measure on")
    before = Settings(reranker.precision, attention_of(reranker.ranker), False, torch.get_num_threads())
    search = _Search(reranker, samples, bounds or Bounds(), rounds, before)
    with _threads_restored():
        search.try_each("threads", _thread_counts(reranker.device) if threads is None else threads)
        if before.attention is not None:
            search.try_each("attention", ("sdpa", "eager"))
        search.try_each("precision", ("float32", *allow))
        if compile:
            search.try_each("compiled", (True,))
        report = search.report()
    best = search.best
    torch.set_num_threads(best.settings.threads)
    reranker.run_as(best.ranker, best.settings.precision)
    return report


class _Search:
    """One setting after the other, each with the best of the others until then."""

    def __init__(
        self,
        reranker: Reranker,
        lists: Sequence[RankingList],
        bounds: Bounds,
        rounds: int,
        before: Settings,
    ) -> None:
        self.reranker, self.lists, self.bounds, self.rounds = reranker, lists, bounds, rounds
        self.baseline = self.best = self._way(before, reranker.ranker)
        own = self.best.reranker.score(lists)
        if before.precision == "float32":
            self.reference = own
        else:
            self.reference = self._way(replace(before, precision="float32"), reranker.ranker).reranker.score(
                lists
            )
        found = agreement(self.reference, own)
        (milliseconds,) = self._time(self.best)
        self.difference = found.difference
        self.trials = [
            Trial(before, milliseconds, milliseconds, found.difference, found.tau, found.top10, "baseline")
        ]

    def try_each(self, field: str, values: Iterable[object]) -> None:
        for value in values:
            settings = replace(self.best.settings, **{field: value})  # type: ignore[arg-type]
            if settings != self.best.settings:
                self.trials.append(self._try(settings))

    def report(self) -> OptimizeReport:
        before, now = self._time(self.baseline, self.best)
        return OptimizeReport(tuple(self.trials), self.best.settings, before, now, self.difference)

    def _try(self, settings: Settings) -> Trial:
        missing = (no_compiler(self.reranker.device) if settings.compiled else None) or _unable(
            settings, self.reranker.device
        )
        if missing is not None:
            return self._skipped(settings, missing)
        try:
            way = self._way(settings)
            with _threads(settings.threads):
                scores = way.reranker.score(self.lists)
        except (ValueError, RuntimeError, OSError) as error:  # compilers and kernels fail in their own ways
            return self._skipped(settings, str(error).strip().partition("\n")[0])
        found = agreement(self.reference, scores)
        broken = self.bounds.broken(settings, self.reference, scores)
        best, own = (math.nan, math.nan) if broken else self._time(self.best, way)
        verdict = f"rejected: {broken}" if broken else "chosen" if own <= _GAIN * best else "slower"
        if verdict == "chosen":
            self.best, self.difference = way, found.difference
        return Trial(settings, own, best, found.difference, found.tau, found.top10, verdict)

    def _skipped(self, settings: Settings, reason: str) -> Trial:
        nan = math.nan
        return Trial(settings, nan, nan, nan, nan, nan, f"skipped: {reason}")

    def _way(self, settings: Settings, ranker: Ranker | None = None) -> _Way:
        reranker = self.reranker
        made = ranker or variant(reranker.ranker, settings, reranker.device)
        own = type(reranker)(made, reranker.device, settings.precision, reranker.batch_size)
        return _Way(settings, made, own)

    def _time(self, *ways: _Way) -> tuple[float, ...]:
        """Median milliseconds of a list, the ways taking turns; a round before is not counted."""
        times: list[list[float]] = [[] for _ in ways]
        for number in range(self.rounds + 1):
            for one in self.lists:
                for way, own in zip(ways, times, strict=True):
                    with _threads(way.settings.threads):
                        start = time.perf_counter()
                        way.reranker.score([one])
                        elapsed = time.perf_counter() - start
                    if number > 0:
                        own.append(elapsed)
        return tuple(1000 * median(own) for own in times)


def _unable(settings: Settings, device: torch.device) -> str | None:
    """Why the device cannot run like this, None if it may."""
    if settings.precision == "float16" and device.type == "cpu":
        return (
            "float16 is for accelerators: on a CPU bfloat16 has the wider range and the faster instructions"
        )
    if settings.precision == "bfloat16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
        return "this GPU has no bfloat16"
    return None


def _thread_counts(device: torch.device) -> list[int]:
    """1, 2, 4, ... and all the processors that this process may use."""
    if device.type != "cpu":
        return []
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sorted({*(2**i for i in range(available.bit_length()) if 2**i <= available), available})


@contextmanager
def _threads(count: int) -> Iterator[None]:
    if count != torch.get_num_threads():
        torch.set_num_threads(count)
    yield


@contextmanager
def _threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
