"""The benchmark of the server: one real server under both kinds of load, and the rival's handler."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from benchmarks import serving
from benchmarks.contenders import build_ranker
from crossjem_pl.rankers.folder import save_ranker


@pytest.mark.slow
def test_the_server_is_measured(encoder: str, tmp_path: Path) -> None:
    given = {"clients": [2], "seconds": 1, "device": "cpu", "threads": None, "encoder": encoder}
    args = argparse.Namespace(**given, soak=0.03, overload=0.5)
    save_ranker(build_ranker("crossjem-best", encoder), tmp_path / "model")
    with serving.Server(serving.OWN, args, tmp_path) as server:
        server.wait()
        rows = list(serving.measure([server], 5, args))
        found = serving.endure(server, 5, args)
    for row in rows:
        assert set(row["statuses"]) == {"200"}
        assert row["p50"] <= row["p99"]
    assert set(found["soak"]["statuses"]) | set(found["overload"]["statuses"]) <= {"200", "429"}
    assert found["soak"]["rss_growth"] < 1
    assert any(serving.OWN in line for line in serving.page({"rows": rows, "long": found}))
    serving.plot(rows, tmp_path / "serving.png")
    assert (tmp_path / "serving.png").exists()


def test_the_rival_answers_the_same_requests(encoder: str) -> None:
    ((query, texts), *_) = serving.requests(3)
    client = TestClient(serving.cross_encoder_app(encoder))
    answer = client.post("/rerank", json={"query": query, "texts": texts}).json()
    assert sorted(row["index"] for row in answer) == [0, 1, 2]
    assert answer == sorted(answer, key=lambda row: -row["score"])
