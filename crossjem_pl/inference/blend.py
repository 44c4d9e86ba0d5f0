"""Graded targets without a teacher: labels blended with a zero-shot bi-encoder's cosine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.teacher import write_scores
from crossjem_pl.inference.reranker import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.dual.dual import DualRanker
from crossjem_pl.rankers.encoders import resolve

__all__ = ["blend"]

_BLOCK = 32


def blend(
    model: str,
    lists: str | Path,
    out: str | Path,
    *,
    slope: float = 8.0,
    gain: float = 6.0,
    offset: float = -7.0,
    device: str | None = None,
    progress: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> int:
    """Writes `query_id, item_id, score` with score = sigmoid(slope cos(query, item) + gain min(label, 1) + offset).

    Listwise distillation needs grades among the irrelevant items, which labels do not have. Until a teacher is
    trained, the cosine of a bi-encoder that was never trained on these lists gives them; the label keeps the
    relevant items on top.

    Args:
        model: a dual encoder: our folder, a sentence-transformers folder, or `packaged:all-MiniLM-L6-v2`.
        lists: lists with labels.
        out: the Parquet file, for `data.teacher_scores`.
        slope, gain, offset: the blend, in logits.
        device: see `Reranker`.
        progress: wraps the block numbers, for a progress bar.

    Returns:
        How many lists were scored.

    Raises:
        ValueError: if the model is not a dual encoder or a list has no labels; names it.
    """
    reranker = Reranker.from_pretrained(resolve(model), device=device)
    if not isinstance(reranker.ranker, DualRanker):
        raise ValueError(f"{model} is a {reranker.ranker.name} ranker; blending needs a dual encoder")
    every = list(read_lists(lists))
    unlabelled = next((one for one in every if one.labels is None), None)
    if unlabelled is not None:
        raise ValueError(f"list {unlabelled.query_id!r} has no labels to blend with")

    def rows() -> Iterator[tuple[str, str, float]]:
        for first in progress(range(0, len(every), _BLOCK)):
            own = every[first : first + _BLOCK]
            for one, cosines in zip(own, reranker.score(own), strict=True):
                yield from _blend_list(one, cosines, slope, gain, offset)

    provenance = {"model": model, "lists": str(lists), "slope": slope, "gain": gain, "offset": offset}
    write_scores(rows(), Path(out), provenance)
    return len(every)


def _blend_list(
    one: RankingList, cosines: torch.Tensor, slope: float, gain: float, offset: float
) -> Iterator[tuple[str, str, float]]:
    labels = torch.tensor(one.labels, dtype=torch.float64).clamp(max=1.0)
    scores = torch.sigmoid(slope * cosines.double() + gain * labels + offset)
    yield from zip([one.query_id] * len(one), one.item_ids, scores.tolist(), strict=True)
