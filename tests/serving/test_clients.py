"""Public clients against the live server, each in a process of the environment that `make test-clients` makes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.serving import ServingOptions
from tests.serving import clients
from tests.serving.conftest import Live, start

PYTHON = os.environ.get("CLIENTS_PYTHON", "")

pytestmark = pytest.mark.skipif(
    not PYTHON, reason="the clients have an environment of their own: make test-clients"
)


@pytest.fixture(scope="module")
def live(model_folder: Path) -> Iterator[Live]:
    options = ServingOptions(str(model_folder), model_names=(clients.MODEL,), api_key=clients.KEY)
    with start(options) as live:
        yield live


@pytest.mark.parametrize("name", clients.CLIENTS)
def test_the_client_gets_the_ranking(name: str, live: Live, model_folder: Path) -> None:
    command = [PYTHON, str(Path(clients.__file__)), name, live.url]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found["version"])
    raw = Reranker(model_folder).score([RankingList.from_texts(clients.QUERY, clients.TEXTS)])[0]
    scores = torch.sigmoid(raw).tolist()
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    assert [index for index, _ in found["ranking"]] == order
    assert [score for _, score in found["ranking"]] == pytest.approx([scores[i] for i in order], abs=1e-6)
