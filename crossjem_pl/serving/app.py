"""The HTTP application: routes, limits, errors, and how a request finds its way to a model and back."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
import time
import traceback
import uuid
from collections.abc import Coroutine, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from crossjem_pl.serving import ServingOptions, metrics
from crossjem_pl.serving.models import Scored, ServedModel, load_models
from crossjem_pl.serving.scheduler import Overloaded
from crossjem_pl.serving.schemas import ROUTES, ApiError, Call, RankRequest, RequestShape, error_body, parse

__all__ = ["LOG", "JsonFormatter", "Service", "create_app"]

LOG = logging.getLogger("crossjem_pl.serving")


class Service:
    """The state of a worker process: its models by every name (none while loading), whether it is draining, and the
    requests for scores that it has accepted and not answered."""

    def __init__(self, options: ServingOptions) -> None:
        self.options = options
        self.models: dict[str, ServedModel] = {}
        self.draining = False
        self.in_flight = 0
        self._loading = asyncio.Lock()

    @property
    def main(self) -> ServedModel:
        """The model that is served where a request names none.

        Raises:
            ApiError: 503 while loading or draining.
        """
        if self.draining:
            raise ApiError(503, "the server is about to end", {"Retry-After": "1", "Connection": "close"})
        if not self.models:
            raise ApiError(503, "the model is being loaded", {"Retry-After": "1"})
        return next(iter(self.models.values()))

    async def load(self) -> None:
        """Loads and warms up the models and takes them in place of those before, which end their requests.

        Raises:
            OSError, ImportError, ValueError: if they cannot be loaded; those before stay.
        """
        async with self._loading:
            start, loop = time.perf_counter(), asyncio.get_running_loop()
            try:
                self.models = await loop.run_in_executor(None, load_models, self.options)
            except RuntimeError as error:  # of a device, such as one without enough memory
                raise ValueError(f"the model cannot be loaded: {error}") from error
            told = {"model": (model := next(iter(self.models.values()))).name, "sha256": model.sha256}
            LOG.info(
                "loaded", told | {"seconds": round(time.perf_counter() - start, 2), "process": os.getpid()}
            )

    async def drain(self) -> None:
        """Takes no more requests; waits until those in flight are answered or `drain_timeout` has passed."""
        self.draining = True
        LOG.info("draining", {"in_flight": self.in_flight})
        end = time.monotonic() + self.options.drain_timeout
        while self.in_flight and time.monotonic() < end:
            await asyncio.sleep(0.02)

    async def answer(self, request: Request) -> Response:
        """The answer to a request for scores, an error in the shape of its API if there is one."""
        start = time.perf_counter()
        call = Call(_request_id(request), request.url.path)
        headers = {"X-Request-Id": call.id}
        told: dict[str, Any] = {"id": call.id, "route": call.path}
        try:
            self._check_key(request)
            main = self.main
            if self.in_flight >= self.options.max_queue:
                raise Overloaded(main.scheduler.retry_after())
            self.in_flight += 1
            metrics.IN_FLIGHT.inc()
            try:
                work = self._score(call, await self._body(request))
                content, scored = await self._until_given_up(request, work)
            finally:
                self.in_flight -= 1
                metrics.IN_FLIGHT.dec()
            status = 200
            headers |= _times(scored, time.perf_counter() - start, main.reranker.device.type)
            told |= {"items": len(scored.items), "tokens": scored.tokens, "truncated": scored.truncated}
            told |= {f"{name}_ms": round(value, 2) for name, value in scored.milliseconds.items()}
        except Exception as error:
            known = _known(error, call.id)
            status, content = known.status, to_json(error_body(known, call))
            headers |= known.headers
        seconds = time.perf_counter() - start
        metrics.observe_request(call.path, status, seconds)
        if self.options.log_texts:
            told |= {name: call.body[name] for name in ("query", "queries", "text_1") if name in call.body}
        LOG.info("request", told | {"status": status, "ms": round(1000 * seconds, 2)})
        return Response(content, status, headers, "application/json")

    def _check_key(self, request: Request) -> None:
        """Raises an ApiError 401 unless the request carries the key."""
        key = self.options.api_key
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        sent = given.encode("latin-1")  # the bytes of the header
        if key is not None and not hmac.compare_digest(sent, key.encode()):
            raise ApiError(401, "the API key is missing or wrong", {"WWW-Authenticate": "Bearer"})

    async def _body(self, request: Request) -> bytes:
        """The body; an ApiError 413 if it is too large, 408 if it takes too long, 499 if the client has left."""
        most, allowed = self.options.max_body, self.options.client_timeout
        parts, size = [], 0
        try:
            async with asyncio.timeout(allowed):
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
            told = f"the body did not arrive within {allowed:g} s"
            raise ApiError(408, told, {"Connection": "close"}) from None
        if size > most:
            raise ApiError(413, f"the body is larger than {most} bytes", {"Connection": "close"})
        return b"".join(parts)

    async def _until_given_up(self, request: Request, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of `work`, which is cancelled when the client leaves (ApiError 499) or its time is up (504)."""

        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        most = self.options.request_timeout
        task, left = asyncio.ensure_future(work), asyncio.ensure_future(gone())
        try:
            await asyncio.wait({task, left}, timeout=most, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if left.done():
                raise ApiError(499, "the client has left")
            raise ApiError(504, f"the request's {most:g} s have passed", {"Retry-After": "1"})
        finally:
            task.cancel()
            left.cancel()

    async def _score(self, call: Call, body: bytes) -> tuple[bytes, Scored]:
        """The answer's JSON, and the scores.

        Raises:
            ApiError: 400 if query or items are empty, 404 for a model that is not served, 422 for a field or a text
                that cannot be used, or for too many items.
            Overloaded: if the queue is full.
        """
        request = parse(call, body)
        name = request.model or next(iter(self.models))
        if name not in self.models:
            raise ApiError(404, f"model {name!r} is not served here; there are {', '.join(self.models)}")
        model, options = self.models[name], {}
        if isinstance(request, RankRequest):
            options = {"ids": request.ids is not None, "explain": request.explain}
            if request.explain and not model.explains:
                raise ApiError(422, f"explain: {model.name} cannot: its score is not a sum over tokens")
            if request.min_score == "stored":
                request.min_score = model.threshold
                if model.threshold is None:
                    raise ApiError(422, f"min_score: no threshold that fits is stored with {model.name}")
        queries, texts = self._texts(request)
        try:
            scored = await model.score(queries, texts, **options)
        except ValueError as error:
            told = str(error).replace("list 'request', field 'items'", request.items_field)
            raise ApiError(422, told) from None
        return to_json(request.answer(scored, call)), scored

    def _texts(self, request: RequestShape) -> tuple[list[str], list[str]]:
        """Queries and items, of which none is blank or too many."""
        queries, texts = request.pairs()
        field, most = request.items_field, self.options.max_items
        if not all(query.strip() for query in queries):
            raise ApiError(400, "invalid request: query must not be empty")
        if not texts:
            raise ApiError(400, f"invalid request: list of {field} must not be empty")
        if len(texts) > most:
            raise ApiError(422, f"{field}: {len(texts)} are more than the {most} allowed")
        blank = next((i for i, text in enumerate(texts) if not text.strip()), None)
        if blank is not None:
            raise ApiError(422, f"{field}[{blank}]: the text is blank")
        return queries, texts


def create_app(service: Service) -> FastAPI:
    """The application around a worker's state."""
    app = FastAPI(title="crossjem_pl", version=version("crossjem_pl"), description=__doc__ or "")
    page = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")

    for path, shapes in ROUTES.items():
        schema = {"anyOf": [shape.model_json_schema() for shape in shapes]}
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        app.add_api_route(
            path,
            service.answer,
            methods=["POST"],
            response_class=Response,
            summary=" or ".join(shape.__name__ for shape in shapes),
            description="\n\n".join(shape.__doc__ or "" for shape in shapes),
            openapi_extra={"requestBody": body},
        )

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
        main, options = service.main, service.options
        told = {
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
        return _json(told)

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

    @app.exception_handler(ApiError)
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error = ApiError(error.status_code, str(error.detail), dict(error.headers or {}))
        assert isinstance(error, ApiError)
        content = error_body(error, Call(_request_id(request), request.url.path))
        return Response(to_json(content), error.status, error.headers, "application/json")

    return app


def _json(content: Any) -> Response:
    return Response(to_json(content), media_type="application/json")


def _known(error: Exception, request_id: str) -> ApiError:
    """The answer to an error; one that nobody expected has an id in place of a stack, which goes to the log."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Overloaded):
        return ApiError(429, "too many requests wait", {"Retry-After": str(error.retry_after)})
    LOG.error("failed", {"id": request_id}, exc_info=error)
    return ApiError(500, f"an error of the server; its log tells more under the id {request_id}")


def _request_id(request: Request) -> str:
    """The client's own, or a new one."""
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


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, and the fields in the one argument of the call."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **(record.args if isinstance(record.args, Mapping) else {}),
        }
        kind, _, stack = record.exc_info or (None, None, None)
        if kind is not None:  # the stack without the error's words, which may hold texts
            told |= {"error": kind.__name__, "stack": traceback.format_tb(stack)}
        return json.dumps(told)
