"""Teacher scores: their range, lists that they do not order, and whether they agree with the labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossjem_pl.data.distributions import NumberSample, Summary
from crossjem_pl.data.inspection.problems import EXAMPLES, Findings
from crossjem_pl.lists import RankingList

__all__ = ["ScoreFigures", "ScoreInspector"]

_ENOUGH = 10


@dataclass(frozen=True)
class ScoreFigures:
    """Args:
    lists: lists with scores.
    scores: distribution of the scores, None without any.
    agreement: share of the (positive, other) pairs of a list in which the positive has the higher score,
        ties counted half, pooled over lists; None without such pairs.
    """

    lists: int
    scores: Summary | None
    agreement: float | None


class ScoreInspector:
    """Looks at the scores of lists.

    "scores-reversed" is found if at least 10 lists have positives, others and scores, and the agreement is
    below one half.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._scores = NumberSample()
        self._lists = self._without = self._compared = self._pairs = 0
        self._agreeing = 0.0
        self._without_at: list[str] = []
        self._reversed_at: list[str] = []

    def look(self, where: str, one: RankingList) -> None:
        named = f"{where}: {one.query_id}"
        if one.scores is None:
            self._without += 1
            if len(self._without_at) < EXAMPLES:
                self._without_at.append(named)
            return
        self._lists += 1
        scores = np.array(one.scores)
        self._scores.add(scores)
        low, high = float(scores.min()), float(scores.max())
        if low < 0 or high > 1:
            self._findings.add("scores-outside", f"{named}, {low:g} to {high:g}")
        if low == high and len(one) > 1:
            self._findings.add("constant-scores", f"{named}, all {low:g}")
        if one.labels is not None:
            self._compare(named, scores, np.array(one.labels) > 0)

    def figures(self) -> ScoreFigures:
        """Adds what only the whole tells to the findings and returns the figures."""
        if self._lists:
            self._findings.add_all("scores-missing", self._without_at, self._without)
            for code in ("scores-outside", "constant-scores"):
                self._findings.of(code, self._lists)
        agreement = self._agreeing / self._pairs if self._pairs else None
        if agreement is not None and agreement < 0.5 and self._compared >= _ENOUGH:
            below = round(self._pairs - self._agreeing)
            self._findings.add_all("scores-reversed", self._reversed_at, below)
            self._findings.of("scores-reversed", self._pairs)
        return ScoreFigures(self._lists, self._scores.summary(), agreement)

    def _compare(self, named: str, scores: np.ndarray, positive: np.ndarray) -> None:
        pairs = int(positive.sum() * (~positive).sum())
        if not pairs:
            return
        others = np.sort(scores[~positive])
        below = np.searchsorted(others, scores[positive], side="left")
        not_above = np.searchsorted(others, scores[positive], side="right")
        agreeing = float(below.sum() + not_above.sum()) / 2
        self._compared += 1
        self._pairs += pairs
        self._agreeing += agreeing
        if agreeing < pairs / 2 and len(self._reversed_at) < EXAMPLES:
            self._reversed_at.append(named)
