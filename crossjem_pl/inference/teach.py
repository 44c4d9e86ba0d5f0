"""Writing a model's scores of whole files of lists, to distil another model from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossjem_pl.data.formats import read_lists
from crossjem_pl.data.teacher import read_provenance, read_scores, write_scores
from crossjem_pl.hashing import content_sha256, file_sha256
from crossjem_pl.inference.reranker import Reranker
from crossjem_pl.lists import RankingList

__all__ = ["TeachReport", "teach"]


@dataclass(frozen=True)
class TeachReport:
    """What `teach` did.

    Args:
        lists: lists of the file.
        scored: lists that this call scored; the others were scored before.
        complete: whether `out` was written (all shards are there).
        truncated: texts of this call that lost tokens to the teacher's length limits.
    """

    lists: int
    scored: int
    complete: bool
    truncated: int


def teach(
    model: str | Path,
    lists: str | Path,
    out: str | Path,
    *,
    shard: int = 0,
    shards: int = 1,
    block: int = 256,
    device: str | None = None,
    precision: str = "float32",
    progress: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> TeachReport:
    """Scores every (query, item) of `lists` with `model`: Parquet of `query_id, item_id, score`.

    The score is the sigmoid of the model's score, float64: the teacher's probability of relevance. Work is done in
    blocks of lists, each written once under `<out>.parts/`; a call that was interrupted goes on where it stopped.
    Several processes share the work with `shard` of `shards`; whichever finishes last joins the parts into `out`.
    The file's metadata holds the provenance: hashes of the model's weights and of the lists.

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
    provenance = {
        "model": str(model),
        "model_sha256": _hash_model(Path(model)),
        "lists": str(lists),
        "lists_sha256": _hash_lists(every),
        "activation": "sigmoid",
        "block": block,
    }
    if out.exists():
        _check_same(out, provenance)
        return TeachReport(len(every), 0, True, 0)
    parts = out.with_name(f"{out.name}.parts")
    parts.mkdir(parents=True, exist_ok=True)
    numbers = range((len(every) + block - 1) // block)
    files = [parts / f"{number:06d}.parquet" for number in numbers]
    for existing in filter(Path.exists, files):
        _check_same(existing, provenance)
    todo = [n for n in numbers if n % shards == shard and not files[n].exists()]
    scored = truncated = 0
    if todo:
        reranker = Reranker.from_pretrained(model, device=device, precision=precision)  # type: ignore[arg-type]
        for number in progress(todo):
            own = every[number * block : (number + 1) * block]
            write_scores(_rows(reranker, own), files[number], provenance)
            scored += len(own)
        truncated = reranker.truncated
    complete = all(file.exists() for file in files)
    if complete:
        joined = (
            (query, item, score) for file in files for (query, item), score in read_scores(file).items()
        )
        write_scores(joined, out, provenance)
        for file in files:
            file.unlink()
        parts.rmdir()
    return TeachReport(len(every), scored, complete, truncated)


def _rows(reranker: Reranker, lists: Sequence[RankingList]) -> Iterator[tuple[str, str, float]]:
    for one, scores in zip(lists, reranker.score(lists), strict=True):
        for item_id, score in zip(one.item_ids, scores.double().sigmoid().tolist(), strict=True):
            yield one.query_id, item_id, score


def _hash_model(folder: Path) -> str:
    weights = folder / "model.safetensors"
    if not weights.exists():
        return "hub"
    return file_sha256(weights)


def _hash_lists(lists: Sequence[RankingList]) -> str:
    return content_sha256(repr((one.query_id, one.query, one.item_ids, one.items)) for one in lists)


def _check_same(file: Path, provenance: dict[str, Any]) -> None:
    found = read_provenance(file)
    for key in ("model_sha256", "lists_sha256", "activation", "block"):
        if found.get(key) != provenance[key]:
            raise ValueError(
                f"{file} was written with another {key.removesuffix('_sha256')} "
                f"({found.get(key)!r}, now {provenance[key]!r}); choose another --out or remove it"
            )
