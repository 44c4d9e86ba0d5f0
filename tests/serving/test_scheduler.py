from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from crossjem_pl.serving.scheduler import Overloaded, Part, Scheduler


class Device:
    """Doubles numbers once it is let go, and remembers the batches."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, payloads: list[Any]) -> list[Any]:
        assert self.go.wait(10)
        self.batches.append(payloads)
        if "bad" in payloads:
            raise RuntimeError("a bad payload")
        return [2 * payload for payload in payloads]


def parts(count: int, tokens: int = 10, start: int = 0) -> list[Part[Any]]:
    return [Part(start + i, tokens) for i in range(count)]


def play(work: Callable[[Device], Any], device: Device | None = None) -> Device:
    device = device or Device()
    asyncio.run(work(device))
    return device


def test_an_idle_device_begins_at_once_and_results_keep_their_order() -> None:
    async def work(device: Device) -> None:
        scheduler = Scheduler(device, max_tokens=25, max_waiting=1000)
        assert await scheduler.submit(parts(5)).future == [0, 2, 4, 6, 8]

    assert play(work).batches == [[0, 1], [2, 3], [4]]


def test_requests_that_wait_share_a_batch_within_the_budget() -> None:
    async def work(device: Device) -> None:
        device.go.clear()
        scheduler = Scheduler(device, max_tokens=30, max_waiting=1000)
        jobs = [scheduler.submit(parts(1, start=i)) for i in range(5)]
        await asyncio.sleep(0.05)
        device.go.set()
        assert [await job.future for job in jobs] == [[0], [2], [4], [6], [8]]

    assert play(work).batches == [[0, 1, 2], [3, 4]]


def test_a_short_request_waits_for_one_batch_of_a_long_one() -> None:
    async def work(device: Device) -> None:
        device.go.clear()
        scheduler = Scheduler(device, max_tokens=30, max_waiting=10_000)
        long = scheduler.submit(parts(100))
        await asyncio.sleep(0.05)  # its first batch runs
        short = [scheduler.submit(parts(1, start=1000 + i)) for i in range(2)]
        device.go.set()
        assert [await job.future for job in short] == [[2000], [2002]]
        await long.future

    batches = play(work).batches
    assert batches[1] == [3, 1000, 1001]  # the long one goes on as well
    assert sorted(payload for batch in batches for payload in batch) == [*range(100), 1000, 1001]


def test_what_is_given_up_is_not_begun() -> None:
    async def work(device: Device) -> None:
        device.go.clear()
        scheduler = Scheduler(device, max_tokens=10, max_waiting=1000)
        first, second = scheduler.submit(parts(3)), scheduler.submit(parts(1, start=50))
        await asyncio.sleep(0.05)
        first.future.cancel()
        device.go.set()
        assert await second.future == [100]

    assert play(work).batches == [[0], [50]]


def test_a_failure_harms_nobody_else() -> None:
    async def work(device: Device) -> None:
        device.go.clear()
        scheduler = Scheduler(device, max_tokens=100, max_waiting=1000)
        jobs = [scheduler.submit([Part(payload, 10)]) for payload in (1, "bad", 3)]
        await asyncio.sleep(0.02)
        device.go.set()
        with pytest.raises(RuntimeError, match="bad payload"):
            await jobs[1].future
        assert (await jobs[0].future, await jobs[2].future) == ([2], [6])

    play(work)


def test_a_full_queue_says_when_to_come_again() -> None:
    async def work(device: Device) -> None:
        device.go.clear()
        scheduler = Scheduler(device, max_tokens=10, max_waiting=40)
        job = scheduler.submit(parts(8))  # nothing waits: it is taken, however long
        with pytest.raises(Overloaded) as caught:
            scheduler.submit(parts(1))
        assert 1 <= caught.value.retry_after <= 60
        device.go.set()
        await job.future
        assert scheduler.waiting == 0
        await scheduler.submit(parts(1)).future

    play(work)
