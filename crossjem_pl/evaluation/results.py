"""What a comparison of systems found, as data: the tables, pages and plots are drawn from this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from crossjem_pl.evaluation.significance import WinTieLoss

__all__ = ["Comparison", "Difference", "Example", "MetricResult", "RankedItem", "SystemResult"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A system's mean minus the baseline's on one metric, over the same queries.

    Args:
        mean: of the differences per query.
        low: lower end of the 95% bootstrap interval.
        high: upper end.
        p_randomisation: of the paired randomisation test.
        p_t: of the paired t-test.
        p_randomisation_holm: corrected over the systems that are compared with the baseline on this metric.
        p_t_holm: corrected likewise.
        counts: queries won, tied and lost.
    """

    mean: float
    low: float
    high: float
    p_randomisation: float
    p_t: float
    p_randomisation_holm: float
    p_t_holm: float
    counts: WinTieLoss

    @property
    def significant(self) -> bool:
        """Whether the corrected p-value of the randomisation test is below 0.05."""
        return self.p_randomisation_holm < 0.05


@dataclass(frozen=True, slots=True)
class MetricResult:
    """Mean of one metric with its 95% bootstrap interval; `difference` is None for the baseline."""

    mean: float
    low: float
    high: float
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class SystemResult:
    """One row of the table. What a run does not tell about itself is None.

    Args:
        name: unique in the comparison.
        path: of the run folder or run file.
        metrics: by metric name.
        missing: judged queries that the run does not hold; they count as 0.
        unjudged: queries of the run without judgements; they count nowhere.
        parameters: of the ranker.
        trained_lists: lists seen in training.
        train_seconds: wall-clock time of training.
        machine: on which that time was taken.
        seed: of the training.
    """

    name: str
    path: Path
    metrics: dict[str, MetricResult]
    missing: int
    unjudged: int
    parameters: int | None = None
    trained_lists: int | None = None
    train_seconds: float | None = None
    machine: str | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class RankedItem:
    """An item of a ranking; `text` is None where the runs hold no texts, `grade` 0 where it is not judged."""

    item_id: str
    text: str | None
    grade: int

    @property
    def relevant(self) -> bool:
        return self.grade >= 1


@dataclass(frozen=True, slots=True)
class Example:
    """A query that a system and the baseline rank very differently, with the first items of both."""

    query_id: str
    query: str | None
    system: str
    value: float
    baseline_value: float
    top: tuple[RankedItem, ...]
    baseline_top: tuple[RankedItem, ...]
    relevant: int
    candidates: int


@dataclass(frozen=True)
class Comparison:
    """Systems on the same queries.

    Args:
        split: of the runs, or None where only run files are compared.
        metrics: names as given; the first one picks the examples and is drawn per query.
        baseline: name of the system that the others are compared with.
        queries: judged queries, over which all means are taken.
        systems: in the order given.
        per_query: index `query_id`, columns (system, metric).
        examples: per system, the lists it gains most on and those it loses most on, largest first.
        notes: what a reader must know before trusting the numbers.
    """

    split: str | None
    metrics: tuple[str, ...]
    baseline: str
    queries: int
    systems: tuple[SystemResult, ...]
    per_query: pd.DataFrame
    examples: tuple[Example, ...]
    notes: tuple[str, ...]

    @property
    def others(self) -> tuple[SystemResult, ...]:
        """All systems but the baseline."""
        return tuple(system for system in self.systems if system.name != self.baseline)

    def to_frame(self) -> pd.DataFrame:
        """One row per system, all numbers unrounded: what `compare.csv` holds."""
        return pd.DataFrame([self._row(system) for system in self.systems])

    def _row(self, system: SystemResult) -> dict[str, object]:
        row: dict[str, object] = {"system": system.name, "baseline": system.name == self.baseline}
        for name, metric in system.metrics.items():
            row |= {name: metric.mean, f"{name} low": metric.low, f"{name} high": metric.high}
            if len(self.systems) == 1:
                continue
            found = metric.difference
            row |= {
                f"{name} difference": None if found is None else found.mean,
                f"{name} difference low": None if found is None else found.low,
                f"{name} difference high": None if found is None else found.high,
                f"{name} p randomisation": None if found is None else found.p_randomisation,
                f"{name} p t-test": None if found is None else found.p_t,
                f"{name} p randomisation Holm": None if found is None else found.p_randomisation_holm,
                f"{name} p t-test Holm": None if found is None else found.p_t_holm,
                f"{name} wins": None if found is None else found.counts.wins,
                f"{name} ties": None if found is None else found.counts.ties,
                f"{name} losses": None if found is None else found.counts.losses,
            }
        return row | {
            "queries": self.queries,
            "missing queries": system.missing,
            "unjudged queries": system.unjudged,
            "parameters": system.parameters,
            "trained lists": system.trained_lists,
            "train seconds": system.train_seconds,
            "machine": system.machine,
            "seed": system.seed,
            "path": str(system.path),
        }
