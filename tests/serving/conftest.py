"""A live server on the loopback around a tiny random model."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import uvicorn

from crossjem_pl.rankers.crossjem.model import CrossJEM
from crossjem_pl.rankers.folder import save_ranker
from crossjem_pl.serving import ServingOptions
from crossjem_pl.serving.app import Service
from crossjem_pl.serving.connections import http_server
from tests import tiny_models


@dataclass
class Live:
    """A server in a thread of this process."""

    service: Service
    server: uvicorn.Server
    url: str
    client: httpx.Client

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.client.post(path, json=body, **options)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CROSS-JEM with few items a pass, so that long lists are split."""
    folder = tmp_path_factory.mktemp("served")
    encoder = tiny_models.write_bert(folder / "bert", positions=512)
    torch.manual_seed(0)
    ranker = CrossJEM(
        str(encoder), form="paper", max_items_per_pass=20, max_union_tokens=120, max_item_tokens=8
    )
    save_ranker(ranker, folder / "shoes" / "model")
    return folder / "shoes" / "model"


@contextlib.contextmanager
def start(options: ServingOptions) -> Iterator[Live]:
    """A live server."""
    service = Service(options)
    server = http_server(service)
    listener = socket.create_server((options.host, 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def live() -> None:
        await service.load()
        await server.serve([listener])

    thread = threading.Thread(target=asyncio.run, args=(live(),), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    with httpx.Client(base_url=url, timeout=60) as client:
        yield Live(service, server, url, client)
    server.should_exit = True
    thread.join(20)


@pytest.fixture(scope="session")
def live(model_folder: Path) -> Iterator[Live]:
    options = ServingOptions(str(model_folder), model_names=("shoes", "rerank-v3.5"), max_batch_tokens=600)
    with start(options) as live:
        yield live
