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
    min_score: float | None = None,
    probabilities: bool = False,
    skip_bad: bool = False,
    device: str | None = None,
    precision: Literal["float32", "bfloat16", "float16"] | None = None,
    dry_run: bool = False,
    price: float | None = None,
) -> None:
    """Scores any number of lists, each exactly once.

    Args:
        model: model folder or hub repository.
        lists: file or folder of ranking lists, or its URL (s3://, gs://, hdfs://); Parquet in the canonical layout is
            read in parts.
        out: folder, or its URL, of Parquet files with query_id, item_id and score, and a manifest. A call that was
            interrupted goes on where it stopped; several processes with the same arguments share the work.
        on: in this process, or in actors of a Ray cluster that sees the same files.
        address: of the Ray cluster, "auto" for a running one (default: one is started on this machine).
        workers: Ray actors.
        gpus_per_worker: GPUs of a Ray actor; fractions share one.
        lists_per_part: lists that are scored and written at a time.
        top_k: keep only the best so many items of a list, best first.
        min_score: keep only items whose score, as it is written, is at least this.
        probabilities: write probabilities of relevance, as `crossjem teach` does.
        skip_bad: leave out malformed rows and lists that cannot be scored, and name them in bad-*.txt.
        device: cpu, cuda, ...; by default a GPU if there is one.
        precision: by default as tuned.
        dry_run: read and score 1,000 lists, write nothing to OUT, and say how long all would take.
        price: of a process with its device for an hour; a dry run then says what all lists would cost.
    """
    from crossjem_pl.inference import score as scoring
    from crossjem_pl.lists import counted

    options = (lists_per_part, top_k, probabilities, skip_bad, device, precision, min_score)
    job = scoring.Job(model, lists, out, *options)
    if price is not None and not dry_run:
        raise ValueError("--price is for --dry-run")
    if not dry_run:
        _follow(scoring.score(job, on, address, workers, gpus_per_worker))
        print(f"wrote {job.out}")
        return
    found = scoring.estimate(job)
    seconds = found.of_sample
    rates = f"{found.sample / seconds:,.1f} lists/s, {found.pairs / seconds:,.0f} pairs/s"
    shares = ", ".join(
        f"{name} {getattr(found, name) / seconds:.0%}" for name in ("reading", "scoring", "writing")
    )
    cost = "" if price is None else f", cost {found.hours * price:,.2f}"
    print(f"{counted(found.lists, 'list')}: {found.hours:,.2f} hours in one process, at {rates}{cost}")
    print(f"measured on {counted(found.sample, 'list')}: {shares}")


def _follow(parts: Iterable[Part]) -> None:
    """Runs a job with a bar, or without a terminal a line a minute; the sums at the end."""
    import numpy as np
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from crossjem_pl.cli.command import new_console
    from crossjem_pl.lists import counted

    start = told = time.monotonic()
    lists = pairs = bad = truncated = size = 0
    times: list[float] = []
    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=new_console(), disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=None)
        for done, part in enumerate(parts, 1):
            lists, pairs, bad = lists + part.lists, pairs + part.pairs, bad + part.bad
            truncated, size = truncated + part.truncated, size + part.bytes
            if part.lists:
                times.append(part.seconds / part.lists)
            seconds = time.monotonic() - start
            rates = f"{lists / seconds:,.1f} lists/s, {pairs / seconds:,.0f} pairs/s"
            text = f"{counted(lists, 'list')}, {rates}, {size / 1e6:,.1f} MB"
            bar.update(task, description=text, completed=done, total=done + part.left)
            if time.monotonic() - told > _SECONDS and bar.disable:
                told = time.monotonic()
                left = timedelta(seconds=round(seconds / done * part.left))
                print(
                    f"{text}, {left} left ({done} of {done + part.left} parts)", file=sys.stderr, flush=True
                )
    took = timedelta(seconds=round(time.monotonic() - start))
    print(f"{counted(lists, 'list')}, {counted(pairs, 'pair')} scored now, in {took}; {size / 1e6:,.1f} MB")
    if times:
        p50, p95, most = (1000 * seconds for seconds in np.percentile(times, [50, 95, 100]))
        print(
            f"milliseconds a list: {p50:.2f} in the median part, {p95:.2f} at the 95th percentile, {most:.2f} at most"
        )
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
    from crossjem_pl.inference.teach import blend as mix
    from crossjem_pl.lists import counted
    from crossjem_pl.progress import track

    count = mix(model, lists, out, device=device, progress=partial(track, description="scoring"))
    print(f"wrote {out}: {counted(count, 'list')}")
