"""How an exported model compares with the one it was made from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.stats import spearmanr

from crossjem_pl.inference.reranker import Reranker
from crossjem_pl.lists import RankingList

__all__ = ["Comparison", "compare_models"]


@dataclass(frozen=True)
class Comparison:
    """Two models on the same lists.

    Args:
        difference: the greatest difference of two scores of the same item.
        largest: the greatest absolute score of the first model.
        spearman: rank correlation of the two models' scores, mean over the lists where it is defined; NaN if
            it is defined on none.
        milliseconds: median time of a list, from texts to scores, of the first and the second model.
    """

    difference: float
    largest: float
    spearman: float
    milliseconds: tuple[float, float]


def compare_models(
    first: Reranker,
    second: Reranker,
    lists: Sequence[RankingList],
    rounds: int = 3,
    progress: Callable[[Sequence[int]], Iterable[int]] = lambda numbers: numbers,
) -> Comparison:
    """Scores every list with both models, one list at a time, in turn.

    One more round goes before the timed ones: it fills the caches of token ids and lets the runtimes
    prepare for the shapes.

    Args:
        progress: wraps the round numbers, for a progress bar.

    Raises:
        ValueError: if there are no lists, or `rounds` is less than 1.
    """
    if not lists or rounds < 1:
        raise ValueError(f"{len(lists)} lists in {rounds} rounds are nothing to compare")
    times: tuple[list[float], list[float]] = ([], [])
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for number in progress(range(rounds + 1)):
        for one in lists:
            scores = []
            for model, own in zip((first, second), times, strict=True):
                start = time.perf_counter()
                scores.append(model.score([one])[0])
                if number > 0:
                    own.append(time.perf_counter() - start)
            if number == 0:
                pairs.append((scores[0].numpy(), scores[1].numpy()))
    ranked = [float(spearmanr(a, b).statistic) for a, b in pairs if np.ptp(a) > 0 and np.ptp(b) > 0]
    return Comparison(
        difference=max(float(np.abs(a - b).max()) for a, b in pairs),
        largest=max(float(np.abs(a).max()) for a, _ in pairs),
        spearman=float(np.mean(ranked)) if ranked else float("nan"),
        milliseconds=(1000 * median(times[0]), 1000 * median(times[1])),
    )
