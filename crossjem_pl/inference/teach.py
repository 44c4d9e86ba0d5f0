"""Targets to distil from: a model's scores of whole files of lists, or labels blended with a bi-encoder's cosine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.shards import shard_files
from crossjem_pl.data.teacher import read_provenance, read_scores, write_scores
from crossjem_pl.files import scratch_folder
from crossjem_pl.inference.configuration import Precision
from crossjem_pl.inference.reranker import Reranker
from crossjem_pl.inference.score import Job, Part, check_same, score
from crossjem_pl.rankers.encoders import resolve

__all__ = ["blend", "teach"]

_BLEND_BLOCK = 32


def teach(
    model: str | Path,
    lists: str | Path,
    out: str | Path,
    lists_per_part: int = 4096,
    device: str | None = None,
    precision: Precision | None = None,
) -> Iterator[Part]:
    """Scores every (query, item) of `lists` with `model`: one Parquet file of `query_id, item_id, score`.

    The score is the teacher's probability of relevance, float64: `Ranker.probabilities` of the model's score. See
    `score`, whose parts lie in `<out>.parts` until all are there: a call that was interrupted goes on where it stopped,
    and several processes with the same arguments share the work. The file's metadata holds the provenance: hashes of
    the model's weights and of the lists, wherever the model came from, and how it computed.

    Args:
        model: model folder or hub repository.
        lists: any file or folder that `read_lists` reads.
        out: the Parquet file.
        lists_per_part: lists that are scored and written at a time.
        device, precision: see `Reranker`.

    Raises:
        ValueError: if scores of another model or of other lists are in the way, and as `score`.
    """
    out = Path(out)
    parts = out.with_name(f"{out.name}.parts")
    job = Job(str(model), Path(lists), parts, lists_per_part, None, True, False, device, precision)
    if out.exists():
        check_same(job, out)
    else:
        try:
            for part in score(job):
                yield part
                if out.exists():
                    break
            else:
                _join(parts, out)
        except FileNotFoundError:
            if not out.exists():
                raise
    with scratch_folder(parts) as folder, suppress(FileNotFoundError):
        parts.rename(folder / "parts")  # at once: another process joins all of them or none


def _join(parts: Path, out: Path) -> None:
    """Writes the scores of all parts as one file; an error if the manifest lists others than there are."""
    files = shard_files(parts)
    joined = ((*pair, value) for file in files for pair, value in read_scores(file).items())
    stored = read_provenance(files[0])
    write_scores(joined, out, {name: value for name, value in stored.items() if name not in Part._fields})


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
                for item_id, target in zip(one.item_ids, blended.tolist(), strict=True):
                    yield one.query_id, item_id, target

    provenance = {"model": model, "lists": str(lists), "slope": slope, "gain": gain, "offset": offset}
    write_scores(rows(), Path(out), provenance)
    return len(every)
