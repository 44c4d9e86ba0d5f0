"""Requests that wait share forward passes: by a budget of tokens, in a fair order, without a fixed delay."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

__all__ = ["Job", "Overloaded", "Part", "Scheduler"]

P = TypeVar("P")


class Overloaded(Exception):
    """The queue is full; `retry_after` seconds from now it should have room."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("the queue is full")
        self.retry_after = retry_after


@dataclass(frozen=True)
class Part(Generic[P]):
    """What is scored in one piece: a whole list, or one pass of it, and how many tokens it takes."""

    payload: P
    tokens: int


@dataclass(eq=False)
class Job(Generic[P]):
    """The parts of one request; those that have begun are the first `begun`."""

    parts: Sequence[Part[P]]
    future: asyncio.Future[list[Any]]
    arrived: float = field(default_factory=time.perf_counter)
    started: float = 0.0
    computed: float = 0.0
    """Seconds of the forward passes that it was in."""
    begun: int = 0
    results: list[Any] = field(default_factory=list)


class Scheduler(Generic[P]):
    """Runs parts of many requests on one device, a batch at a time.

    When the device is idle the next batch begins at once with what is there. Of the requests that wait, the oldest
    brings one part; then those of which the fewest parts have begun, the older first, until the next part would
    exceed the budget. So a long list never takes more than one batch before a short one that comes later, and goes
    on with every batch. A request that is given up (its future is done) takes no further part in a batch.

    Args:
        run: results of some parts, in their order; it is called in a thread of its own, one call at a time.
        max_tokens: of a batch. A part that has more runs alone.
        max_waiting: tokens that may wait.
        observe: called with the number of each batch's parts and their tokens.
    """

    def __init__(
        self,
        run: Callable[[list[P]], list[Any]],
        max_tokens: int,
        max_waiting: int,
        observe: Callable[[int, int], None] = lambda parts, tokens: None,
    ) -> None:
        self._run, self._observe = run, observe
        self.max_tokens, self.max_waiting = max_tokens, max_waiting
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="scorer")
        """Where everything runs that uses the device."""
        self._jobs: list[Job[P]] = []
        self._speed = 0.0
        self._loop: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Tokens of the parts that have not begun."""
        return sum(part.tokens for job in self._jobs for part in job.parts[job.begun :])

    def submit(self, parts: Sequence[Part[P]]) -> Job[P]:
        """Takes a request; its future resolves to the parts' results.

        Raises:
            Overloaded: if others wait and `max_waiting` would be exceeded.
        """
        waiting = self.waiting
        if waiting and waiting + sum(part.tokens for part in parts) > self.max_waiting:
            raise Overloaded(self.retry_after())
        job = Job(parts, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._work())
        return job

    def retry_after(self) -> int:
        """Seconds until what waits is computed, at the speed of late, between 1 and 60."""
        return max(1, min(60, round(self.waiting / self._speed))) if self._speed else 1

    async def _work(self) -> None:
        while batch := self._pick():
            payloads = [part.payload for _, part in batch]
            tokens = sum(part.tokens for _, part in batch)
            start = time.perf_counter()
            for job, _ in batch:
                job.started = job.started or start
            results = await asyncio.get_running_loop().run_in_executor(self.thread, self._results, payloads)
            seconds = time.perf_counter() - start
            self._speed += (tokens / seconds - self._speed) * (0.1 if self._speed else 1.0)
            self._observe(len(batch), tokens)
            for job in {id(job): job for job, _ in batch}.values():
                job.computed += seconds
            for (job, _), result in zip(batch, results, strict=True):
                self._finish(job, result)

    def _results(self, payloads: list[P]) -> list[Any]:
        """A result or an exception for each: what fails in a batch is tried again alone, and harms nobody else."""
        try:
            return self._run(payloads)
        except Exception as error:
            if len(payloads) == 1:
                return [error]
            return [result for payload in payloads for result in self._results([payload])]

    @staticmethod
    def _finish(job: Job[P], result: Any) -> None:
        job.results.append(result)
        if job.future.done():
            return
        if isinstance(result, Exception):
            job.future.set_exception(result)
        elif len(job.results) == len(job.parts):
            job.future.set_result(job.results)

    def _pick(self) -> list[tuple[Job[P], Part[P]]]:
        """The parts of the next batch; empty if nothing waits."""
        self._jobs = [job for job in self._jobs if not job.future.done() and job.begun < len(job.parts)]
        queue = [(job.begun if number else -1, number, job) for number, job in enumerate(self._jobs)]
        heapq.heapify(queue)
        batch: list[tuple[Job[P], Part[P]]] = []
        room = self.max_tokens
        while queue:
            _, number, job = heapq.heappop(queue)
            part = job.parts[job.begun]
            if batch and part.tokens > room:
                break
            batch.append((job, part))
            room -= part.tokens
            job.begun += 1
            if job.begun < len(job.parts):
                heapq.heappush(queue, (job.begun, number, job))
        return batch
