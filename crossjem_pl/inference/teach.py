"""Targets to distil from: a model's scores of whole files of lists, or labels blended with a bi-encoder's cosine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.teacher import read_provenance, read_scores, write_scores
from crossjem_pl.hashing import content_sha256, weights_sha256
from crossjem_pl.inference.configuration import Precision
from crossjem_pl.inference.reranker import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.encoders import resolve
from crossjem_pl.rankers.threshold import pass_limits

__all__ = ["TeachReport", "blend", "teach"]

_BLEND_BLOCK = 32


@dataclass(frozen=True)
class TeachReport:
    """What `teach` did.

    Args:
        out: the file of the scores.
        lists: lists of the file.
        scored: lists that this call scored; the others were scored before.
        complete: whether `out` was written (all shards are there).
        truncated: texts of this call that lost tokens to the teacher's length limits.
    """

    out: Path
    lists: int
    scored: int
    complete: bool
    truncated: int

    def __str__(self) -> str:
        state = f"wrote {self.out}" if self.complete else f"{self.out} waits for the other shards"
        cut = f"\n{self.truncated} texts were longer than the teacher's limits and were cut" * bool(
            self.truncated
        )
        return f"{state}: {self.lists} lists, {self.scored} scored now{cut}"


def teach(
    model: str | Path,
    lists: str | Path,
    out: str | Path,
    shard: int = 0,
    shards: int = 1,
    block: int = 256,
    device: str | None = None,
    precision: Precision | None = None,
    progress: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> TeachReport:
    """Scores every (query, item) of `lists` with `model`: Parquet of `query_id, item_id, score`.

    The score is the teacher's probability of relevance, float64: `Ranker.probabilities` of the model's score. Work
    is done in blocks of lists, each written once under `<out>.parts/`; a call that was interrupted goes on where it
    stopped. Several processes share the work with `shard` of `shards`; whichever finishes last joins the parts into
    `out`. The file's metadata holds the provenance: hashes of the model's weights and of the lists, wherever the
    model came from, and how it computed.

    Args:
        model: model folder or hub repository.
        lists: any file that `read_lists` reads.
        out: the Parquet file.
        shard, shards: this process's part of the blocks.
        block: lists per part.
        device, precision: see `Reranker`.
        progress: wraps the block numbers, for a progress bar.

    Raises:
        ValueError: if parts of another model or of other lists are in the way, or `shard` is out of range.
    """
    if not 0 <= shard < shards:
        raise ValueError(f"shard must be in 0..{shards - 1}, got {shard}")
    if block < 1:
        raise ValueError(f"block must be at least 1, got {block}")
    out = Path(out)
    every = list(read_lists(lists))
    if not every:
        raise ValueError(f"{lists}: no lists")
    reranker = Reranker(model, device=device, precision=precision)
    provenance = {
        "model": str(model),
        "weights_sha256": weights_sha256(reranker.ranker),
        "precision": reranker.precision,
        "pass_limits": pass_limits(reranker.ranker),
        "lists": str(lists),
        "lists_sha256": _hash_lists(every),
        "score_kind": reranker.ranker.score_kind,
        "block": block,
    }
    if out.exists():
        _check_same(out, provenance)
        return TeachReport(out, len(every), 0, True, 0)
    parts = out.with_name(f"{out.name}.parts")
    parts.mkdir(parents=True, exist_ok=True)
    numbers = range((len(every) + block - 1) // block)
    files = [parts / f"{number:06d}.parquet" for number in numbers]
    for existing in filter(Path.exists, files):
        _check_same(existing, provenance)
    todo = [n for n in numbers if n % shards == shard and not files[n].exists()]
    scored = 0
    for number in progress(todo):
        some = every[number * block : (number + 1) * block]
        write_scores(_rows(reranker, some), files[number], provenance)
        scored += len(some)
    complete = all(file.exists() for file in files)
    if complete:
        joined = (
            (query, item, score) for file in files for (query, item), score in read_scores(file).items()
        )
        write_scores(joined, out, provenance)
        for file in files:
            file.unlink()
        parts.rmdir()
    return TeachReport(out, len(every), scored, complete, reranker.truncated)


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
    from crossjem_pl.rankers import DualRanker

    reranker = Reranker(resolve(model), device=device)
    if not isinstance(reranker.ranker, DualRanker):
        raise ValueError(f"{model} is a {reranker.ranker.name} ranker; blending needs a dual encoder")
    every = list(read_lists(lists))
    unlabelled = next((one for one in every if one.labels is None), None)
    if unlabelled is not None:
        raise ValueError(f"list {unlabelled.query_id!r} has no labels to blend with")

    def rows() -> Iterator[tuple[str, str, float]]:
        for first in progress(range(0, len(every), _BLEND_BLOCK)):
            some = every[first : first + _BLEND_BLOCK]
            for one, cosines in zip(some, reranker.score(some), strict=True):
                labels = torch.tensor(one.labels, dtype=torch.float64).clamp(max=1.0)
                blended = torch.sigmoid(slope * cosines.double() + gain * labels + offset)
                for item_id, score in zip(one.item_ids, blended.tolist(), strict=True):
                    yield one.query_id, item_id, score

    provenance = {"model": model, "lists": str(lists), "slope": slope, "gain": gain, "offset": offset}
    write_scores(rows(), Path(out), provenance)
    return len(every)


def _rows(reranker: Reranker, lists: Sequence[RankingList]) -> Iterator[tuple[str, str, float]]:
    for one, scores in zip(lists, reranker.score(lists), strict=True):
        probabilities = reranker.ranker.probabilities(scores.double()).tolist()
        for item_id, score in zip(one.item_ids, probabilities, strict=True):
            yield one.query_id, item_id, score


def _hash_lists(lists: Sequence[RankingList]) -> str:
    return content_sha256(repr((one.query_id, one.query, one.item_ids, one.items)) for one in lists)


def _check_same(file: Path, provenance: dict[str, Any]) -> None:
    """Raises a ValueError if the scores in a file are not of this model, these lists and this configuration."""
    found = read_provenance(file)
    for key in ("weights_sha256", "precision", "pass_limits", "lists_sha256", "score_kind", "block"):
        if found.get(key) != provenance[key]:
            what = {"weights_sha256": "model", "lists_sha256": "lists"}.get(key, key)
            raise ValueError(
                f"{file} was written with another {what} ({found.get(key)!r}, now {provenance[key]!r}); choose "
                "another --out or remove it"
            )
