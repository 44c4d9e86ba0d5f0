"""The fastest configuration of a ranker on this machine that keeps its ranking, by measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from math import isnan, nan
from typing import Any

import numpy as np

from crossjem_pl.data.simulator import simulate
from crossjem_pl.inference.agreement import Agreement, agreement
from crossjem_pl.inference.configuration import Configuration, Passes, Precision, Scorer, configured
from crossjem_pl.inference.timing import take_turns
from crossjem_pl.lists import RankingList
from crossjem_pl.text import distinct_rows, plan_passes

__all__ = ["Bounds", "Trial", "TuneReport", "candidate_passes", "tune"]

_GAIN = 0.97
"""A candidate replaces the best so far if it takes at most this share of its time: less is noise."""
_ITEMS = (50, 100, 200, 350)
_UNIONS = (96, 128, 192, 262, 512)
_ORDERS = ("sorted", "overlap")


@dataclass(frozen=True)
class Bounds:
    """What the scores of a candidate must keep.

    Args:
        difference: greatest difference of a score, relative to the largest score if that is above 1; where neither
            passes nor precision change.
        tau: least mean Kendall tau with the reference ranking; where one of them changes.
        top10: least mean share of the ten best items that stay; likewise.
    """

    difference: float = 1e-4
    tau: float = 0.95
    top10: float = 0.9

    def broken(self, exact: bool, found: Agreement, largest: float) -> str | None:
        """Which bound is broken, None if none."""
        if exact:
            close = found.difference <= self.difference * max(1.0, largest)
            return None if close else f"scores differ by up to {found.difference:.2g}"
        if not found.tau >= self.tau:
            return f"Kendall tau is {found.tau:.3f}, less than {self.tau}"
        top10 = f"top-10 overlap is {found.top10:.2f}, less than {self.top10}"
        return None if found.top10 >= self.top10 else top10


@dataclass(frozen=True)
class Trial:
    """One candidate configuration.

    Args:
        configuration: the candidate.
        milliseconds: median time of a list, from texts whose tokens are cached to scores; NaN if not timed.
        ratio: this time / that of the best before, list by list in turn; NaN if not timed.
        agreement: with the ranking in float32 by the passes before tuning; None if there are no scores.
        verdict: "as before", "chosen", "slower", or why it was skipped or rejected.
    """

    configuration: Configuration
    milliseconds: float
    ratio: float
    agreement: Agreement | None
    verdict: str


@dataclass(frozen=True)
class TuneReport:
    """What `tune` measured and chose.

    Args:
        trials: in the order of the measurement.
        before, chosen: the configuration before and now.
        milliseconds_before, milliseconds: median time of a list before and now, measured in turn.
    """

    trials: tuple[Trial, ...]
    before: Configuration
    chosen: Configuration
    milliseconds_before: float
    milliseconds: float

    def __str__(self) -> str:
        rows = [("configuration", "ms a list", "to the best", "difference", "tau", "top-10", "")]
        for trial in self.trials:
            untimed = isnan(trial.milliseconds)
            times = ("", "") if untimed else (f"{trial.milliseconds:.1f}", f"{trial.ratio:.2f}x")
            found = [""] * 3 if trial.agreement is None else map("{:.3g}".format, astuple(trial.agreement))
            rows.append((str(trial.configuration), *times, *found, trial.verdict))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        before, now = f"{self.milliseconds_before:.1f} ms a list before", f"{self.milliseconds:.1f} ms now"
        return "\n".join([*lines, f"{before}, {now}: {self.chosen}"])


def tune(
    scorer: Scorer,
    lists: Sequence[RankingList] | None = None,
    *,
    passes: bool = True,
    precisions: Sequence[Precision] = ("bfloat16",),
    compile: bool = False,
    bounds: Bounds | None = None,
    rounds: int = 5,
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> tuple[Scorer, TuneReport]:
    """A scorer of the same ranker in the configuration that was fastest; see `Reranker.tune`.

    Candidates of one kind are timed in turn with the best so far, on every list `rounds` times after a round that
    is not counted; the fastest takes its place if it needs 3% less. Before that the scores of each are compared
    with those in float32 by the passes of `scorer`, see `Bounds`.

    Args:
        progress: wraps the turns of each kind, for a progress bar.

    Raises:
        ValueError: if the ranker runs no network in torch, there are no lists, or an argument is out of range.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    if not set(precisions) <= {"float32", "bfloat16", "float16"}:
        raise ValueError(f"precisions: expected float32, bfloat16 or float16, got {list(precisions)}")
    if not any(True for _ in scorer.ranker.parameters()):
        raise ValueError(
            f"{type(scorer.ranker).__name__} ({scorer.ranker.name}) runs no network in torch: there is nothing to tune"
        )
    samples = list(simulate(4, 100, seed=1)) if lists is None else list(lists)
    if not samples:
        raise ValueError("no lists to measure on")
    search = _Search(scorer, samples, bounds or Bounds(), rounds, progress)
    if passes:
        search.try_each([{"passes": each} for each in candidate_passes(scorer, samples)])
    search.try_each([{"precision": precision} for precision in precisions])
    if compile:
        search.try_each([{"compiled": True}])
    return search.best, search.report()


def candidate_passes(scorer: Scorer, lists: Sequence[RankingList]) -> list[Passes]:
    """Limits of a pass that split at least one of the lists otherwise than each other; the ranker's own first.

    N and L_u go through fixed values up to the longest list and the largest union (or what the encoder's
    positions allow), in both orders. Empty for a ranker that makes no passes.
    """
    ranker: Any = scorer.ranker
    before = Passes.of(ranker)
    if before is None:
        return []
    longest = max(map(len, lists))
    encoded = [ranker.encode_items([each]).tokens for each in lists]
    tokens_of = [tokens.take(distinct_rows(tokens)[0]) for tokens in encoded]
    union = max(len(np.unique(tokens.values)) for tokens in tokens_of)
    most = union if ranker.union_limit is None else min(union, ranker.union_limit)
    grid = [
        Passes(items, tokens, order)
        for items in sorted({n for n in (*_ITEMS, before.max_items_per_pass) if n < longest} | {longest})
        for tokens in sorted({u for u in (*_UNIONS, before.max_union_tokens) if u < most} | {most})
        if tokens >= ranker.max_item_tokens
        for order in _ORDERS
    ]
    different: dict[bytes, Passes] = {}
    for limits in (before, *grid):
        plans = [plan_passes(tokens, *limits) for tokens in tokens_of]  # type: ignore[arg-type]
        different.setdefault(b"".join(plan.tobytes() for plan in plans), limits)
    return list(different.values())


class _Search:
    """One kind of candidates after the other, each with the best of the others until then."""

    def __init__(
        self,
        scorer: Scorer,
        lists: list[RankingList],
        bounds: Bounds,
        rounds: int,
        progress: Callable[[Sequence[Any]], Iterable[Any]],
    ) -> None:
        self.lists, self.bounds, self.rounds, self.progress = lists, bounds, rounds, progress
        self.before = self.best = scorer
        self.reference = Scorer(scorer.ranker, scorer.device).score(lists)[0]
        self.largest = max(float(scores.abs().max()) for scores in self.reference)
        found = agreement(self.reference, scorer.score(lists)[0])
        self.trials = [Trial(Configuration.of(scorer), nan, nan, found, "as before")]

    def try_each(self, changes: Sequence[dict[str, Any]]) -> None:
        """Tries the best configuration with each of the changes; the fastest of them may take its place."""
        best = Configuration.of(self.best)
        able: dict[Configuration, tuple[Scorer, Agreement]] = {}
        for candidate in dict.fromkeys(replace(best, **change) for change in changes):
            if candidate == best:
                continue
            try:
                scorer = configured(self.best, candidate)
                found = agreement(self.reference, scorer.score(self.lists)[0])
            except (ValueError, RuntimeError, OSError) as error:  # compilers fail in their own ways
                reason = str(error).strip().partition("\n")[0]
                self.trials.append(Trial(candidate, nan, nan, None, f"skipped: {reason}"))
                continue
            exact = candidate.precision == "float32" and candidate.passes == Passes.of(self.before.ranker)
            broken = self.bounds.broken(exact, found, self.largest)
            if broken is None:
                able[candidate] = scorer, found
            else:
                self.trials.append(Trial(candidate, nan, nan, found, f"rejected: {broken}"))
        if not able:
            return
        times = self._time(
            {best: self.best, **{candidate: scorer for candidate, (scorer, _) in able.items()}}
        )
        ratios = {candidate: times[candidate].ratio(times[best]) for candidate in able}
        fastest = min(ratios, key=ratios.__getitem__)
        for candidate, (_, found) in able.items():
            verdict = "chosen" if candidate == fastest and ratios[candidate] <= _GAIN else "slower"
            self.trials.append(Trial(candidate, times[candidate].median, ratios[candidate], found, verdict))
        if ratios[fastest] <= _GAIN:
            self.best = able[fastest][0]

    def report(self) -> TuneReport:
        """What was tried, with the times of the first and the last configuration in turn."""
        before, chosen = Configuration.of(self.before), Configuration.of(self.best)
        times = self._time({before: self.before, chosen: self.best})
        first = replace(self.trials[0], milliseconds=times[before].median, ratio=1.0)
        return TuneReport(
            (first, *self.trials[1:]), before, chosen, times[before].median, times[chosen].median
        )

    def _time(self, scorers: dict[Configuration, Scorer]) -> dict[Configuration, Any]:
        calls = {candidate: lambda one, s=scorer: s.score([one]) for candidate, scorer in scorers.items()}
        turns = self.progress(self.lists * (self.rounds + 1))
        return take_turns(calls, turns, warmup=len(self.lists))
