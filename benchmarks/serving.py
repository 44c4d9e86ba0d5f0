"""Throughput and latency of `crossjem serve` under load, beside a cross-encoder behind a plain FastAPI handler.

    python -m benchmarks.serving --clients 1 4 16 64 --items 10 100 700 --out runs/serving
    python -m benchmarks.serving --soak 10 --overload 60

Servers: crossjem (form "best"), the same without shared passes (`--max-batch-tokens 1`), sentence-transformers'
CrossEncoder on the same encoder, one request after the other, and infinity-emb with that CrossEncoder if `--infinity`
names its program. They run side by side, get the same requests and are measured in turns, so that what else the machine
does meets all. The texts are simulated; 400 requests of a size are sent again and again. Closed loop:
every client sends its next request when it has the last one's answer; the first second is not counted. Open loop:
requests arrive at random (Poisson) at a share of the most that up to 16 clients reached, and latency counts from the
moment at which a request was due. The clients run on the same machine, in one process.

`--soak` and `--overload` drive crossjem alone, with the first of the lists' sizes that is 100: minutes at 80% of its
capacity, and seconds at three times of it. Writes serving.json, serving.md and serving.png.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.charts import chart, logarithmic
from benchmarks.contenders import SENTENCE_TRANSFORMERS, build_ranker
from benchmarks.measuring import resident
from benchmarks.pages import provenance, table, write
from benchmarks.program import defaults, parser, program, torch_device
from crossjem_pl.data.simulator import simulate
from crossjem_pl.rankers.encoders import resolve
from crossjem_pl.rankers.folder import save_ranker

OWN, UNSHARED, INFINITY = "crossjem", "crossjem, passes not shared", "infinity-emb"
SYSTEMS = (OWN, UNSHARED, SENTENCE_TRANSFORMERS)
QUEUE = 64
_BODIES = 400
_TRUSTED = 16
_ROUNDS = 2
_RAMP = 1.0
_SHARES = (0.5, 0.8)


def _options() -> argparse.ArgumentParser:
    options = parser("benchmarks.serving", __doc__, "runs/serving")
    options.add_argument("--clients", type=int, nargs="+", help="of the closed loop")
    options.add_argument("--items", type=int, nargs="+", help="of a request")
    options.add_argument("--seconds", type=int, help="of each measurement")
    options.add_argument("--systems", nargs="+", choices=SYSTEMS)
    options.add_argument("--infinity", metavar="PROGRAM", help="infinity_emb of an environment that has it")
    options.add_argument("--soak", type=float, default=0, metavar="MINUTES", help="at 80%% of the capacity")
    options.add_argument(
        "--overload", type=float, default=0, metavar="SECONDS", help="at 3 times the capacity"
    )
    options.add_argument("--cross-encoder", type=int, metavar="PORT", help=argparse.SUPPRESS)
    return options


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    if args.cross_encoder is not None:
        import uvicorn

        app = cross_encoder_app(args.encoder)
        return uvicorn.run(app, port=args.cross_encoder, log_level="warning", access_log=False)
    full = {"clients": [1, 4, 16, 64], "items": [10, 100, 700], "seconds": 20, "systems": list(SYSTEMS)}
    defaults(args, full, {"clients": [1, 4], "items": [10], "seconds": 2})
    found: dict[str, Any] = {"provenance": provenance(torch_device(args.device), args.command), "rows": []}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        save_ranker(build_ranker("crossjem-best", args.encoder), Path(folder) / "model")
        names = [OWN] if args.soak or args.overload else args.systems + [INFINITY] * bool(args.infinity)
        servers = [stack.enter_context(Server(name, args, Path(folder))) for name in names]
        for server in servers:
            server.wait()
        if args.soak or args.overload:
            items = next((n for n in args.items if n == 100), args.items[0])
            found["long"] = endure(servers[0], items, args)
        else:
            for items in args.items:
                found["rows"] += measure(servers, items, args)
    write(found, page(found), args.out, "serving")
    if found["rows"]:
        plot(found["rows"], args.out / "serving.png")


def measure(servers: Sequence[Server], items: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Closed loops by number of clients, then open loops at two shares of each server's best."""
    texts, best = requests(items), dict.fromkeys((server.name for server in servers), 0.0)
    for clients in args.clients:
        results = {server.name: Result() for server in servers}
        before = {server.name: server.batches() for server in servers}
        for _ in range(_ROUNDS):
            for server in servers:
                result = results[server.name]
                asyncio.run(closed_loop(server, texts, clients, args.seconds / _ROUNDS, result))
                server.settle()
        for server in servers:
            row = {"name": server.name, "items": items, "load": f"{clients} clients", "clients": clients}
            row |= results[server.name].row(least=clients)
            passes, lists = np.subtract(server.batches(), before[server.name])
            yield row | ({"batch": lists / passes} if passes > 0 else {})
            if clients <= _TRUSTED:
                best[server.name] = max(best[server.name], row["per_second"])
    for share in _SHARES:
        for server in (each for each in servers if best[each.name]):
            result = asyncio.run(open_loop(server, texts, share * best[server.name], args.seconds))
            yield {"name": server.name, "items": items, "load": f"{share:.0%} of its best"} | result.row()
            server.settle()


def endure(server: Server, items: int, args: argparse.Namespace) -> dict[str, Any]:
    """What soak and overload found."""
    texts, found = requests(items), dict[str, Any](items=items)
    measured = Result()
    asyncio.run(closed_loop(server, texts, 16, args.seconds, measured))
    capacity = found["capacity"] = measured.per_second
    if args.soak:
        watched = asyncio.run(open_loop(server, texts, 0.8 * capacity, 60 * args.soak, watch=True))
        part = min(60.0, 60 * args.soak / 3)
        parts = int(60 * args.soak / part)
        found["soak"] = watched.row()
        for p in (50, 99):
            found["soak"][f"p{p}_by_minute"] = [
                percentile([ms for at, ms in watched.times if part * i <= at < part * (i + 1)], p)
                for i in range(parts)
            ]
        start = next(rss for at, rss in watched.memory if at >= part)
        found["soak"] |= {
            "rss_after_first_minute": start,
            "rss_end": watched.memory[-1][1],
            "rss_growth": watched.memory[-1][1] / start - 1,
        }
    if args.overload:
        over = asyncio.run(open_loop(server, texts, 3 * capacity, args.overload))
        calm = asyncio.run(open_loop(server, texts, 0.5 * capacity, min(10.0, args.overload)))
        refused = [at for at, status in calm.refused]
        found["overload"] = over.row() | {
            "goodput": over.per_second / capacity,
            "queue_seconds": QUEUE / capacity,
            "after": calm.row(),
            "recovered_after_seconds": max(refused, default=0.0),
        }
    return found


class Result:
    """Statuses and latencies of the answers that came."""

    def __init__(self) -> None:
        self.statuses: Counter[int | str] = Counter()
        self.times: list[tuple[float, float]] = []
        """When a request was due, in seconds, and milliseconds until its answer; of those answered with 200."""
        self.refused: list[tuple[float, int | str]] = []
        """When the others were due, and how they ended."""
        self.memory: list[tuple[float, float]] = []
        self.seconds = 0.0

    @property
    def per_second(self) -> float:
        """Answers with 200 a second."""
        return len(self.times) / self.seconds

    def row(self, least: int = 1) -> dict[str, Any]:
        """Fields of a table; percentiles only of `least` answers or more."""
        milliseconds = [ms for _, ms in self.times] if len(self.times) >= least else []
        percentiles = {f"p{p}": percentile(milliseconds, p) for p in (50, 95, 99)}
        statuses = {str(status): count for status, count in self.statuses.items()}
        return {"per_second": self.per_second, **percentiles, "statuses": statuses}


class Connections:
    """Connections to a server that are kept open, HTTP/1.1, one request at a time on each."""

    def __init__(self, server: Server, result: Result) -> None:
        self._server, self._result = server, result
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._head = "POST /rerank HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
        self.start = time.perf_counter()

    async def ask(self, request: tuple[str, list[str]], due: float) -> None:
        """Sends a request and counts the answer; `due` is when it should have been sent."""
        status: int | str
        writer = None
        body = json.dumps({"query": request[0], self._server.field: request[1]})
        try:
            while self._idle and self._idle[-1][0].at_eof():  # the server has closed it: it was idle for long
                self._idle.pop()[1].close()
            reader, writer = (
                self._idle.pop()
                if self._idle
                else await asyncio.open_connection("127.0.0.1", self._server.port)
            )
            writer.write(f"{self._head}{len(body)}\r\n\r\n{body}".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            status = int(answer.split(b" ", 2)[1])
            length = re.search(rb"content-length: (\d+)", answer, re.I)
            assert length is not None
            await reader.readexactly(int(length[1]))
            if b"connection: close" not in answer.lower():
                self._idle.append((reader, writer))
                writer = None
        except (OSError, EOFError) as error:
            status = type(error).__name__
        finally:  # an error, or the end of the measurement before the answer came
            if writer is not None:
                writer.close()
        now = time.perf_counter()
        if now < self.start:  # of the first second
            return
        self._result.statuses[status] += 1
        if status == 200:
            self._result.times.append((due - self.start, 1000 * (now - due)))
        else:
            self._result.refused.append((due - self.start, status))

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def closed_loop(
    server: Server, texts: Sequence[tuple[str, list[str]]], clients: int, seconds: float, result: Result
) -> None:
    """`clients` of them, each with one request at a time; adds the answers that came within `seconds` to a result."""
    connections = Connections(server, result)
    connections.start += _RAMP

    async def client(number: int) -> None:
        while True:
            number = (number + clients) % len(texts)
            await connections.ask(texts[number], time.perf_counter())

    tasks = [asyncio.ensure_future(client(number)) for number in range(clients)]
    await asyncio.sleep(_RAMP + seconds)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    result.seconds += seconds
    connections.close()


async def open_loop(
    server: Server, texts: Sequence[tuple[str, list[str]]], rate: float, seconds: float, watch: bool = False
) -> Result:
    """Requests at random moments, `rate` a second; the server's resident memory every second if it is watched.

    Every minute brings the same requests at the same moments, so that minutes compare.
    """
    result, chance, minute = Result(), random.Random(0), 0.0
    connections = Connections(server, result)
    tasks: set[asyncio.Task[None]] = set()
    due = connections.start
    while due - connections.start < seconds:
        due += chance.expovariate(rate)
        if due - connections.start >= minute + 60:
            chance, minute = random.Random(0), minute + 60
            due = connections.start + minute + chance.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.ensure_future(connections.ask(texts[chance.randrange(len(texts))], due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        at = time.perf_counter() - connections.start
        if watch and (not result.memory or at - result.memory[-1][0] > 1):
            result.memory.append((at, server.resident()))
    if tasks:
        await asyncio.wait(tasks, timeout=120)
    result.seconds = time.perf_counter() - connections.start  # until the last answer
    connections.close()
    return result


def requests(items: int) -> list[tuple[str, list[str]]]:
    """Queries and items: simulated texts with their words shuffled."""
    chance, made = random.Random(0), []
    for ranking_list in simulate(_BODIES, items):
        texts = [text.split() for text in ranking_list.items]
        made.append((ranking_list.query, [" ".join(chance.sample(words, len(words))) for words in texts]))
    return made


class Server:
    """A server in a process of its own, while it is entered; several start at the same time, see `wait`."""

    def __init__(self, name: str, args: argparse.Namespace, folder: Path) -> None:
        self.name, self.field = name, "documents" if name == INFINITY else "texts"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        port = str(self.port)
        threads = [] if args.threads is None else ["--threads", str(args.threads)]
        self._command = [sys.executable, "-m"]
        if name == INFINITY:
            from sentence_transformers import CrossEncoder

            CrossEncoder(resolve(args.encoder), num_labels=1).save_pretrained(str(folder / "cross-encoder"))
            self._command = [args.infinity, "v2", "--model-id", str(folder / "cross-encoder"), "--port", port]
            self._command += ["--device", "cpu", "--engine", "torch"]
        elif name == SENTENCE_TRANSFORMERS:
            module = ["benchmarks.serving", "--cross-encoder", port, "--encoder", args.encoder]
            self._command += module + threads
        else:
            self._command += ["crossjem_pl", "serve", str(folder / "model"), "--port", port]
            self._command += ["--max-queue", str(QUEUE)]
            self._command += ["--device", args.device] if args.device else []
            self._command += ["--max-batch-tokens", "1"] if name == UNSHARED else []

    def __enter__(self) -> Server:
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            self._command,
            stdout=quiet,
            stderr=quiet if self.name == INFINITY else None,
            env={**os.environ, "INFINITY_BETTERTRANSFORMER": "false"},
        )
        return self

    def wait(self) -> None:
        """Until it answers.

        Raises:
            RuntimeError: if it does not start.
        """
        end = time.monotonic() + 120
        while self._read("/health" if self.name == INFINITY else "/ready") is None:
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError(f"the server of {self.name} did not start")
            time.sleep(0.1)
        asyncio.run(closed_loop(self, [("warm up", ["a text"] * 8)], 1, 0.0, Result()))

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def settle(self) -> None:
        """Waits until it computes nothing more for clients that have left; starts it again if that takes 5 s."""
        path, pattern = "/metrics", r"^te_queue_size 0"
        if self.name == INFINITY:
            path, pattern = "/models", r'"queue_absolute": ?0\b'
        end = time.monotonic() + 5
        while not re.search(pattern, self._read(path) or "", re.M):
            if time.monotonic() > end:
                self.__exit__()
                self.__enter__().wait()
                return
            time.sleep(0.1)

    def batches(self) -> tuple[float, float]:
        """Forward passes so far and the lists in them; 0 of a server that does not tell."""
        text = self._read("/metrics") or ""
        found = {
            kind: re.search(rf"^te_batch_next_size_{kind} (\S+)", text, re.M) for kind in ("count", "sum")
        }
        return tuple(float(each[1]) if each else 0.0 for each in found.values())  # type: ignore[return-value]

    def resident(self) -> float:
        """MiB of the process and its descendants."""
        processes, total = [self._process.pid], 0.0
        for process in processes:
            with contextlib.suppress(OSError):
                total += resident("VmRSS", process)
                children = Path(f"/proc/{process}/task/{process}/children").read_text()
                processes += map(int, children.split())
        return total

    def _read(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return str(answer.read(), "utf-8")
        except OSError:
            return None


def cross_encoder_app(encoder: str) -> Any:
    """sentence-transformers' CrossEncoder as one would serve it: a FastAPI handler, one `predict` at a time."""
    import threading

    from fastapi import FastAPI
    from fastapi.responses import PlainTextResponse
    from sentence_transformers import CrossEncoder

    model, lock, app = CrossEncoder(resolve(encoder), num_labels=1), threading.Lock(), FastAPI()
    waiting: list[None] = []

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        return {}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        return f"te_queue_size {len(waiting)}\n"

    @app.post("/rerank")
    def rerank(body: dict[str, Any]) -> list[dict[str, float]]:
        query, texts = body["query"], body["texts"]
        waiting.append(None)
        with lock:
            scores = model.predict([(query, text) for text in texts], show_progress_bar=False)
        waiting.pop()
        order = np.argsort(-scores, kind="stable").tolist()
        return [{"index": i, "score": float(scores[i])} for i in order]

    return app


def percentile(milliseconds: Sequence[float], percent: float) -> float | None:
    return float(np.percentile(milliseconds, percent)) if milliseconds else None


def page(found: dict[str, Any]) -> list[str]:
    """The Markdown page."""
    columns = {
        "items": "{items:d}",
        "load": "{load}",
        "server": "{name}",
        "requests/s": "{per_second:,.1f}",
        "p50 ms": "{p50:,.0f}",
        "p95 ms": "{p95:,.0f}",
        "p99 ms": "{p99:,.0f}",
        "lists a pass": "{batch:.1f}",
    }
    lines = ["# Serving", ""]
    if found["rows"]:
        lines += table(found["rows"], columns)
    if "long" in found:
        lines += ["```json", json.dumps(found["long"], indent=2), "```"]
    return lines


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Requests a second by clients, a panel for each size of the lists."""
    sizes = list(dict.fromkeys(row["items"] for row in rows))
    with chart(path, "Requests a second by clients (closed loop)", len(sizes), width=4.2) as panels:
        for axes, items in zip(panels, sizes, strict=True):
            shown = [row for row in rows if row["items"] == items and "clients" in row]
            for name in dict.fromkeys(row["name"] for row in shown):
                points = [(row["clients"], row["per_second"]) for row in shown if row["name"] == name]
                axes.plot(*zip(*points, strict=True), marker="o", ms=3, label=name)
            clients = sorted({row["clients"] for row in shown})
            logarithmic(axes, clients, f"clients, {items} items", "requests a second")
            axes.legend(fontsize=7)


main = partial(program, _options, run)

if __name__ == "__main__":
    sys.exit(main())
