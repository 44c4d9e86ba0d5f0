"""Every API's shapes, limits and errors, and equality with `Reranker.score`, against a live server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from crossjem_pl.evaluation.threshold import choose_threshold
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import threshold
from crossjem_pl.rankers.pairwise.monobert import MonoBERT
from crossjem_pl.rankers.threshold import write_threshold
from crossjem_pl.serving import ServingOptions
from crossjem_pl.serving.app import Service
from crossjem_pl.serving.models import ServedModel
from crossjem_pl.serving.schemas import ROUTES
from crossjem_pl.text.token_store import TokenStore
from tests.conftest import example_lists
from tests.serving.conftest import Live, start
from tests.tiny_models import WORDS

CASES = int(os.environ.get("FUZZ_CASES", "120"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
"""Random requests; `make fuzz` sends many."""
QUERY, ITEMS = "red shoe", ["blue shoes near me", "cat food", "red running shoe", "paris hotel"]


@pytest.fixture(scope="module")
def reranker(model_folder: Path) -> Reranker:
    return Reranker(model_folder)


@pytest.fixture(scope="module")
def raw(reranker: Reranker) -> list[float]:
    return reranker.score([RankingList.from_texts(QUERY, ITEMS)])[0].tolist()


@pytest.fixture(scope="module")
def scores(raw: list[float]) -> list[float]:
    return torch.sigmoid(torch.tensor(raw)).tolist()


def ranked(values: list[float]) -> list[int]:
    return sorted(range(len(values)), key=lambda i: -values[i])


@pytest.mark.parametrize("path", ["/v2/rerank", "/v1/rerank", "/rerank"])
@pytest.mark.parametrize(
    "documents", [ITEMS, [{"text": text, "page": 7} for text in ITEMS]], ids=["texts", "objects"]
)
def test_documents(live: Live, scores: list[float], path: str, documents: list[Any]) -> None:
    body = {"model": "rerank-v3.5", "query": QUERY, "documents": documents, "top_n": 3, "priority": 0}
    answer = live.post(path, body)
    assert answer.status_code == 200
    found = answer.json()
    assert [row["index"] for row in found["results"]] == ranked(scores)[:3]
    for row in found["results"]:
        assert row["relevance_score"] == pytest.approx(scores[row["index"]], abs=1e-6)
        text = {"text": ITEMS[row["index"]]} if documents is ITEMS else documents[row["index"]]
        assert row.get("document") == (text if path == "/rerank" else None)
    assert found["meta"]["api_version"] == {"version": "1" if "v1" in path else "2", "is_experimental": False}
    assert found["meta"]["billed_units"] == {"search_units": 1}
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] > 0
    assert (found["model"], found["id"]) == ("shoes", answer.headers["x-request-id"])
    returned = live.post(path, {**body, "return_documents": True, "top_n": None, "model": None}).json()[
        "results"
    ]
    assert [row["document"]["text"] for row in returned] == [ITEMS[i] for i in ranked(scores)]


def test_rank_fields_choose_the_text(live: Live) -> None:
    documents = [{"title": text, "text": "cat"} for text in ITEMS]
    body = {"query": QUERY, "documents": documents, "rank_fields": ["title"]}
    plain = {"query": QUERY, "documents": ITEMS}
    assert live.post("/v1/rerank", body).json()["results"] == live.post("/v1/rerank", plain).json()["results"]


def test_texts(live: Live, raw: list[float], scores: list[float]) -> None:
    body = {"query": QUERY, "texts": ITEMS, "model": "unread", "top_n": 1}
    answer = live.post("/rerank", body)
    rows = answer.json()
    assert [row["index"] for row in rows] == ranked(scores)
    assert [row["score"] for row in rows] == pytest.approx(sorted(scores, reverse=True), abs=1e-6)
    for name in ("type", "time", "characters", "tokens"):
        assert f"x-compute-{name}" in answer.headers
    assert answer.headers["x-compute-characters"] == str(len(QUERY) + sum(map(len, ITEMS)))
    (best, *_) = live.post("/rerank", {**body, "raw_scores": True, "return_text": True}).json()
    assert best == {
        "index": ranked(raw)[0],
        "score": pytest.approx(max(raw), abs=1e-5),
        "text": ITEMS[ranked(raw)[0]],
    }


def test_score_keeps_the_order_of_the_input(live: Live, scores: list[float], reranker: Reranker) -> None:
    found = live.post("/score", {"queries": QUERY, "documents": ITEMS}).json()
    assert [(row["index"], row["object"]) for row in found["data"]] == [(i, "score") for i in range(4)]
    assert [row["score"] for row in found["data"]] == pytest.approx(scores, abs=1e-6)
    queries = [QUERY, "cat", QUERY, "hotel"]
    paired = live.post("/v1/score", {"text_1": queries, "text_2": ITEMS}).json()["data"]
    expected = torch.sigmoid(
        torch.from_numpy(reranker.predict(list(zip(queries, ITEMS, strict=True))))
    ).tolist()
    assert [row["score"] for row in paired] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("activation", ["none", "sigmoid", "softmax"])
def test_rank(live: Live, reranker: Reranker, activation: str) -> None:
    items = [{"id": f"i{n}", "text": text} for n, text in enumerate(ITEMS)]
    body = {"query": QUERY, "items": items, "top_k": 2, "explain": True, "activation": activation}
    found = live.post("/v1/rank", body).json()
    expected = reranker.rank(QUERY, ITEMS, top_k=2, activation=None if activation == "none" else activation)  # type: ignore[arg-type]
    explained = reranker.explain(QUERY, ITEMS)
    for row, want in zip(found["items"], expected, strict=True):
        assert (row["id"], row["index"], row["text"]) == (f"i{want.index}", want.index, want.text)
        assert row["score"] == pytest.approx(want.score, abs=1e-6)
        total = sum(part["value"] for part in row["contributions"])
        assert total == pytest.approx(explained[want.index].score, abs=1e-4)
    lowest = sorted(reranker.score([RankingList.from_texts(QUERY, ITEMS)])[0].tolist())[2]
    kept = live.post("/v1/rank", {"query": QUERY, "items": ITEMS, "min_score": lowest - 1e-4}).json()
    assert len(kept["items"]) == 2


def test_rank_by_ids_of_a_store(model_folder: Path, reranker: Reranker, tmp_path: Path) -> None:
    store = TokenStore.build(
        tmp_path / "store",
        [(f"i{n}", text) for n, text in enumerate(ITEMS)],
        reranker.ranker.tokenizer,  # type: ignore[arg-type]
    )
    model = ServedModel("shoes", Reranker(model_folder), store=store)
    found = asyncio.run(model.score([QUERY], [f"i{n}" for n in range(4)], ids=True)).raw
    assert torch.allclose(found, reranker.score([RankingList.from_texts(QUERY, ITEMS)])[0], atol=1e-6)
    with pytest.raises(ValueError, match="unknown"):
        asyncio.run(model.score([QUERY], ["unknown"], ids=True))


def test_the_stored_threshold_is_checked_when_the_model_is_loaded(
    model_folder: Path, reranker: Reranker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing the weights takes seconds for large models, in which a server would answer nobody."""
    folder = shutil.copytree(model_folder, tmp_path / "model")
    lists = example_lists(5)
    stored = choose_threshold(lists, reranker.score(lists), reranker.ranker)
    write_threshold(stored, folder)
    model = ServedModel("shoes", Reranker(folder))
    write_threshold(replace(stored, weights_sha256="other"), folder)
    other = ServedModel("shoes", Reranker(folder))
    monkeypatch.setattr(threshold, "weights_sha256", lambda ranker: 1 / 0)
    assert (model.threshold, other.threshold) == (stored.threshold, None)


def test_truncation_is_told(live: Live) -> None:
    long = "red " * 30
    body: dict[str, Any] = {"query": QUERY, "documents": [long, "cat"]}
    answer = live.post("/v2/rerank", body)
    assert answer.headers["x-truncated"] == "1"
    assert answer.json()["meta"]["truncated"] == 1
    assert "cut" in answer.json()["meta"]["warnings"][0]
    refused = live.post("/rerank", {"query": QUERY, "texts": [long], "truncate": False})
    assert (refused.status_code, refused.json()["error_type"]) == (422, "Validation")


GOOD = {"query": QUERY, "documents": ITEMS}


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/v2/rerank", {**GOOD, "documents": []}, 400, "list of documents must not be empty"),
        ("/v2/rerank", {**GOOD, "query": " "}, 400, "query must not be empty"),
        ("/v2/rerank", {**GOOD, "model": "other"}, 404, "model 'other'"),
        ("/v2/rerank", {"query": QUERY}, 422, "documents: Field required"),
        ("/v2/rerank", {**GOOD, "top_n": "3"}, 422, "top_n"),
        ("/v2/rerank", {**GOOD, "top_n": 10**400}, 422, "top_n"),
        ("/v1/rerank", {**GOOD, "documents": ["a", 7]}, 422, "documents[1]"),
        ("/v1/rerank", {**GOOD, "documents": [{"title": "a"}]}, 422, "documents[0].text"),
        ("/v1/rerank", {**GOOD, "documents": ["a", " "]}, 422, "documents[1]: the text is blank"),
        ("/v1/rerank", {**GOOD, "documents": ["a"] * 5001}, 422, "documents: 5001"),
        ("/v1/rerank", [1], 422, "JSON object"),
        ("/rerank", {"query": QUERY, "texts": []}, 400, "texts must not be empty"),
        ("/rerank", {"query": QUERY, "texts": ["a", None]}, 422, "texts[1]"),
        ("/rerank", {"query": QUERY, "texts": ["a"], "truncation_direction": "left"}, 422, "truncation_direction"),
        ("/score", {"queries": ["a", "b"], "documents": ["c"] * 3}, 422, "queries: 2"),
        ("/score", {"queries": ["a"]}, 422, "documents"),
        ("/v1/rank", {"query": QUERY}, 422, "items"),
        ("/v1/rank", {"query": QUERY, "ids": ["a"]}, 422, "token store"),
        ("/v1/rank", {"query": QUERY, "items": ITEMS, "min_score": "stored"}, 422, "no threshold"),
        ("/v1/rank", {"query": QUERY, "items": ITEMS, "model": "bm25", "explain": True}, 422, "explain: bm25 cannot"),
        ("/v1/rank", {"query": QUERY, "items": ["a", "\u0001"]}, 422, "items"),
        ("/nothing", None, 404, "Not Found"),
    ],
)  # fmt: skip
def test_errors_name_the_field_in_the_shape_of_the_api(
    live: Live, path: str, body: Any, status: int, told: str
) -> None:
    answer = live.client.post(path, content=json.dumps(body))
    found = answer.json()
    assert answer.status_code == status, found
    if path == "/rerank":
        assert found["error_type"] == ("Empty" if status == 400 else "Validation")
        assert told in found["error"]
    else:
        assert told in found["message"] == found["detail"] == found["error"]["message"]
        assert found["error"]["code"] == status


def test_what_is_not_json_and_what_is_too_large(live: Live) -> None:
    for content in (b"", b"{", b'{"query": "\\ud800"}', b"\xff\xfe", b"[" * 100_000, b'{"query": NaN}'):
        assert live.client.post("/v2/rerank", content=content).status_code in (400, 422), content[:20]
    answer = live.client.post("/v2/rerank", content=b" " * 2_000_001)
    assert answer.status_code == 413
    chunks = live.client.post("/v2/rerank", content=(b" " * 100_000 for _ in range(21)))
    assert chunks.status_code == 413


def test_the_other_routes(live: Live) -> None:
    for path in ("/health", "/ping", "/ready", "/"):
        assert live.client.get(path).status_code == 200
    info = live.client.get("/info").json()
    assert (info["model_id"], info["max_client_batch_size"], info["auto_truncate"]) == ("shoes", 5000, True)
    models = {row["id"]: row["explains"] for row in live.client.get("/v1/models").json()["data"]}
    assert models == {"shoes": True, "rerank-v3.5": True, "bm25": False}
    live.post("/rerank", {"query": QUERY, "texts": ITEMS})
    metrics = live.client.get("/metrics").text
    for name in ('te_request_count{method="/rerank"}', "te_queue_size 0.0", "te_batch_next_size_bucket"):
        assert name in metrics
    schema = live.client.get("/openapi.json").json()
    body = schema["paths"]["/rerank"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert ["documents" in each["properties"] for each in body["anyOf"]] == [True, False]
    assert "$ref" not in json.dumps([path["post"] for path in schema["paths"].values() if "post" in path])


def test_a_key_is_asked_for(model_folder: Path) -> None:
    with start(ServingOptions(str(model_folder), api_key="sécret", max_queue=2)) as live:
        body = {"query": QUERY, "documents": ITEMS}
        assert live.post("/v2/rerank", body).status_code == 401
        assert (
            live.post("/v2/rerank", body, headers={"Authorization": "Bearer wrong é".encode()}).status_code
            == 401
        )
        key = {"Authorization": "Bearer sécret".encode()}
        assert live.post("/v2/rerank", body, headers=key).status_code == 200
        live.service.in_flight += 2
        full = live.post("/v2/rerank", body, headers=key)
        assert full.status_code == 429
        assert int(full.headers["retry-after"]) >= 1
        live.service.in_flight -= 2
        live.service.draining = True
        assert live.client.get("/ready").status_code == 503
        assert live.post("/v2/rerank", body, headers=key).status_code == 503


def test_deadlines_and_clients_that_leave_cancel_work(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"query": QUERY, "documents": [f"{a} {b}" for a in WORDS for b in WORDS][:2000]}
    with start(ServingOptions(str(model_folder), max_batch_tokens=60, request_timeout=0.3)) as live:
        scheduler, passes = live.service.main.scheduler, []
        score = scheduler._run

        def slow(lists: list[RankingList]) -> list[torch.Tensor]:
            passes.append(len(lists))
            time.sleep(0.1)
            return score(lists)

        monkeypatch.setattr(scheduler, "_run", slow)
        assert live.post("/v2/rerank", body).status_code == 504
        with pytest.raises(httpx.ReadTimeout):
            live.post("/v2/rerank", body, timeout=0.1)
        given_up = sum(passes)
        end = time.monotonic() + 30  # the machine may be busy
        while live.post("/v2/rerank", {"query": QUERY, "documents": ITEMS}).status_code != 200:
            assert time.monotonic() < end
        assert given_up < 20  # of 2 * 100
        assert scheduler.waiting == 0


def requests(count: int, seed: int, reranker: Reranker) -> Iterator[tuple[str, dict[str, Any], list[float]]]:
    """Requests of random sizes in every shape, with the scores that they must get."""
    chance = random.Random(seed)

    def text(most: int) -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(1, most)))

    for number in range(count):
        items = [text(6) for _ in range(chance.choice((1, 3, 10, 30, 100, 150)))]
        query = text(4)
        raw = reranker.score([RankingList.from_texts(query, items)])[0]
        probabilities = torch.sigmoid(raw).tolist()
        path, body = [
            ("/v2/rerank", {"model": "shoes", "documents": items}),
            ("/v1/rerank", {"documents": [{"text": item} for item in items], "return_documents": True}),
            ("/rerank", {"documents": items}),
            ("/rerank", {"texts": items, "return_text": True}),
            ("/score", {"documents": items}),
            ("/v1/rank", {"items": items}),
        ][number % 6]
        body["queries" if path == "/score" else "query"] = query
        yield path, body, raw.tolist() if path == "/v1/rank" else probabilities


def test_scores_do_not_depend_on_who_shares_a_pass(live: Live, reranker: Reranker) -> None:
    clients, made = 16, list(requests(min(CASES, 2000), 0, reranker))

    async def ask() -> list[Any]:
        limits = httpx.Limits(max_connections=clients)
        async with httpx.AsyncClient(base_url=live.url, timeout=120, limits=limits) as client:
            gate = asyncio.Semaphore(clients)

            async def one(path: str, body: dict[str, Any]) -> Any:
                async with gate:
                    answer = await client.post(path, json=body)
                    assert answer.status_code == 200, answer.text
                    return answer.json()

            return await asyncio.gather(*(one(path, body) for path, body, _ in made))

    for (path, body, expected), answer in zip(made, asyncio.run(ask()), strict=True):
        rows = (
            answer
            if isinstance(answer, list)
            else answer.get("results") or answer.get("data") or answer["items"]
        )
        found = [0.0] * len(expected)
        for row in rows:
            found[row["index"]] = row.get("score", row.get("relevance_score"))
            if "text" in row:
                assert row["text"] == (body.get("texts") or body["items"])[row["index"]]
        assert len(rows) == len(expected)
        assert found == pytest.approx(expected, abs=1e-6), path


def test_rankers_that_score_each_item_alone_are_split_as_well(tiny_bert: str) -> None:
    ranker = MonoBERT(tiny_bert, random_init=True)
    model = ServedModel("mono", Reranker(ranker, "cpu"))
    items = [f"{a} {b}" for a in WORDS for b in WORDS][:150]
    assert [len(part.payload) for part in model.prepare([QUERY], items)[1]] == [64, 64, 22]
    expected = Reranker(ranker, "cpu").score([RankingList.from_texts(QUERY, items)])[0]
    assert torch.allclose(asyncio.run(model.score([QUERY], items)).raw, expected, atol=1e-6)


def random_body(chance: random.Random, own: str) -> bytes:
    """Every field of every API with values of every type, then at times damaged bytes; its texts hold `own`."""
    values = [None, True, -1, 10**400, 1e308, "", "\u0000", "é", [], {}, [[]], ["a"], [{"text": "b"}], "a"]
    fields = [
        "query",
        "documents",
        "texts",
        "items",
        "ids",
        "top_n",
        "top_k",
        "model",
        "explain",
        "min_score",
    ]
    fields += ["queries", "text_1", "text_2", "return_documents", "rank_fields", "activation", "truncate"]
    body: dict[str, Any] = {"query": own, "documents": [own], "texts": [own], "items": [own]}
    for name in chance.sample(fields, chance.randint(1, 4)):
        body[name] = chance.choice(values)
    content = bytearray(json.dumps(body).encode())
    for _ in range(chance.choice((0, 0, 1, 5))):
        content[chance.randrange(len(content))] = chance.randrange(256)
    nested = b'{"query":"a","documents":' + b"[" * chance.choice((10, 5000))
    return chance.choice([bytes(content), bytes(content), b'{"query":"\\ud800","texts":["a"]}', nested])


def test_random_bodies_break_nothing(live: Live) -> None:
    def send(number: int) -> None:
        chance = random.Random(f"{SEED} {number}")
        own = f"mine{number}x"
        content = random_body(chance, own)
        answer = live.client.post(chance.choice([*ROUTES]), content=content)
        assert answer.status_code in (200, 400, 404, 413, 422), (answer.status_code, content)
        assert set(re.findall(r"mine\d+x", answer.text)) <= {own} | set(re.findall(r"mine\d+x", str(content)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(CASES)))
    assert live.service.in_flight == 0


def test_a_device_without_memory_is_a_message(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `ValueError` says, the supervisor prints; any other error would restart the worker again and again."""

    def full(options: ServingOptions) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("crossjem_pl.serving.app.load_models", full)
    with pytest.raises(ValueError, match="the model cannot be loaded: CUDA out of memory"):
        asyncio.run(Service(ServingOptions(str(model_folder))).load())
