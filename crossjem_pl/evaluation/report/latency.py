"""Latency results beside accuracy: which systems no other beats in both."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crossjem_pl.evaluation.report.folders import RunRecord

__all__ = ["Latency", "Timed", "frontier", "match", "nearest_size", "read_latency"]


@dataclass(frozen=True)
class Latency:
    """Results of `make bench-latency`.

    Args:
        machine: on which they were taken; None where the file does not say.
        precision: likewise.
        warm: whether the texts were known to the token caches; None where the file does not say.
        milliseconds: number of items -> ranker -> one value per round.
    """

    machine: str | None
    precision: str | None
    warm: bool | None
    milliseconds: dict[int, dict[str, tuple[float, ...]]]

    @property
    def rankers(self) -> tuple[str, ...]:
        """Names of all rankers, in the file's order."""
        return tuple(dict.fromkeys(name for times in self.milliseconds.values() for name in times))


@dataclass(frozen=True)
class Timed:
    """A system at one list size: name, median milliseconds, mean of the metric with its interval."""

    name: str
    milliseconds: float
    mean: float
    low: float
    high: float


def read_latency(path: str | Path) -> Latency:
    """Reads the JSON file of `make bench-latency`.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: naming the file and the field, for anything else than numbers of milliseconds above 0.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of latency results")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("milliseconds"), dict):
        raise ValueError(
            f"{path}, field 'milliseconds': expected an object of sizes, as make bench-latency writes"
        )
    found: dict[int, dict[str, tuple[float, ...]]] = {}
    for size, times in content["milliseconds"].items():
        where = f"{path}, field 'milliseconds', size {size!r}"
        if not str(size).isdigit() or int(size) < 1 or not isinstance(times, dict):
            raise ValueError(f"{where}: expected a number of items and an object of rankers")
        found[int(size)] = {
            str(name): _times(values, f"{where}, ranker {name!r}") for name, values in times.items()
        }
    if not any(found.values()):
        raise ValueError(f"{path}, field 'milliseconds': holds no times")
    warm = content.get("warm")
    return Latency(
        _text(content.get("machine")),
        _text(content.get("precision")),
        warm if isinstance(warm, bool) else None,
        dict(sorted(found.items())),
    )


def match(records: Sequence[RunRecord], rankers: Sequence[str]) -> dict[str, str]:
    """Run name -> the benchmark's ranker: the one called like the run, else like its folder, else like its ranker."""
    found = {}
    for record in records:
        for name in (record.name, record.path.resolve().name, record.ranker):
            if name in rankers:
                found[record.name] = str(name)
                break
    return found


def nearest_size(latency: Latency, items: float) -> int:
    """The measured number of items nearest to `items`, by ratio."""
    return min(latency.milliseconds, key=lambda size: abs(math.log(size / items)))


def frontier(timed: Sequence[Timed]) -> list[Timed]:
    """Systems than which none is both as fast and as accurate, and better in one; fastest first."""
    ordered = sorted(timed, key=lambda one: (one.milliseconds, -one.mean))
    best, kept = -math.inf, []
    for one in ordered:
        if one.mean > best:
            kept.append(one)
            best = one.mean
    return kept


def _times(values: object, where: str) -> tuple[float, ...]:
    if not isinstance(values, list) or not values:
        raise ValueError(f"{where}: expected a list of milliseconds")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{where}: expected milliseconds above 0, got {value!r}")
    return tuple(float(value) for value in np.asarray(values, dtype=np.float64))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
