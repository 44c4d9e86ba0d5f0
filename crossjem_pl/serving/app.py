"""The HTTP application: routes, limits, errors, and how a request finds its way to a model and back."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from crossjem_pl.serving import ServingOptions, metrics, schemas
from crossjem_pl.serving.models import ServedModel, load_models
from crossjem_pl.serving.scheduler import Overloaded
from crossjem_pl.serving.schemas import ApiError, Scored, Shape

__all__ = ["JsonFormatter", "Service", "create_app", "log_event"]

_LOG = logging.getLogger("crossjem_pl.serving")
_EXPLAINED = 200
_REQUESTS = (schemas.RerankRequest, schemas.TextsRequest, schemas.ScoreRequest, schemas.RankRequest)


@dataclass
class Call:
    """A request for scores: its id, its path and the JSON of its body once that is read."""

    id: str
    path: str
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Service:
    """The state of a worker process.

    Args:
        options: what it was told.
        reload_others: called after `POST /admin/reload` has loaded the model here.
        models: by every name; empty while loading.
        draining: whether it takes no more requests.
        accepted, answered: requests for scores, those refused with 401, 429 or 503 not among them.
    """

    options: ServingOptions
    reload_others: Callable[[], None] = lambda: None
    models: dict[str, ServedModel] = field(default_factory=dict)
    draining: bool = False
    accepted: int = 0
    answered: int = 0

    def __post_init__(self) -> None:
        self.threads = ThreadPoolExecutor(2, thread_name_prefix="tokeniser")
        self._reloading = asyncio.Lock()

    @property
    def in_flight(self) -> int:
        """Requests that were accepted and are not answered."""
        return self.accepted - self.answered

    @property
    def main(self) -> ServedModel:
        """The model that is served where a request names none.

        Raises:
            ApiError: 503 while loading or draining.
        """
        if self.draining or not self.models:
            state = "the server is about to end" if self.draining else "the model is being loaded"
            raise ApiError(
                503, state, {"Retry-After": "1", **({"Connection": "close"} if self.draining else {})}
            )
        return next(iter(self.models.values()))

    async def load(self) -> None:
        """Loads and warms up the models and takes them in place of those before, which end their requests.

        Raises:
            OSError, ImportError, ValueError: if they cannot be loaded; those before stay.
        """
        async with self._reloading:
            start = time.perf_counter()
            loop = asyncio.get_running_loop()
            self.models = await loop.run_in_executor(self.threads, load_models, self.options)
            model = self.find(None)
            seconds = round(time.perf_counter() - start, 2)
            log_event("loaded", model=model.name, sha256=model.sha256, seconds=seconds)

    def find(self, name: str | None) -> ServedModel:
        """The model of a request that was accepted.

        Raises:
            ApiError: 404 for a name that is not served.
        """
        name = name or next(iter(self.models))
        if name not in self.models:
            raise ApiError(404, f"model {name!r} is not served here; there are {', '.join(self.models)}")
        return self.models[name]

    def check_key(self, request: Request) -> None:
        """Raises an ApiError 401 unless the request carries the key."""
        key = self.options.api_key
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
            raise ApiError(401, "the API key is missing or wrong", {"WWW-Authenticate": "Bearer"})

    async def body(self, request: Request) -> bytes:
        """The body of a request.

        Raises:
            ApiError: 413 if it is too large, 408 if it takes too long, 499 if the client has left.
        """
        most = self.options.max_body
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.options.body_timeout):
                while True:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(499, "the client has left")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        parts = []  # the rest is read, as far as that is sane: a client that still sends hears nothing
                    if not message.get("more_body") or size > 10 * most:
                        break
        except TimeoutError:
            seconds = self.options.body_timeout
            raise ApiError(
                408, f"the body did not arrive within {seconds:g} s", {"Connection": "close"}
            ) from None
        if size > most:
            raise ApiError(413, f"the body is larger than {most} bytes", {"Connection": "close"})
        return b"".join(parts)

    def seconds(self, request: Request) -> float:
        """How long a request may take.

        Raises:
            ApiError: 422 for a malformed `X-Request-Timeout`.
        """
        given = request.headers.get("x-request-timeout", str(self.options.request_timeout))
        try:
            seconds = float(given)
        except ValueError:
            seconds = -1.0
        if not seconds >= 0:
            raise ApiError(422, "X-Request-Timeout: expected a number of seconds")
        return min(seconds, self.options.request_timeout)

    async def until_given_up(self, request: Request, work: Awaitable[Any], seconds: float) -> Any:
        """The result of `work`, which is cancelled when the client leaves or the seconds have passed.

        Raises:
            ApiError: 499 or 504 then.
        """
        task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise ApiError(499, "the client has left")
            raise ApiError(504, f"the request's {seconds:g} s have passed", {"Retry-After": "1"})
        finally:
            for each in (task, gone):
                each.cancel()

    async def score(
        self, model: ServedModel, query: str, items: list[str], field: str, **options: Any
    ) -> Scored:
        """The scores of one list.

        Args:
            model: the ranker.
            query, items: texts, or ids of its store.
            field: what the API calls the items, for messages.
            options: of `ServedModel.prepare`.

        Raises:
            ApiError: 400 if query or items are empty, 422 for a text that cannot be scored or too many, 429 if the
                queue is full.
        """
        self._check_texts(query, items, field)
        start = time.perf_counter()
        loop = asyncio.get_running_loop()
        try:
            prepared = await loop.run_in_executor(
                self.threads, lambda: model.prepare(query, items, **options)
            )
        except ValueError as error:
            raise ApiError(422, str(error).replace("list 'request', field 'items'", field)) from None
        tokenised = time.perf_counter()
        job = model.scheduler.submit(prepared.parts)
        scores = prepared.scores(await job.future)
        # in float64, so that high scores stay apart
        probabilities = model.reranker.ranker.probabilities(scores.double())
        characters = len(query) + sum(map(len, items))
        times = {
            "tokenization": 1000 * (tokenised - start),
            "queue": 1000 * (job.started - job.arrived),
            "inference": 1000 * job.computed,
        }
        metrics.observe_times(len(items), prepared.truncated, times)
        return Scored(scores, probabilities, prepared.truncated, prepared.tokens, characters, times)

    async def answer(
        self, request: Request, work: Callable[[Service, Call], Awaitable[tuple[Any, Scored]]]
    ) -> Response:
        """The answer to a request for scores, an error in the shape of its API if there is one.

        Args:
            request: from which nothing has been read.
            work: the answer's JSON and an account of the list.
        """
        start = time.perf_counter()
        call = Call(_request_id(request), request.url.path)
        headers = {"X-Request-Id": call.id}
        told: dict[str, Any] = {"id": call.id, "route": call.path}
        accepted = False
        try:
            self.check_key(request)
            main = self.main
            if self.in_flight >= self.options.max_queue:
                raise Overloaded(main.scheduler.retry_after())
            accepted = True
            self.accepted += 1
            metrics.IN_FLIGHT.inc()
            seconds = self.seconds(request)
            call.body = schemas.parse_json(await self.body(request))
            found, scored = await self.until_given_up(request, work(self, call), seconds)
            status, content = 200, to_json(found)
            headers |= _times(scored, time.perf_counter() - start, main.reranker.device.type)
            told |= {"items": len(scored), "tokens": scored.tokens, "truncated": scored.truncated}
            told |= {f"{name}_ms": round(value, 2) for name, value in scored.milliseconds.items()}
        except Exception as error:
            known = _known(error, call.id)
            status, content = known.status, to_json(schemas.error_body(known, _shape(call), call.id))
            headers |= known.headers
        finally:
            if accepted:
                self.answered += 1
                metrics.IN_FLIGHT.dec()
        seconds = time.perf_counter() - start
        metrics.observe_request(call.path, status, seconds)
        if self.options.log_texts:
            told |= {name: call.body[name] for name in ("query", "queries", "text_1") if name in call.body}
        log_event("request", status=status, ms=round(1000 * seconds, 2), **told)
        return Response(content, status, headers, "application/json")

    def check_count(self, items: list[str], field: str) -> None:
        """Raises an ApiError 422 for too many items."""
        if len(items) > self.options.max_items:
            raise ApiError(422, f"{field}: {len(items)} are more than the {self.options.max_items} allowed")

    def _check_texts(self, query: str, items: list[str], field: str) -> None:
        if not query.strip():
            raise ApiError(400, "invalid request: query must not be empty")
        if not items:
            raise ApiError(400, f"invalid request: list of {field} must not be empty")
        self.check_count(items, field)
        blank = next((i for i, text in enumerate(items) if not text.strip()), None)
        if blank is not None:
            raise ApiError(422, f"{field}[{blank}]: the text is blank")


def create_app(service: Service) -> FastAPI:
    """The application around a worker's state."""
    app = FastAPI(title="crossjem_pl", version=version("crossjem_pl"), description=__doc__ or "")
    page = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")

    def post(path: str, *shapes: type[schemas.BaseModel]) -> Callable[[Any], Any]:
        options = [{"$ref": f"#/components/schemas/{shape.__name__}"} for shape in shapes]
        schema = options[0] if len(options) == 1 else {"anyOf": options}
        content = {"required": True, "content": {"application/json": {"schema": schema}}}
        return app.post(path, openapi_extra={"requestBody": content})

    @post("/v2/rerank", schemas.RerankRequest)
    @post("/v1/rerank", schemas.RerankRequest)
    @post("/rerank", schemas.RerankRequest, schemas.TextsRequest)
    async def rerank(request: Request) -> Response:
        """Cohere v1 and v2, Jina and vLLM (`documents`); text-embeddings-inference (`texts`)."""
        return await service.answer(request, _rerank)

    @post("/v1/score", schemas.ScoreRequest)
    @post("/score", schemas.ScoreRequest)
    async def score(request: Request) -> Response:
        """vLLM."""
        return await service.answer(request, _score)

    @post("/v1/rank", schemas.RankRequest)
    async def rank(request: Request) -> Response:
        """This project's own: ids of a token store, thresholds, contributions of tokens."""
        return await service.answer(request, _rank)

    @app.get("/", response_class=HTMLResponse)
    async def index() -> str:
        """The page."""
        return page

    @app.get("/health")
    @app.get("/ping")
    async def health() -> Response:
        """Whether the process lives."""
        return Response()

    @app.get("/ready")
    async def ready() -> Response:
        """Whether requests are answered."""
        return _json({"model": service.main.name})

    @app.get("/info")
    async def info() -> Response:
        """What is served, in text-embeddings-inference's words."""
        return _json(_info(service))

    @app.get("/v1/models")
    async def models() -> Response:
        """The models, and what the page needs to know of them."""
        service.main  # noqa: B018  503 while loading
        rows = [
            {
                "id": name,
                "object": "model",
                "owned_by": "crossjem_pl",
                "ranker": model.reranker.ranker.name,
                "explains": model.explains,
                "threshold": model.threshold,
            }
            for name, model in service.models.items()
        ]
        return _json({"object": "list", "data": rows})

    @app.get("/metrics")
    async def metrics_() -> Response:
        """For Prometheus."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4")

    @app.post("/admin/reload")
    async def reload(request: Request) -> Response:
        """Loads the model's folder again; needs an API key. If that fails, the model before stays."""
        if service.options.api_key is None:
            raise ApiError(
                403, "reloading over HTTP needs a server with an API key; or send SIGHUP to its process"
            )
        service.check_key(request)
        before = service.main.sha256
        try:
            await service.load()
        except (OSError, ImportError, ValueError) as error:
            log_event("reload failed", level=logging.ERROR, reason=str(error))
            raise ApiError(500, f"the model before is still served: {error}") from None
        service.reload_others()
        return _json({"model": service.main.name, "sha256": service.main.sha256, "before": before})

    @app.exception_handler(ApiError)
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error = ApiError(error.status_code, str(error.detail), dict(error.headers or {}))
        assert isinstance(error, ApiError)
        call = Call(_request_id(request), request.url.path)
        content = schemas.error_body(error, _shape(call), call.id)
        return Response(to_json(content), error.status, error.headers, "application/json")

    plain = app.openapi

    def openapi() -> dict[str, Any]:
        made = plain()
        _, found = models_json_schema(
            [(shape, "validation") for shape in _REQUESTS], ref_template="#/components/schemas/{model}"
        )
        made.setdefault("components", {}).setdefault("schemas", {}).update(found["$defs"])
        return made

    app.openapi = openapi  # type: ignore[method-assign]
    return app


async def _rerank(service: Service, call: Call) -> tuple[Any, Scored]:
    if "texts" in call.body:
        return await _texts(service, schemas.parse(schemas.TextsRequest, call.body))
    request = schemas.parse(schemas.RerankRequest, call.body)
    model, texts, limit = service.find(request.model), request.texts(), request.max_tokens_per_doc
    scored = await service.score(model, request.query, texts, "documents", max_item_tokens=limit)
    if request.return_documents is None:
        request.return_documents = call.path == "/rerank"
    api = "1" if call.path.startswith("/v1") else "2"
    return schemas.rerank_answer(request, texts, scored, model.name, call.id, api), scored


async def _texts(service: Service, request: schemas.TextsRequest) -> tuple[Any, Scored]:
    if request.truncation_direction.lower() == "left":
        raise ApiError(422, "truncation_direction: items are cut on the right only")
    scored = await service.score(service.find(None), request.query, request.texts, "texts")
    if request.truncate is False and scored.truncated:
        raise ApiError(422, f"truncate: {scored.truncated} texts are longer than the model's limits")
    return schemas.texts_answer(request, scored), scored


async def _score(service: Service, call: Call) -> tuple[Any, Scored]:
    request = schemas.parse(schemas.ScoreRequest, call.body)
    model = service.find(request.model)
    queries, documents = request.pairs()
    service.check_count(documents, "documents")
    positions: dict[str, list[int]] = {}
    for i, query in enumerate(queries):
        positions.setdefault(query, []).append(i)
    lists = [(query, [documents[i] for i in own]) for query, own in positions.items()]
    found = await asyncio.gather(*(service.score(model, *each, "documents") for each in lists))
    back = torch.tensor([i for own in positions.values() for i in own]).argsort()
    whole = schemas.Scored(
        torch.cat([each.raw for each in found])[back],
        torch.cat([each.probabilities for each in found])[back],
        sum(each.truncated for each in found),
        sum(each.tokens for each in found),
        sum(each.characters for each in found),
        {name: max(each.milliseconds[name] for each in found) for name in found[0].milliseconds},
    )
    return schemas.score_answer(whole, model.name, call.id), whole


async def _rank(service: Service, call: Call) -> tuple[Any, Scored]:
    request = schemas.parse(schemas.RankRequest, call.body)
    model = service.find(request.model)
    texts, ids = request.texts()
    by_id = request.ids is not None
    if request.explain and not model.explains:
        raise ApiError(422, f"explain: {model.name} cannot: its score is not a sum over tokens")
    if request.explain and (by_id or len(texts) > _EXPLAINED):
        raise ApiError(422, f"explain: is for at most {_EXPLAINED} texts")
    lowest = request.min_score
    if lowest == "stored":
        lowest = model.threshold
        if lowest is None:
            raise ApiError(422, f"min_score: no threshold that fits is stored with {model.name}")
    scored = await service.score(model, request.query, texts, "ids" if by_id else "items", ids=by_id)
    explanations = None
    if request.explain:
        explanations = await asyncio.get_running_loop().run_in_executor(
            model.scheduler.thread, model.reranker.explain, request.query, texts
        )
    order = [i for i in scored.order() if lowest is None or float(scored.raw[i]) >= lowest][: request.top_k]
    shown = (
        scored.raw.softmax(0).tolist()
        if request.activation == "softmax"
        else scored.shown(request.activation == "none")
    )
    rows: list[dict[str, Any]] = []
    for i in order:
        row: dict[str, Any] = {"index": i, "score": shown[i]}
        if ids is not None:
            row["id"] = ids[i]
        if not by_id:
            row["text"] = texts[i]
        if explanations is not None:
            row["contributions"] = [vars(part) for part in explanations[i].contributions]
        rows.append(row)
    found = {
        "id": call.id,
        "model": model.name,
        "items": rows,
        "truncated": scored.truncated,
        "tokens": scored.tokens,
        "min_score": lowest,
        "milliseconds": {name: round(value, 3) for name, value in scored.milliseconds.items()},
    }
    return found, scored


def _info(service: Service) -> dict[str, Any]:
    main, options = service.main, service.options
    return {
        "model_id": main.name,
        "model_sha": main.sha256,
        "model_dtype": main.reranker.precision,
        "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
        "max_concurrent_requests": options.max_queue,
        "max_input_length": main.max_item_tokens or 0,
        "max_batch_tokens": main.scheduler.max_tokens,
        "max_client_batch_size": options.max_items,
        "auto_truncate": True,
        "tokenization_workers": 2,
        "version": version("crossjem_pl"),
        "models": list(service.models),
    }


def _json(content: Any) -> Response:
    return Response(to_json(content), media_type="application/json")


def _shape(call: Call) -> Shape:
    """Whose errors a request reads."""
    return "texts" if call.path == "/rerank" and "documents" not in call.body else "documents"


def _known(error: Exception, request_id: str) -> ApiError:
    """The answer to an error; one that nobody expected has an id in place of a stack, which goes to the log."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Overloaded):
        return ApiError(429, "too many requests wait", {"Retry-After": str(error.retry_after)})
    _LOG.error("failed", exc_info=error, extra={"fields": {"id": request_id}})
    return ApiError(500, f"an error of the server; its log tells more under the id {request_id}")


def _request_id(request: Request) -> str:
    given = request.headers.get("x-request-id", "")
    return given if 0 < len(given) <= 100 and given.isascii() and given.isprintable() else uuid.uuid4().hex


def _times(scored: Scored, seconds: float, device: str) -> dict[str, str]:
    """TEI's headers, and how many texts were cut."""
    of = scored.milliseconds
    return {
        "x-compute-type": "cpu" if device == "cpu" else "gpu+optimized",
        "x-compute-time": f"{of['tokenization'] + of['inference']:.0f}",
        "x-compute-characters": str(scored.characters),
        "x-compute-tokens": str(scored.tokens),
        "x-total-time": f"{1000 * seconds:.0f}",
        "x-tokenization-time": f"{of['tokenization']:.0f}",
        "x-queue-time": f"{of['queue']:.0f}",
        "x-inference-time": f"{of['inference']:.0f}",
        "X-Truncated": str(scored.truncated),
    }


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def log_event(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Writes a line of the log."""
    _LOG.log(level, event, extra={"fields": fields})


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, and the record's `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        kind, _, stack = record.exc_info or (None, None, None)
        if kind is not None:  # the stack without the error's words, which may hold texts
            told |= {"error": kind.__name__, "stack": traceback.format_tb(stack)}
        return json.dumps(told)
