"""Throughput and latency of `crossjem serve` under load, beside a cross-encoder behind a plain FastAPI handler.

    python -m benchmarks.serving --clients 1 4 16 64 --items 10 100 700 --out runs/serving
    python -m benchmarks.serving --soak 10 --overload 60

Servers, one after the other on the same cores with the same requests: crossjem (form "best"), the same without shared
passes (`--max-batch-tokens 1`), and sentence-transformers' CrossEncoder on the same encoder, one request after the
other. The texts are simulated; 400 requests of a size are sent again and again. Closed loop: every client sends its
next request when it has the last one's answer. Open loop: requests arrive at random (Poisson) at a share of the most
that up to 16 clients reached, and latency counts from the moment at which a request was due. The clients run on the
same machine, in one process.

`--soak` and `--overload` drive crossjem alone, with the first of the lists' sizes that is 100: minutes at 80% of its
capacity, and seconds at three times of it. Writes serving.json, serving.md and serving.png.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.charts import chart, curves, logarithmic
from benchmarks.contenders import SENTENCE_TRANSFORMERS, build_ranker
from benchmarks.pages import provenance, table, write
from benchmarks.program import defaults, parser, torch_device
from benchmarks.program import run as run_program
from crossjem_pl.data.simulator import simulate
from crossjem_pl.rankers.encoders import resolve
from crossjem_pl.rankers.folder import save_ranker

OWN, UNSHARED = "crossjem", "crossjem, passes not shared"
SYSTEMS = (OWN, UNSHARED, SENTENCE_TRANSFORMERS)
QUEUE = 64
_BODIES = 400
_HEAD = b"POST /rerank HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
_TRUSTED = 16


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after a mistake in the input."""
    options = parser("benchmarks.serving", __doc__, "runs/serving")
    options.add_argument("--clients", type=int, nargs="+", help="of the closed loop")
    options.add_argument("--items", type=int, nargs="+", help="of a request")
    options.add_argument("--seconds", type=int, help="of each measurement")
    options.add_argument("--systems", nargs="+", choices=SYSTEMS)
    options.add_argument("--soak", type=float, default=0, metavar="MINUTES", help="at 80%% of the capacity")
    options.add_argument(
        "--overload", type=float, default=0, metavar="SECONDS", help="at 3 times the capacity"
    )
    options.add_argument("--cross-encoder", type=int, metavar="PORT", help=argparse.SUPPRESS)
    return run_program(options, argv, run)


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    if args.cross_encoder is not None:
        import uvicorn

        app = cross_encoder_app(args.encoder)
        return uvicorn.run(app, port=args.cross_encoder, log_level="warning", access_log=False)
    full = {"clients": [1, 4, 16, 64], "items": [10, 100, 700], "seconds": 20, "systems": list(SYSTEMS)}
    defaults(args, full, {"clients": [1, 4], "items": [10], "seconds": 2})
    found: dict[str, Any] = {"provenance": provenance(torch_device(args.device), args.command), "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        save_ranker(build_ranker("crossjem-best", args.encoder), model)
        if args.soak or args.overload:
            with server(OWN, args, model) as url:
                found["long"] = endure(url, next((n for n in args.items if n == 100), args.items[0]), args)
        else:
            for items in args.items:
                for name in args.systems:
                    with server(name, args, model) as url:
                        found["rows"] += measure(name, url, items, args)
    write(found, page(found), args.out, "serving")
    if found["rows"]:
        plot(found["rows"], args.out / "serving.png")


def measure(name: str, url: str, items: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Closed loops by number of clients, then an open loop at 50% and at 80% of the best."""
    sent = bodies(items)
    asyncio.run(closed_loop(url, sent, 2, 2.0))  # warms up
    best = 0.0
    for clients in args.clients:
        before = batches(url)
        result = asyncio.run(closed_loop(url, sent, clients, args.seconds))
        row = {"name": name, "items": items, "load": f"{clients} clients", "clients": clients}
        count, total = (now - then for now, then in zip(batches(url), before, strict=True))
        yield row | result.row() | ({"batch": total / count} if count else {})
        if clients <= _TRUSTED:
            best = max(best, result.per_second)
    if not best:
        raise RuntimeError(f"{name} answered nothing: {result.statuses}")
    for share in (0.5, 0.8):
        result = asyncio.run(open_loop(url, sent, share * best, args.seconds))
        yield {"name": name, "items": items, "load": f"{share:.0%} of its best"} | result.row()


def endure(url: str, items: int, args: argparse.Namespace) -> dict[str, Any]:
    """What soak and overload found."""
    sent, found = bodies(items), {"items": items}
    capacity = asyncio.run(closed_loop(url, sent, 16, max(args.seconds, 5))).per_second
    found["capacity"] = capacity
    if args.soak:
        watched = asyncio.run(open_loop(url, sent, 0.8 * capacity, 60 * args.soak, watch=workers(url)))
        part = min(60.0, 60 * args.soak / 3)
        first = [ms for at, ms in watched.times if at < part]
        last = [ms for at, ms in watched.times if at > 60 * args.soak - part]
        start = next(rss for at, rss in watched.memory if at >= part)
        found["soak"] = watched.row() | {
            "p99_first": percentile(first, 99),
            "p99_last": percentile(last, 99),
            "rss_after_first_minute": start,
            "rss_end": watched.memory[-1][1],
            "rss_growth": watched.memory[-1][1] / start - 1,
        }
    if args.overload:
        over = asyncio.run(open_loop(url, sent, 3 * capacity, args.overload))
        start = time.perf_counter()
        calm = asyncio.run(open_loop(url, sent, 0.5 * capacity, 5.0))
        found["overload"] = over.row() | {
            "goodput": over.per_second / capacity,
            "after": calm.row(),
            "seconds_after": time.perf_counter() - start,
        }
    return found


class Result:
    """Statuses and latencies of the answers that came."""

    def __init__(self) -> None:
        self.statuses: Counter[int | str] = Counter()
        self.times: list[tuple[float, float]] = []
        """When a request was sent, in seconds, and milliseconds until its answer; of those answered with 200."""
        self.memory: list[tuple[float, float]] = []
        self.seconds = 0.0

    @property
    def per_second(self) -> float:
        """Answers with 200 a second."""
        return len(self.times) / self.seconds

    def row(self) -> dict[str, Any]:
        """Fields of a table."""
        milliseconds = [ms for _, ms in self.times]
        percentiles = {f"p{p}": percentile(milliseconds, p) for p in (50, 95, 99)}
        statuses = {str(status): count for status, count in self.statuses.items()}
        return {
            "per_second": self.per_second,
            **percentiles,
            "statuses": statuses,
            "requests": sum(statuses.values()),
        }


class Connections:
    """Connections to a server that are kept open, HTTP/1.1, one request at a time on each."""

    def __init__(self, url: str, result: Result) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._address, self._result = (host, int(port)), result
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.start = time.perf_counter()

    async def ask(self, body: bytes, due: float) -> None:
        """Sends a body and counts the answer; `due` is when it should have been sent."""
        status: int | str
        try:
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self._address)
            writer.write(_HEAD + f"{len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            status = int(answer.split(b" ", 2)[1])
            length = re.search(rb"content-length: (\d+)", answer, re.I)
            assert length is not None
            await reader.readexactly(int(length[1]))
            if b"connection: close" in answer.lower():
                writer.close()
            else:
                self._idle.append((reader, writer))
        except (OSError, EOFError) as error:
            status = type(error).__name__
        self._result.statuses[status] += 1
        if status == 200:
            now = time.perf_counter()
            self._result.times.append((due - self.start, 1000 * (now - due)))

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def closed_loop(url: str, sent: Sequence[bytes], clients: int, seconds: float) -> Result:
    """`clients` of them, each with one request at a time."""
    result = Result()
    connections = Connections(url, result)

    async def client(number: int) -> None:
        while time.perf_counter() - connections.start < seconds:
            number = (number + clients) % len(sent)
            await connections.ask(sent[number], time.perf_counter())

    await asyncio.gather(*map(client, range(clients)))
    result.seconds = time.perf_counter() - connections.start
    connections.close()
    return result


async def open_loop(
    url: str, sent: Sequence[bytes], rate: float, seconds: float, watch: Sequence[int] = ()
) -> Result:
    """Requests at random moments, `rate` a second; the resident memory of the processes `watch` every second."""
    result, chance = Result(), random.Random(0)
    connections = Connections(url, result)
    tasks: set[asyncio.Task[None]] = set()
    due = connections.start
    while due - connections.start < seconds:
        due += chance.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.ensure_future(connections.ask(sent[chance.randrange(len(sent))], due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        at = time.perf_counter() - connections.start
        if watch and (not result.memory or at - result.memory[-1][0] > 1):
            result.memory.append((at, sum(map(resident, watch))))
    if tasks:
        await asyncio.wait(tasks, timeout=120)
    result.seconds = time.perf_counter() - connections.start  # until the last answer
    connections.close()
    return result


def bodies(items: int) -> list[bytes]:
    """Requests in text-embeddings-inference's shape, whose texts are simulated ones with their words shuffled."""
    chance, made = random.Random(0), []
    for ranking_list in simulate(_BODIES, items):
        texts = [text.split() for text in ranking_list.items]
        shuffled = [" ".join(chance.sample(words, len(words))) for words in texts]
        made.append(json.dumps({"query": ranking_list.query, "texts": shuffled}).encode())
    return made


@contextlib.contextmanager
def server(name: str, args: argparse.Namespace, model: Path) -> Iterator[str]:
    """The URL of a server in a process of its own, once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    threads = [] if args.threads is None else ["--threads", str(args.threads)]
    if name == SENTENCE_TRANSFORMERS:
        command = ["benchmarks.serving", "--cross-encoder", port, "--encoder", args.encoder, *threads]
    else:
        command = ["crossjem_pl", "serve", str(model), "--port", port, "--max-queue", str(QUEUE)]
        command += ["--device", args.device] if args.device else []
        command += ["--max-batch-tokens", "1"] if name == UNSHARED else []
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.DEVNULL)
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
    try:
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/ready").close()
                break
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError(f"the server of {name} did not start")
            time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def cross_encoder_app(encoder: str) -> Any:
    """sentence-transformers' CrossEncoder as one would serve it: a FastAPI handler, one `predict` at a time."""
    import threading

    from fastapi import FastAPI
    from sentence_transformers import CrossEncoder

    model, lock, app = CrossEncoder(resolve(encoder), num_labels=1), threading.Lock(), FastAPI()

    @app.get("/ready")
    def ready() -> dict[str, str]:
        return {}

    @app.post("/rerank")
    def rerank(body: dict[str, Any]) -> list[dict[str, float]]:
        query, texts = body["query"], body["texts"]
        with lock:
            scores = model.predict([(query, text) for text in texts], show_progress_bar=False)
        order = np.argsort(-scores, kind="stable").tolist()
        return [{"index": i, "score": float(scores[i])} for i in order]

    return app


def batches(url: str) -> tuple[float, float]:
    """Forward passes so far and the lists in them; 0 of a server that does not tell."""
    try:
        text = urllib.request.urlopen(f"{url}/metrics").read().decode()
    except OSError:
        return 0.0, 0.0
    found = {kind: re.search(rf"^te_batch_next_size_{kind} (\S+)", text, re.M) for kind in ("count", "sum")}
    return tuple(float(each[1]) if each else 0.0 for each in found.values())  # type: ignore[return-value]


def workers(url: str) -> list[int]:
    """The processes that listen at the address: the server's, its supervisor among them."""
    port = url.rsplit(":", 1)[1]
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"--port\0{port}\0" in path.read_text():
                own = path.parent
                found.append(int(own.name))
                found += map(int, (own / "task" / own.name / "children").read_text().split())
    return found


def resident(process: int) -> float:
    """MiB of a process."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


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
            curves(axes, shown, "clients", "per_second")
            logarithmic(
                axes,
                sorted({row["clients"] for row in shown}),
                f"clients, {items} items",
                "requests a second",
            )
            axes.legend(fontsize=7)


if __name__ == "__main__":
    sys.exit(main())
