"""Whether the sigmoid of a score is the share of such items that are relevant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossjem_pl import losses
from crossjem_pl.evaluation.report.folders import RunRecord, setting

__all__ = ["Calibration", "calibrate", "observations", "what_scores_are", "why_not"]


@dataclass(frozen=True)
class Calibration:
    """Items in bins of about equal size by their predicted probability, ascending.

    Args:
        predicted: mean predicted probability, float64 [bins].
        observed: share of relevant items, float64 [bins].
        items: int64 [bins].
    """

    predicted: NDArray[np.float64]
    observed: NDArray[np.float64]
    items: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: sum over bins of n_b / n * |predicted_b - observed_b|."""
        return float(np.average(np.abs(self.predicted - self.observed), weights=self.items))

    @property
    def mean_predicted(self) -> float:
        return float(np.average(self.predicted, weights=self.items))

    @property
    def share_relevant(self) -> float:
        return float(np.average(self.observed, weights=self.items))


def calibrate(probabilities: ArrayLike, relevant: ArrayLike, bins: int = 10) -> Calibration:
    """Calibration in bins of equal mass (Nguyen and O'Connor, EMNLP 2015).

    Equal probabilities share a bin, so there may be fewer bins and uneven ones.

    Args:
        probabilities: [items], in [0, 1].
        relevant: [items], 0 or 1.
        bins: at most.

    Raises:
        ValueError: for no items, unequal lengths, or a probability outside [0, 1].
    """
    values, truth = np.asarray(probabilities, dtype=np.float64), np.asarray(relevant, dtype=np.float64)
    if values.ndim != 1 or values.shape != truth.shape or not values.size:
        raise ValueError(f"expected two vectors of one length, got {values.shape} and {truth.shape}")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("a probability is outside [0, 1]")
    order = np.argsort(values, kind="stable")
    values, truth = values[order], truth[order]
    marks = np.arange(bins) * len(values) // bins
    starts = np.unique(np.searchsorted(values, values[marks], side="left"))
    items = np.diff(np.append(starts, len(values)))
    predicted, observed = np.add.reduceat(values, starts) / items, np.add.reduceat(truth, starts) / items
    return Calibration(predicted, observed, items)


def observations(
    scores: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """sigmoid(score) and relevance (grade 1 or more; not judged is not relevant) of all items of judged queries.

    Raises:
        ValueError: if no query is judged.
    """
    pairs = [
        (score, float(qrels[query].get(item, 0) >= 1))
        for query, items in scores.items()
        if query in qrels
        for item, score in items.items()
    ]
    if not pairs:
        raise ValueError("no query of the run is judged")
    array = np.array(pairs, dtype=np.float64)
    # sigmoid(s) = (1 + tanh(s / 2)) / 2 overflows nowhere
    return (1 + np.tanh(array[:, 0] / 2)) / 2, array[:, 1]


def why_not(record: RunRecord) -> str | None:
    """Why a run's scores cannot be read as logits at all; None where they may be."""
    if record.summary.get("parameters") == 0:
        return (
            f"{record.name} has no parameters: its scores were never fitted to labels, so they are no logits"
        )
    return None


def what_scores_are(record: RunRecord) -> tuple[bool | None, str]:
    """Whether sigmoid(score) was trained to be a probability (None: not known), and the reason in words."""
    name = record.loss
    if name is None:
        return None, "its loss is not known (no config.yaml), so neither is whether its scores are logits"
    if not record.trained:
        return None, "it was not trained in this folder, so the loss behind its scores is not known"
    loss = getattr(losses, name, None)
    if name == "BinaryCrossEntropy":
        return (
            True,
            "trained with BinaryCrossEntropy: sigmoid(score) is meant to be a probability" + _targets(record),
        )
    if name == "MeanSquaredError":
        return (
            None,
            "trained with MeanSquaredError: sigmoid(score) is a probability only if the targets were logits",
        )
    if loss is None:
        return None, f"its loss {name} is not one of this package: whether its scores are logits is not known"
    return False, (
        f"trained with {name}, which compares the items of a list with each other and leaves the level of the scores "
        "free: sigmoid(score) is not a probability, and the curve shows how wrong it would be to read it so"
    )


def _targets(record: RunRecord) -> str:
    """What else moves the probabilities of a pointwise loss away from the labels' share."""
    parts = []
    if setting(record.config, "model", "targets") == "scores":
        parts.append("the targets were a teacher's scores, so the teacher's own miscalibration is in it")
    drawn = setting(record.config, "data", "n_items")
    if isinstance(drawn, int):
        parts.append(
            f"{drawn} items were drawn per list, a relevant one always among them, so relevant items were more "
            "frequent in training than in whole lists"
        )
    return "".join(f"; {part}" for part in parts)
