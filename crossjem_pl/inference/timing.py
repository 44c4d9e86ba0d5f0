"""Time of several candidates that do the same work: they take turns, the first rounds warm up."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

import numpy as np

__all__ = ["Timings", "milliseconds", "take_turns"]

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")
T = TypeVar("T")


@dataclass(frozen=True)
class Timings:
    """Milliseconds of one candidate, one value for each counted round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median milliseconds of a round."""
        return median(self.rounds)

    @property
    def p95(self) -> float:
        """95th percentile, interpolated; of fewer than about 20 rounds it is close to the maximum."""
        return self.percentile(95)

    @property
    def p99(self) -> float:
        """99th percentile, interpolated; it needs several hundred rounds to mean something."""
        return self.percentile(99)

    def percentile(self, percent: float) -> float:
        """The percentile of the rounds, linearly interpolated."""
        return float(np.percentile(self.rounds, percent))

    def ratio(self, other: Timings) -> float:
        """Median over the rounds of (this time / the other's): what drifts slows both and cancels out.

        Example:
            >>> Timings((10.0, 30.0, 20.0)).ratio(Timings((5.0, 10.0, 10.0)))
            2.0
        """
        return median(own / theirs for own, theirs in zip(self.rounds, other.rounds, strict=True))


def milliseconds(call: Callable[[Any], object], argument: Any = None) -> float:
    """How long `call(argument)` takes; a GPU in use is idle before and after."""
    _synchronise()
    start = time.perf_counter()
    call(argument)
    _synchronise()
    return 1000 * (time.perf_counter() - start)


def take_turns(
    candidates: Mapping[K, C],
    inputs: Iterable[T],
    warmup: int = 1,
    measure: Callable[[C, T], float] = milliseconds,  # type: ignore[assignment]
) -> dict[K, Timings]:
    """Measures every candidate once on every input.

    A round is one input. Each round begins with another candidate, so that a machine whose speed drifts slows
    all of them alike, and ratios can be taken round by round.

    Args:
        candidates: by name; with the default `measure` they are functions of one input.
        inputs: one for each round; several rounds on the same inputs are `inputs * rounds`.
        warmup: how many of the first rounds are not counted.
        measure: milliseconds of one candidate on one input; another one may prepare something untimed, or ask
            another process.

    Returns:
        The timings by name.

    Raises:
        ValueError: if there are no candidates, or no rounds after the warm-up.
    """
    names = list(candidates)
    rounds: dict[K, list[float]] = {name: [] for name in names}
    for number, given in enumerate(inputs):
        first = number % len(names) if names else 0
        for name in [*names[first:], *names[:first]]:
            elapsed = measure(candidates[name], given)
            if number >= warmup:
                rounds[name].append(elapsed)
    if not names or not all(rounds.values()):
        raise ValueError(
            f"{len(names)} candidates and no rounds after the {warmup} for warming up: nothing to time"
        )
    return {name: Timings(tuple(times)) for name, times in rounds.items()}


def _synchronise() -> None:
    """Waits for the GPU, if this process uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
