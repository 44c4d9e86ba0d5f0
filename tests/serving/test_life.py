"""Workers that die, reload and end under load; clients that are slow."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import httpx
import pytest

from crossjem_pl.cli import main
from crossjem_pl.cli.command import add_arguments
from crossjem_pl.cli.serve import serve
from crossjem_pl.serving import ServingOptions, workers
from tests.conftest import root
from tests.serving.conftest import start

BODY = {"query": "red shoe", "documents": ["blue shoes near me", "cat food", "red running shoe"] * 10}


class Process:
    """`crossjem serve` with its log."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "crossjem_pl", "serve", *arguments, "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.until(lambda: bool(self.lines))
        self.url = self.lines[0].split()[-1]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    def until(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "".join(self.lines[-30:])
            time.sleep(0.05)

    def events(self, name: str) -> list[dict[str, object]]:
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [event for event in found if event["event"] == name]

    def workers(self) -> list[int]:
        """The processes that have loaded the model and live."""
        found = {int(str(event["process"])) for event in self.events("loaded")}
        return [pid for pid in sorted(found) if Path(f"/proc/{pid}").exists()]


class Load:
    """Threads that send requests, each after the last one's answer, on new connections."""

    def __init__(self, url: str, clients: int = 6) -> None:
        self.results: Counter[str] = Counter()
        self._url, self._stop = url, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                answer = httpx.post(f"{self._url}/v2/rerank", json=BODY, timeout=60)
                result = str(answer.status_code)
                if result == "200" and len(answer.json()["results"]) != len(BODY["documents"]):
                    result = "wrong"
            except httpx.HTTPError as error:
                result = type(error).__name__
            self.results[result] += 1
            if result == "ConnectError":
                time.sleep(0.02)

    def end(self) -> Counter[str]:
        self._stop.set()
        for thread in self._threads:
            thread.join(70)
        return self.results


@pytest.fixture(scope="module")
def served(model_folder: Path) -> Iterator[Process]:
    process = Process(str(model_folder), "--workers", "2")
    yield process
    process.process.kill()


@pytest.mark.slow
def test_workers_are_restarted_reloaded_and_drained_under_load(served: Process) -> None:
    with httpx.Client(base_url=served.url, timeout=60) as client:
        served.until(lambda: client.get("/ready").status_code == 200)
        served.until(lambda: len(served.events("loaded")) == 2)
        assert len(served.workers()) == 2

        load = Load(served.url)
        time.sleep(1)
        before = load.results["200"]
        os.kill(served.workers()[0], signal.SIGKILL)
        served.until(lambda: len(served.events("loaded")) == 3 and len(served.workers()) == 2)
        results = load.end()
        # what the dead one was answering is lost, at most one request of each client
        assert set(results) <= {"200", "RemoteProtocolError", "ReadError"}
        assert sum(results.values()) - results["200"] <= 6
        assert results["200"] > before

        load = Load(served.url)
        served.process.send_signal(signal.SIGHUP)
        served.until(lambda: len(served.events("loaded")) == 5)
        time.sleep(0.5)
        assert set(load.end()) == {"200"}
        assert 'te_request_count{method="/v2/rerank"}' in client.get("/metrics").text

    before = len(served.events("request"))
    load = Load(served.url)
    time.sleep(0.5)
    served.process.terminate()
    assert served.process.wait(90) == 0
    results = load.end()
    assert set(results) <= {"200", "503", "ConnectError", "RemoteProtocolError", "ReadError"}
    # what a worker has read was answered, and the answer came
    assert len(served.events("request")) - before == results["200"] + results["503"]
    ends = served.events("stopped")
    assert len(ends) == 2
    assert all(end["in_flight"] == 0 for end in ends)
    assert not served.events("failed")


def test_a_model_that_cannot_be_loaded_ends_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = Process(str(tmp_path / "nothing"))
    assert process.process.wait(60) == 2
    process.until(lambda: any("error:" in line for line in process.lines))
    assert main(["serve", "model", "--api-key-env", "NO_SUCH_KEY"]) == 2
    assert "NO_SUCH_KEY" in capsys.readouterr().err
    assert main(["serve", "model", "--max-queue", "0"]) == 2


class Supervised:
    """A supervisor in this process, whose workers are forked and run `work(number, life, pipe)`."""

    def __init__(
        self, folder: Path, work: Callable[[int, int, Connection], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.folder = folder

        def run(options: ServingOptions, listener: None, pipe: Connection, ready: Event, number: int) -> None:
            for each in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(each, signal.SIG_DFL)
            life = len(list(folder.glob(f"{number}-*")))
            (folder / f"{number}-{life}").touch()
            ready.set()
            work(number, life, pipe)

        monkeypatch.setattr(workers, "_CONTEXT", multiprocessing.get_context("fork"))
        monkeypatch.setattr(workers, "_run_worker", run)

    def started(self) -> int:
        return len(list(self.folder.iterdir()))

    def run(self, processes: int, lives: int) -> int:
        """Until SIGTERM, which comes when workers have started so many times; how often they had then."""
        before: list[int] = []

        def stop() -> None:
            while self.started() < lives:
                time.sleep(0.01)
            time.sleep(0.3)
            before.append(self.started())
            os.kill(os.getpid(), signal.SIGTERM)

        handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        threading.Thread(target=stop, daemon=True).start()
        try:
            workers._Supervisor(ServingOptions("m", workers=processes), None).run()  # type: ignore[arg-type]
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)
        return before[0]


def test_a_worker_that_is_about_to_be_restarted_is_not_when_the_server_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised = Supervised(tmp_path, lambda *_: os._exit(1), monkeypatch)
    assert supervised.run(1, 2) == supervised.started() == 2


def test_a_restarted_worker_that_cannot_load_the_model_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(number: int, life: int, pipe: Connection) -> None:
        if number == 1:
            time.sleep(60)
        if life == 1:
            pipe.send("no model")
        os._exit(1)

    assert Supervised(tmp_path, work, monkeypatch).run(2, 4) == 4


def test_slow_clients_are_cut_off_and_hold_nobody_up(model_folder: Path) -> None:
    with start(ServingOptions(str(model_folder), client_timeout=0.5)) as live:
        address = ("127.0.0.1", int(live.url.rpartition(":")[2]))
        head = b"POST /v2/rerank HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        texts = ["red shoe " * 40] * 4000
        whole = json.dumps({"query": "red", "documents": texts, "return_documents": True}).encode()
        sent = {"nothing": b"", "half a head": head[:30], "half a body": head % 1000 + b'{"query": "r'}
        sent["all, and reads nothing"] = head % len(whole) + whole
        clients = {}
        for name, content in sent.items():
            clients[name] = [socket.socket() for _ in range(5)]
            for client in clients[name]:
                client.settimeout(30)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # answers stay with the server
                client.connect(address)
                client.sendall(content)
        assert live.post("/v2/rerank", BODY).status_code == 200
        for client in clients["half a body"]:
            assert b" 408 " in client.recv(1000).split(b"\r\n")[0]
        for client in clients["nothing"] + clients["half a head"]:
            assert client.recv(1000) == b""
        end = time.monotonic() + 60
        while live.server.server_state.connections:  # but the one of the client that is well
            assert time.monotonic() < end
            live.client.close()
            time.sleep(0.05)
        assert live.service.in_flight == 0
        for client in (client for each in clients.values() for client in each):
            client.close()


def test_the_commands_of_deploy_are_understood() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, serve)
    unit = (root() / "deploy" / "crossjem.service").read_text()
    (command,) = re.findall(r"^ExecStart=\S+ serve (.+)$", unit, re.M)
    assert parser.parse_args(command.split()).api_key_env == "CROSSJEM_KEY"
    image = (root() / "deploy" / "Dockerfile").read_text()
    (arguments,) = re.findall(r"^CMD (\[.+\])$", image, re.M)
    assert parser.parse_args(json.loads(arguments)).host == "0.0.0.0"
    assert "USER 10001" in image
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", image, re.M):
        assert all((root() / name).exists() for name in copied.split())
