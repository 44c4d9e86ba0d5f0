"""Quantiles of streams of numbers in memory that does not grow with the stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["IntegerCounts", "NumberSample", "Summary"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, extremes and quantiles. A quantile is the smallest value that reaches its share of the values."""

    count: int
    mean: float
    smallest: float
    p5: float
    p50: float
    p95: float
    largest: float


class IntegerCounts:
    """How often each integer occurred: exact quantiles, one entry per distinct value.

    Args:
        unit: what one step stands for; 0.01 keeps fractions to two decimals.
    """

    def __init__(self, unit: float = 1.0) -> None:
        self.unit = unit
        self.counts: Counter[int] = Counter()

    def add(self, values: Iterable[int]) -> None:
        """Counts integers, or with another unit the numbers of steps."""
        self.counts.update(values)

    def add_number(self, value: float) -> None:
        """Counts a number, rounded to the unit."""
        self.counts[round(value / self.unit)] += 1

    def values(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The distinct values in ascending order and how often each occurred."""
        steps = np.array(sorted(self.counts), dtype=np.int64)
        counts = np.array([self.counts[step] for step in steps.tolist()], dtype=np.int64)
        return steps.astype(np.float64) * self.unit, counts

    def summary(self) -> Summary | None:
        """None before anything was counted."""
        if not self.counts:
            return None
        values, counts = self.values()
        reached = np.cumsum(counts)
        total = int(reached[-1])

        def quantile(share: float) -> float:
            return float(values[np.searchsorted(reached, share * total)])

        return Summary(
            count=total,
            mean=float(values @ counts) / total,
            smallest=float(values[0]),
            p5=quantile(0.05),
            p50=quantile(0.5),
            p95=quantile(0.95),
            largest=float(values[-1]),
        )


class NumberSample:
    """Any finite numbers: exact count, mean and extremes, quantiles from a uniform sample.

    Up to `size` numbers the quantiles are exact as well. The sample is Vitter's algorithm R (1985) with a
    fixed seed, so equal streams give equal summaries.

    Args:
        size: how many numbers the sample holds.
        most_distinct: distinct values are counted one by one as long as there are no more than this.
    """

    def __init__(self, size: int = 100_000, most_distinct: int = 50) -> None:
        self.distinct: Counter[float] | None = Counter()
        self.count = 0
        self._most_distinct = most_distinct
        self._sample = np.empty(0)
        self._size = size
        self._random = np.random.default_rng(0)
        self._sum = 0.0
        self._smallest, self._largest = np.inf, -np.inf

    def add(self, values: ArrayLike) -> None:
        """Takes in a block of numbers, any shape."""
        block = np.asarray(values, dtype=np.float64).ravel()
        if not len(block):
            return
        if self.distinct is not None:
            self.distinct.update(block.tolist())
            if len(self.distinct) > self._most_distinct:
                self.distinct = None
        self._sum += float(block.sum())
        self._smallest = min(self._smallest, float(block.min()))
        self._largest = max(self._largest, float(block.max()))
        room = self._size - len(self._sample)
        self._sample = np.concatenate([self._sample, block[:room]]) if room else self._sample
        rest = block[room:]
        # the t-th number replaces a place drawn from t, if the place is inside the sample
        seen = self.count + min(room, len(block)) + 1 + np.arange(len(rest))
        place = self._random.integers(0, seen)
        inside = place < self._size
        self._sample[place[inside]] = rest[inside]
        self.count += len(block)

    def summary(self) -> Summary | None:
        """None before anything was added."""
        if not self.count:
            return None
        p5, p50, p95 = np.quantile(self._sample, [0.05, 0.5, 0.95], method="inverted_cdf").tolist()
        return Summary(self.count, self._sum / self.count, self._smallest, p5, p50, p95, self._largest)
