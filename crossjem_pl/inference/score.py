"""Scores of any number of lists, each exactly once: in parts that appear whole, in one process, several, or on Ray."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import chain, islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crossjem_pl.data.formats import ListReader, detect_layout, read_lists
from crossjem_pl.data.rows import open_parquet, read_rows
from crossjem_pl.data.shards import Manifest, shard_files
from crossjem_pl.data.streaming import Segment, ShardIndex
from crossjem_pl.data.teacher import read_provenance, write_scores
from crossjem_pl.files import as_path, ending, replacing
from crossjem_pl.hashing import content_sha256, file_sha256, weights_sha256
from crossjem_pl.inference.configuration import Precision
from crossjem_pl.inference.reranker import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.threshold import pass_limits

__all__ = ["Estimate", "Job", "Part", "check_same", "estimate", "ray_cluster", "score"]


class Part(NamedTuple):
    """What scoring one part of the lists gave.

    Args:
        number: of the part, which is also its file's name.
        lists: lists that were scored.
        pairs: their items.
        bad: rows and lists that were left out, see `Job.skip_bad`.
        truncated: texts that lost tokens to the model's limits.
        bytes: of its file.
        seconds: that reading, scoring and writing it took.
        left: parts of the job that this call had still to see to after it.
    """

    number: int
    lists: int
    pairs: int
    bad: int
    truncated: int
    bytes: int = 0
    seconds: float = 0.0
    left: int = 0


_COUNTS = Part._fields[:5]
"""What a part's file says of it: that which depends on the job alone."""


@dataclass(frozen=True)
class Job:
    """Which lists are scored by which model, and what is written.

    Args:
        model: model folder or hub repository.
        lists: any file or folder that `read_lists` reads, here or behind a URL (`RemotePath`). Parquet in the canonical
            layout is cut into parts by its footers alone; anything else is read through once to count its lists.
        out: folder, here or behind a URL, for `000000.parquet`, ... (`query_id, item_id, score`, a row an item) and
            `manifest.json`.
        lists_per_part: about how many lists a part has; parts of Parquet end with a row group.
        top_k: keep only the best so many items of a list, best first; None keeps all, in the list's order.
        min_score: keep only items whose score, as it is written, is at least this; None keeps all.
        probabilities: write `Ranker.probabilities` of the scores, as a student that distils them expects.
        skip_bad: leave out rows that are malformed and lists that cannot be scored, and name them in
            `bad-000000.txt`, ...; otherwise the first of them is an error.
        device, precision: see `Reranker`.
    """

    model: str
    lists: Path
    out: Path
    lists_per_part: int = 4096
    top_k: int | None = None
    probabilities: bool = False
    skip_bad: bool = False
    device: str | None = None
    precision: Precision | None = None
    min_score: float | None = None

    def __post_init__(self) -> None:
        for name in ("lists", "out"):
            object.__setattr__(self, name, as_path(getattr(self, name)))
        for name in ("lists_per_part", "top_k"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.min_score is not None and math.isnan(self.min_score):
            raise ValueError("min_score must be a number, got nan")


def score(
    job: Job,
    on: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int = 1,
    gpus_per_worker: float = 0.0,
) -> Iterator[Part]:
    """Scores the parts of a job that are not there yet, and yields what each gave, in the order they are done.

    A part is a pure function of the job: written under a temporary name and renamed (see `RemotePath.replace`), so that
    a call that was interrupted goes on where it stopped, and several processes that run one job at once share the work
    and end with one complete answer. The manifest says what the scores were made with, and is complete when all parts
    are there.

    Args:
        job: what is scored.
        on: "local" in this process; "ray" in actors of a Ray cluster, all of which see the same files (extra `scale`).
        address: of the cluster ("auto" for a running one); None starts one on this machine.
        workers: actors, each of which loads the model once.
        gpus_per_worker: of an actor; fractions share a GPU.

    Raises:
        FileNotFoundError: if there are no such lists or model.
        ImportError: without Ray, if it is asked for.
        ValueError: for a folder of another model, other lists or options (names which); for the first bad list, unless
            they are skipped; and on Ray, for lists that are not Parquet in the canonical layout.
    """
    scoring = _Scoring(job)
    manifest = Manifest.read(job.out)
    if manifest is not None:
        scoring.check(manifest)
    elif job.out.is_dir() and any(job.out.glob("*.parquet")):
        raise ValueError(f"{job.out}: has Parquet files, but no manifest.json that tells how they were made")
    else:
        Manifest(job.out, scoring.provenance).save()
    there = {path.name for path in job.out.iterdir()}
    todo = [number for number in range(len(scoring.source)) if scoring.path(number).name not in there]
    if manifest is not None and manifest.complete and not todo:
        return
    lists: dict[int, int] = {}
    if on == "ray":
        if isinstance(scoring.source, _Stream):
            raise ValueError(
                f"{job.lists}: on Ray, lists are read from Parquet; make it with: crossjem convert {job.lists} "
                "FOLDER --shard-size 10000"
            )
        parts = _on_ray(job, todo, address, workers, gpus_per_worker)
    else:
        start = os.getpid() % max(len(todo), 1) if isinstance(scoring.source, _Shards) else 0
        parts = scoring.score_parts([*todo[start:], *todo[:start]])  # another process begins elsewhere
    for part in parts:
        lists[part.number] = part.lists
        yield part
    manifest = Manifest(job.out, scoring.provenance, complete=True)
    for number, path in enumerate(map(scoring.path, range(len(scoring.source)))):
        manifest.add(path, lists[number] if number in lists else int(read_provenance(path)["lists"]))
    manifest.save()


def check_same(job: Job, file: Path) -> None:
    """Raises a ValueError if the scores in a file are not those of a job, or there are none in it."""
    with open_parquet(file) as opened:
        if not opened.metadata.num_rows:
            raise ValueError(f"{file}: has no scores; remove it to write them again")
    _Scoring(job).check(Manifest(file, read_provenance(file)))


class Estimate(NamedTuple):
    """What a job would take on this machine, in one process.

    Args:
        lists: of the job.
        sample: lists that were timed to tell.
        pairs: their items.
        reading, scoring, writing: seconds that the sample took; it was written to a local file.
    """

    lists: int
    sample: int
    pairs: int
    reading: float
    scoring: float
    writing: float

    @property
    def of_sample(self) -> float:
        """Seconds that the sample took."""
        return self.reading + self.scoring + self.writing

    @property
    def hours(self) -> float:
        """For all lists."""
        return self.lists / self.sample * self.of_sample / 3600


def estimate(job: Job, sample: int = 1000) -> Estimate:
    """Reads, scores and writes (but not to `out`) the first `sample` lists, after a tenth more to warm up.

    Parquet in the canonical layout is counted by its footers alone.

    Raises:
        ValueError: if there is no list to read, and as `score`.
    """
    scoring = _Scoring(job)
    _ = scoring.provenance  # hashed once for all parts
    found = chain.from_iterable(map(scoring.source.read, range(len(scoring.source))))
    warm, bad = scoring.lists(islice(found, max(min(sample, scoring.source.lists) // 10, 1)))
    scoring.scored(warm, bad)
    with TemporaryDirectory() as folder:
        times = [time.perf_counter()]
        lists, bad = scoring.lists(islice(found, sample))
        lists = lists or warm
        if not lists:
            raise ValueError(f"{job.lists}: every row is bad: no list to measure")
        times.append(time.perf_counter())
        scored = scoring.scored(lists, bad)
        times.append(time.perf_counter())
        scoring.write(scored, Path(folder) / "sample.parquet", {})
        times.append(time.perf_counter())
    return Estimate(
        scoring.source.lists,
        len(lists),
        sum(map(len, lists)),
        *(b - a for a, b in pairwise(times)),
    )


class _Scoring:
    """A job in a process that works on it: its model and its lists, opened."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.source = _source(job)
        self.reranker = Reranker(job.model, device=job.device, precision=job.precision)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What the scores depend on."""
        ranker, job = self.reranker.ranker, self.job
        return {
            "model": job.model,
            "weights_sha256": weights_sha256(ranker),
            "precision": self.reranker.precision,
            "pass_limits": pass_limits(ranker),
            "score_kind": "probability" if job.probabilities else ranker.score_kind,
            "lists_digest": self.source.digest,
            "lists_per_part": job.lists_per_part,
            "top_k": job.top_k,
            "min_score": job.min_score,
            "skip_bad": job.skip_bad,
        }

    def check(self, manifest: Manifest) -> None:
        """Raises a ValueError if other scores are there; the same weights may have come by another name."""
        manifest.check_options({name: value for name, value in self.provenance.items() if name != "model"})

    def path(self, number: int) -> Path:
        """The file of a part."""
        return self.job.out / f"{number:06d}.parquet"

    def lists(self, found: Iterable[RankingList | ValueError]) -> tuple[list[RankingList], list[str]]:
        """Of what a source gave, the lists and what is wrong with its bad rows."""
        lists: list[RankingList] = []
        bad: list[str] = []
        for one in found:
            if isinstance(one, RankingList):
                lists.append(one)
            elif self.job.skip_bad:
                bad.append(str(one))
            else:
                raise one
        return lists, bad

    def score_parts(self, numbers: Sequence[int]) -> Iterator[Part]:
        """Scores and writes those of the parts that are not there when it comes to them."""
        for left, number in zip(reversed(range(len(numbers))), numbers, strict=True):
            if not self.path(number).exists():
                yield self.score_part(number)._replace(left=left)

    def score_part(self, number: int) -> Part:
        """Scores and writes a part."""
        start, before = time.perf_counter(), self.reranker.truncated
        lists, bad = self.lists(self.source.read(number))
        scored = self.scored(lists, bad)
        pairs, cut = sum(len(one) for one, _ in scored), self.reranker.truncated - before
        part = Part(number, len(scored), pairs, len(bad), cut)
        if bad:
            with replacing(self.job.out / f"bad-{number:06d}.txt") as file:
                file.writelines(f"{text}\n".encode() for text in bad)
        path = self.path(number)
        self.write(scored, path, {name: getattr(part, name) for name in _COUNTS})
        return part._replace(bytes=path.stat().st_size, seconds=time.perf_counter() - start)

    def scored(self, lists: Sequence[RankingList], bad: list[str]) -> list[tuple[RankingList, Tensor]]:
        """The lists with their scores; if bad ones are skipped, without those that cannot be scored, and what is wrong
        with them is added to `bad`."""
        try:
            return list(zip(lists, self.reranker.score(lists), strict=True))
        except ValueError as error:
            if not self.job.skip_bad:
                raise
            if len(lists) > 1:
                return [pair for one in lists for pair in self.scored([one], bad)]
            bad.append(str(error))
            return []

    def write(self, scored: Sequence[tuple[RankingList, Tensor]], path: Path, counts: dict[str, Any]) -> None:
        """Writes a part's file."""
        rows = (row for one, scores in scored for row in self._rows(one, scores))
        write_scores(rows, path, {**self.provenance, **counts})

    def _rows(self, one: RankingList, scores: Tensor) -> Iterator[tuple[str, str, float]]:
        order: Sequence[int] = range(len(one))
        if self.job.top_k is not None:  # before probabilities, which round high scores to 1
            order = torch.sort(scores, descending=True, stable=True).indices[: self.job.top_k].tolist()
        scores = scores.double()
        if self.job.probabilities:
            scores = self.reranker.ranker.probabilities(scores)
        values = scores.tolist()
        lowest = -math.inf if self.job.min_score is None else self.job.min_score
        return ((one.query_id, one.item_ids[i], values[i]) for i in order if values[i] >= lowest)


def _source(job: Job) -> _Shards | _Stream:
    files = shard_files(job.lists)
    if all(ending(file) == ".parquet" for file in files) and detect_layout(job.lists) == "canonical":
        return _Shards(job.lists, job.lists_per_part)
    return _Stream(job.lists, job.lists_per_part, job.skip_bad)


class _Shards:
    """Parts of canonical Parquet: row groups that begin within the same `size` lists. Any part is read at once."""

    def __init__(self, path: Path, size: int) -> None:
        self._index = ShardIndex(path, None, None)
        self.digest, self.lists = self._index.digest, len(self._index)
        starts = np.cumsum(self._index.rows) - self._index.rows
        self._part_of = np.unique(starts // size, return_inverse=True)[1]

    def __len__(self) -> int:
        return int(self._part_of[-1]) + 1

    def read(self, number: int) -> Iterator[RankingList | ValueError]:
        """The lists of a part, or the error that names file, row and field, in stored order."""
        groups = range(*np.searchsorted(self._part_of, [number, number + 1]))
        for batch in self._index.read(Segment(group, 0, int(self._index.rows[group])) for group in groups):
            for row in range(batch.num_rows):
                try:
                    yield from (one for _, one in self._index.lists(batch.slice(row, 1)))
                except ValueError as error:
                    yield error


class _Stream:
    """Parts of `size` lists of any other layout, which are read from front to back, those that are done as well."""

    def __init__(self, path: Path, size: int, skip_bad: bool) -> None:
        self._path, self._size, self._skip_bad = path, size, skip_bad
        self.digest = content_sha256(file_sha256(file) for file in shard_files(path))
        self.lists = sum(isinstance(found, RankingList) for found in self._all())
        if not self.lists:
            raise ValueError(f"{path}: no lists")
        self._reading, self._next = self._all(), 0

    def __len__(self) -> int:
        return -(-self.lists // self._size)

    def read(self, number: int) -> Iterator[RankingList | ValueError]:
        """As of `_Shards`; a bad row belongs to the part of the list after it, after the last list to the last part."""
        first = number * self._size
        if first < self._next:
            self._reading, self._next = self._all(), 0
        last = number == len(self) - 1
        while self._next < first + self._size or last:
            found = next(self._reading, None)
            if found is None:
                return
            if self._next >= first:
                yield found
            self._next += isinstance(found, RankingList)

    def _all(self) -> Iterator[RankingList | ValueError]:
        if not self._skip_bad:
            yield from read_lists(self._path, label_column=None, score_column=None)
            return
        reader = ListReader(detect_layout(self._path), None, None)
        for row in read_rows(self._path, reader.columns):
            try:
                yield from reader.lists(row)
            except ValueError as error:
                yield error
        yield from (one for _, one in reader.rest())


def _on_ray(job: Job, todo: Sequence[int], address: str | None, workers: int, gpus: float) -> Iterator[Part]:
    """Scores the parts in actors of a cluster; a part whose actor or node is lost is scored by another one."""

    class Worker:
        """An actor, which loads the model once."""

        def __init__(self) -> None:
            self.scoring = _Scoring(job)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            parts = [self.scoring.score_part(int(number)) for number in batch["number"]]
            return {name: [getattr(part, name) for part in parts] for name in Part._fields}

    with ray_cluster(address, "scoring", "ray.data") as (_, data):
        parts = data.from_items([{"number": number} for number in todo], override_num_blocks=len(todo) or 1)
        # one task at a time: none waits behind a slow actor
        pool = data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1)
        done = parts.map_batches(Worker, batch_size=1, compute=pool, num_cpus=1, num_gpus=gpus)
        for left, row in zip(reversed(range(len(todo))), done.iter_rows(), strict=True):
            part = Part(**{name: int(row[name]) for name in Part._fields if name != "seconds"})
            yield part._replace(seconds=float(row["seconds"]), left=left)


@contextmanager
def ray_cluster(
    address: str | None, doing: str, library: str, show_output: bool = False
) -> Iterator[tuple[Any, Any]]:
    """`ray` and one of its libraries, connected to the cluster at an address ("auto" for a running one), or to one that
    lasts as long as this; `show_output` prints what workers print.

    Raises:
        ImportError: without Ray; names the extra that `doing` needs.
    """
    try:
        ray, part = import_module("ray"), import_module(library)
    except ImportError as error:
        raise ImportError(
            f"{doing} on Ray needs the extra: pip install 'crossjem_pl[scale]' ({error})"
        ) from error
    started = not ray.is_initialized()
    if started:
        dashboard = False if address is None else None
        # without an address Ray would join whatever cluster it finds on this machine
        ray.init(address=address or "local", log_to_driver=show_output, include_dashboard=dashboard)
    try:
        yield ray, part
    finally:
        if started:
            ray.shutdown()
