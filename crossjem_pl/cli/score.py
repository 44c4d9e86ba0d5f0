"""`crossjem score`, `teach` and `blend`: scores of whole files of ranking lists, to use or to distil from."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from crossjem_pl.inference.score import Part

__all__ = ["blend", "score", "teach"]

_SECONDS = 60.0
"""Between two lines of progress."""


def score(
    model: str,
    lists: Path,
    *,
    out: Path,
    on: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int = 1,
    gpus_per_worker: float = 0.0,
    lists_per_part: int = 4096,
    top_k: int | None = None,
    probabilities: bool = False,
    skip_bad: bool = False,
    device: str | None = None,
    precision: Literal["float32", "bfloat16", "float16"] | None = None,
    dry_run: bool = False,
) -> None:
    """Scores any number of lists, each exactly once.

    Args:
        model: model folder or hub repository.
        lists: file or folder of ranking lists; Parquet in the canonical layout is read in parts.
        out: folder of Parquet files with query_id, item_id and score, and a manifest. A call that was interrupted goes
            on where it stopped; several processes with the same arguments share the work.
        on: in this process, or in actors of a Ray cluster that sees the same files.
        address: of the Ray cluster, "auto" for a running one (default: one is started on this machine).
        workers: Ray actors.
        gpus_per_worker: GPUs of a Ray actor; fractions share one.
        lists_per_part: lists that are scored and written at a time.
        top_k: keep only the best so many items of a list, best first.
        probabilities: write probabilities of relevance, as `crossjem teach` does.
        skip_bad: leave out malformed rows and lists that cannot be scored, and name them in bad-*.txt.
        device: cpu, cuda, ...; by default a GPU if there is one.
        precision: by default as tuned.
        dry_run: score 1,000 lists, write nothing, and say how long all would take.
    """
    from crossjem_pl.inference import score as scoring

    job = scoring.Job(model, lists, out, lists_per_part, top_k, probabilities, skip_bad, device, precision)
    if dry_run:
        found = scoring.estimate(job)
        rates = f"{found.lists_per_second:,.1f} lists/s, {found.pairs_per_second:,.0f} pairs/s"
        hours = f"{found.seconds / 3600:,.2f} hours in one process"
        print(f"{found.lists:,} lists: {hours}, at {rates} (measured on {found.sample:,} lists)")
        return
    _follow(scoring.score(job, on, address, workers, gpus_per_worker))
    print(f"wrote {out}")


def _follow(parts: Iterable[Part]) -> None:
    """Runs a job; a line a minute, and the sums at the end."""
    start = told = time.monotonic()
    lists = pairs = bad = truncated = 0
    for part in parts:
        lists, pairs, bad = lists + part.lists, pairs + part.pairs, bad + part.bad
        truncated += part.truncated
        seconds = time.monotonic() - start
        if time.monotonic() - told > _SECONDS:
            told = time.monotonic()
            rates = f"{lists / seconds:,.1f} lists/s, {pairs / seconds:,.0f} pairs/s"
            print(f"part {part.number}: {lists:,} lists, {rates}", file=sys.stderr, flush=True)
    took = timedelta(seconds=round(time.monotonic() - start))
    print(f"{lists:,} lists, {pairs:,} pairs scored now, in {took}")
    if truncated:
        print(f"{truncated:,} texts were longer than the model's limits and were cut")
    if bad:
        print(f"{bad:,} bad rows or lists were left out: see bad-*.txt")


def teach(
    model: str,
    lists: Path,
    *,
    out: Path,
    lists_per_part: int = 4096,
    device: str | None = None,
    precision: Literal["float32", "bfloat16", "float16"] | None = None,
) -> None:
    """Scores of a file of lists as one file, which training joins to them.

    Args:
        model: model folder or hub repository.
        lists: file or folder of ranking lists.
        out: Parquet file to write.
        lists_per_part: lists that are scored and written at a time.
        device: cpu, cuda, ...; by default a GPU if there is one.
        precision: by default as tuned.
    """
    from crossjem_pl.inference.teach import teach as write_targets

    _follow(write_targets(model, lists, out, lists_per_part, device, precision))
    print(f"wrote {out}")


def blend(
    lists: Path, *, out: Path, model: str = "packaged:all-MiniLM-L6-v2", device: str | None = None
) -> None:
    """Graded targets from labels and a zero-shot bi-encoder, before there is a teacher.

    Args:
        lists: ranking lists with labels.
        out: Parquet file to write.
        model: dual encoder.
        device: cpu, cuda, ...; by default a GPU if there is one.
    """
    from rich.progress import track

    from crossjem_pl.inference.teach import blend as mix

    count = mix(model, lists, out, device=device, progress=partial(track, description="scoring"))
    print(f"wrote {out}: {count} lists")
