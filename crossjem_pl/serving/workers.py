"""Processes behind one port: a supervisor that opens it and restarts workers, and the workers that answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from typing import Any

from crossjem_pl.serving import ServingOptions

__all__ = ["serve"]

_STOP = (signal.SIGTERM, signal.SIGINT)
# workers are forked from a process that has only imported what they need: they start fast and share that memory
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "crossjem_pl.serving.connections",
        "crossjem_pl.rankers.crossjem.model",
        "transformers.modeling_utils",
        "uvloop",
    ]
)
_SLOWEST_RESTART = 30.0


@dataclass(eq=False)
class _Worker:
    process: ForkServerProcess
    pipe: Connection
    started: float


class _Supervisor:
    """Keeps `options.workers` workers alive that accept from one socket; it never loads a model itself."""

    def __init__(self, options: ServingOptions, listener: socket.socket) -> None:
        self.options, self.listener = options, listener
        self.ready = _CONTEXT.Event()
        self.workers: dict[int, _Worker] = {}
        self.due = dict.fromkeys(range(options.workers), 0.0)
        """When the workers that are not there are to start."""
        self.stopping = 0.0
        """When the signal to stop came; 0: not yet."""
        self.failures = 0
        self.message: str | None = None

    def run(self) -> None:
        """Until all workers have ended after SIGTERM or SIGINT.

        Raises:
            ValueError: if no worker can load the model.
        """
        for stop in _STOP:
            signal.signal(stop, self._stop)
        signal.signal(signal.SIGHUP, lambda *_: self._send(signal.SIGHUP))
        while self.workers or not self.stopping:
            for worker in list(self.workers.values()):
                if worker.pipe.poll():
                    self._heard(worker)
            for number, worker in list(self.workers.items()):
                if not worker.process.is_alive():
                    self._ended(number, worker)
            for number in [n for n, when in self.due.items() if when <= time.monotonic()]:
                if not self.stopping:
                    self._start(number)
            if self.stopping and time.monotonic() - self.stopping > self.options.drain_timeout + 5:
                for worker in self.workers.values():
                    worker.process.kill()
            handles = [h for w in self.workers.values() for h in (w.process.sentinel, w.pipe)]
            wait(handles, timeout=1.0 if self.workers else 0.1)
        if self.message is not None:
            raise ValueError(self.message)

    def _start(self, number: int) -> None:
        here, there = _CONTEXT.Pipe()
        arguments = (self.options, self.listener, there, self.ready, number)
        process = _CONTEXT.Process(target=_run_worker, args=arguments, name=f"worker-{number}")
        process.start()
        there.close()
        self.workers[number] = _Worker(process, here, time.monotonic())
        del self.due[number]
        if self.stopping:  # since a moment ago: it was not among those that were told
            self._send(signal.SIGTERM)

    def _heard(self, worker: _Worker) -> None:
        """Takes a worker's word that it cannot load the model, which ends the server unless others answer."""
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(1.0)  # it is about to end
            return
        if self.ready.is_set() and len(self.workers) > 1:
            print(message, file=sys.stderr)
        else:
            self.message = message
            self._stop()

    def _ended(self, number: int, worker: _Worker) -> None:
        worker.process.join()
        worker.pipe.close()
        del self.workers[number]
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(worker.process.pid)
        if self.stopping:
            return
        lived = time.monotonic() - worker.started
        self.failures = 0 if lived > _SLOWEST_RESTART else self.failures + 1
        print(f"worker {number} ended with {worker.process.exitcode}; it is restarted", file=sys.stderr)
        # a worker that ends again and again is restarted ever later
        later = min(_SLOWEST_RESTART, 2.0 ** min(self.failures, 10) / 4) if self.failures > 1 else 0.0
        self.due[number] = time.monotonic() + later

    def _stop(self, *_: Any) -> None:
        self.stopping = self.stopping or time.monotonic()
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        """Sends a signal to all workers that live."""
        for worker in list(self.workers.values()):
            if worker.process.pid is not None and worker.process.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.process.pid, number)


def serve(options: ServingOptions) -> None:
    """Serves until SIGTERM or SIGINT, then answers every accepted request and returns. SIGHUP loads the model again.

    Raises:
        OSError: if the port is taken.
        ValueError: if the model cannot be loaded.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(
            socket.create_server((options.host, options.port), family=family, backlog=2048)
        )
        # accepted sockets inherit it; asyncio does not set it here, and every answer would wait 40 ms for an ACK
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if options.workers > 1:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="crossjem-metrics-"))
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        host = f"[{options.host}]" if ":" in options.host else options.host
        print(f"crossjem_pl listens on http://{host}:{listener.getsockname()[1]}", flush=True)
        _Supervisor(options, listener).run()


def _run_worker(
    options: ServingOptions, listener: socket.socket, pipe: Connection, ready: Event, number: int
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for stop in _STOP:
        signal.signal(stop, signal.SIG_DFL)
    import torch
    import uvloop

    from crossjem_pl.serving.app import LOG, JsonFormatter

    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    torch.set_num_threads(max(1, torch.get_num_threads() // options.workers))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_answer(options, listener, pipe, ready, number))
    except (OSError, ImportError, ValueError) as error:
        with contextlib.suppress(OSError):
            pipe.send(str(error))
        sys.exit(2)


async def _answer(
    options: ServingOptions, listener: socket.socket, pipe: Connection, ready: Event, number: int
) -> None:
    """A worker's life. At the first start worker 0 accepts while it loads, to say so; others accept when they can
    answer, so that a restarted one refuses nothing."""
    from crossjem_pl.serving.app import LOG, Service
    from crossjem_pl.serving.connections import http_server

    service = Service(options)
    server = http_server(service)
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def begin(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = loop.create_task(work())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def stop() -> None:
        if not service.draining:
            await service.drain()
            server.should_exit = True

    async def reload() -> None:
        try:
            await service.load()
        except (OSError, ImportError, ValueError) as error:
            LOG.error("reload failed", {"reason": str(error)})

    def supervisor_died() -> None:
        loop.remove_reader(pipe.fileno())
        begin(stop)

    for ending in _STOP:
        loop.add_signal_handler(ending, begin, stop)
    loop.add_signal_handler(signal.SIGHUP, begin, reload)
    loop.add_reader(pipe.fileno(), supervisor_died)

    early = number == 0 and not ready.is_set()
    answering = loop.create_task(server.serve([listener])) if early else None
    await service.load()
    if early:
        ready.set()
    while not ready.is_set() and not service.draining:
        await asyncio.sleep(0.05)
    await (answering or server.serve([listener]))
    LOG.info("stopped", {"in_flight": service.in_flight})
