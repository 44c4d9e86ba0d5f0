"""Requests, answers and errors of every API that the server speaks: one class for each shape."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, WithJsonSchema
from pydantic_core import from_json

from crossjem_pl.serving.models import Scored

__all__ = ["ROUTES", "ApiError", "Call", "RankRequest", "RequestShape", "error_body", "parse"]

_KINDS = {400: "Empty", 413: "Validation", 422: "Validation", 429: "Overloaded", 503: "Unhealthy"}
_EXPLAINED = 200


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP; 499, which is not answered, for a client that has left.
        message: for the client; never a text of another request, never a stack.
        headers: of the answer.
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


@dataclass
class Call:
    """A request for scores: its id, its path and the JSON of its body once that is read."""

    id: str
    path: str
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> type[RequestShape]:
        """Which API the client speaks: where a path has two, the body's key decides."""
        return ROUTES[self.path][-1 if "documents" not in self.body else 0]


class RequestShape(BaseModel):
    """What every shape has: the model's name, its texts, and how it is answered."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None

    @property
    def items_field(self) -> str:
        """What the API calls the items, for messages."""
        return "documents"

    @abstractmethod
    def pairs(self) -> tuple[list[str], list[str]]:
        """One query, or one for each item; and the items, which may be none."""

    @abstractmethod
    def answer(self, scored: Scored, call: Call) -> Any:
        """The JSON of the answer."""


_DOCUMENT = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"text": {"type": "string"}}}]}
_Documents = Annotated[list[Any], WithJsonSchema({"type": "array", "items": _DOCUMENT})]
_Texts = str | list[str]
_Count = Annotated[int, Field(ge=0, le=2**31)]


class RerankRequest(RequestShape):
    """`documents`, the shape of Cohere v1 and v2, Jina and vLLM; other fields of theirs are accepted and ignored.

    `top_n` 0 or none is all. `return_documents` is by default what the path's API does: yes in `/rerank` (vLLM).
    """

    query: str
    documents: _Documents
    top_n: _Count | None = None
    return_documents: bool | None = None
    rank_fields: list[str] | None = None
    raw_scores: bool = False

    def pairs(self) -> tuple[list[str], list[str]]:
        """The texts of the documents: themselves, their `text`, or their `rank_fields` one after the other."""
        return [self.query], [self._text(i, document) for i, document in enumerate(self.documents)]

    def _text(self, i: int, document: Any) -> str:
        if isinstance(document, str):
            return document
        if not isinstance(document, dict):
            raise ApiError(422, f"documents[{i}]: expected a text or an object with a text")
        fields = self.rank_fields or ["text"]
        for name in fields:
            if not isinstance(document.get(name), str):
                raise ApiError(422, f"documents[{i}].{name}: expected a text")
        return " ".join(document[name] for name in fields)

    def answer(self, scored: Scored, call: Call) -> Any:
        """One answer for Cohere, Jina and vLLM: each reads its own fields."""
        scores = scored.shown(self.raw_scores)
        results: list[dict[str, Any]] = [
            {"index": i, "relevance_score": scores[i]} for i in scored.order()[: self.top_n or None]
        ]
        if self.return_documents or (self.return_documents is None and call.path == "/rerank"):
            for row in results:
                given = self.documents[row["index"]]
                row["document"] = {"text": given} if isinstance(given, str) else given
        meta: dict[str, Any] = {
            "api_version": {
                "version": "1" if call.path.startswith("/v1") else "2",
                "is_experimental": False,
            },
            "billed_units": {"search_units": 1},
            "truncated": scored.truncated,
        }
        if scored.truncated:
            meta["warnings"] = [f"{scored.truncated} texts were longer than the model's limits and were cut"]
        return {
            "id": call.id,
            "model": scored.model,
            "results": results,
            "usage": _usage(scored),
            "meta": meta,
        }


class TextsRequest(RequestShape):
    """`texts`, the shape of text-embeddings-inference; `model`, which it lacks, is not read. Scores are probabilities
    unless `raw_scores`."""

    model: ClassVar[None] = None  # type: ignore[misc]
    query: str
    texts: list[str]
    truncate: bool | None = True
    truncation_direction: Literal["right", "Right"] = "right"
    raw_scores: bool = False
    return_text: bool = False

    @property
    def items_field(self) -> str:
        return "texts"

    def pairs(self) -> tuple[list[str], list[str]]:
        return [self.query], self.texts

    def answer(self, scored: Scored, call: Call) -> Any:
        """A list, best first."""
        if self.truncate is False and scored.truncated:
            raise ApiError(422, f"truncate: {scored.truncated} texts are longer than the model's limits")
        scores = scored.shown(self.raw_scores)
        return [
            {"index": i, "score": scores[i], **({"text": self.texts[i]} if self.return_text else {})}
            for i in scored.order()
        ]


class ScoreRequest(RequestShape):
    """vLLM's `/score`: one query and its documents, or as many queries as documents, paired."""

    queries: _Texts | None = None
    documents: _Texts | None = None
    text_1: _Texts | None = None
    text_2: _Texts | None = None

    def pairs(self) -> tuple[list[str], list[str]]:
        sides = []
        for name, other in (("queries", "text_1"), ("documents", "text_2")):
            given = getattr(self, name) if getattr(self, name) is not None else getattr(self, other)
            if given is None:
                raise ApiError(422, f"{name}: this field is required")
            sides.append([given] if isinstance(given, str) else given)
        queries, documents = sides
        if not queries or not documents:
            raise ApiError(400, "queries and documents must not be empty")
        if len(queries) not in (1, len(documents)):
            raise ApiError(422, f"queries: {len(queries)} for {len(documents)} documents; one, or as many")
        return queries, documents

    def answer(self, scored: Scored, call: Call) -> Any:
        """In the order of the documents."""
        rows = enumerate(scored.shown(raw=False))
        return {
            "id": call.id,
            "object": "list",
            "created": int(time.time()),
            "model": scored.model,
            "data": [{"index": i, "object": "score", "score": score} for i, score in rows],
            "usage": _usage(scored),
            "truncated": scored.truncated,
        }


class _Item(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    id: str
    text: str


_Items = Annotated[list[str] | list[_Item], WithJsonSchema({"type": "array", "items": _DOCUMENT})]


class RankRequest(RequestShape):
    """This project's own shape.

    Args:
        items: texts, or objects of an id and a text.
        ids: in place of items, ids of the server's token store.
        top_k: only the best.
        min_score: only items whose score, before any activation, is at least this; "stored" takes the threshold
            that is stored with the model.
        activation: of the scores in the answer: the ranker's own, its probabilities, or softmax over the list.
        explain: what each token adds to an item's score.
    """

    query: str
    items: _Items | None = None
    ids: list[str] | None = None
    top_k: Annotated[int, Field(ge=1, le=2**31)] | None = None
    min_score: FiniteFloat | Literal["stored"] | None = None
    activation: Literal["none", "sigmoid", "softmax"] = "none"
    explain: bool = False

    @property
    def items_field(self) -> str:
        return "items" if self.ids is None else "ids"

    def pairs(self) -> tuple[list[str], list[str]]:
        if (self.items is None) == (self.ids is None):
            raise ApiError(422, "items: give either items or ids")
        texts = [item if isinstance(item, str) else item.text for item in self.items or []]
        if self.explain and (self.ids is not None or len(texts) > _EXPLAINED):
            raise ApiError(422, f"explain: is for at most {_EXPLAINED} texts")
        return [self.query], texts if self.ids is None else self.ids

    def answer(self, scored: Scored, call: Call) -> Any:
        """Best first."""
        shown = scored.raw.softmax(0).tolist() if self.activation == "softmax" else None
        shown = shown or scored.shown(raw=self.activation == "none")
        rows: list[dict[str, Any]] = []
        for i in scored.order():
            if isinstance(self.min_score, int | float) and float(scored.raw[i]) < self.min_score:
                break
            row: dict[str, Any] = {"index": i, "score": shown[i]}
            if self.items is None:
                row["id"] = scored.items[i]
            else:
                item = self.items[i]
                row |= {"text": item} if isinstance(item, str) else {"id": item.id, "text": item.text}
            if scored.explanations is not None:
                row["contributions"] = [vars(part) for part in scored.explanations[i].contributions]
            rows.append(row)
        return {
            "id": call.id,
            "model": scored.model,
            "items": rows[: self.top_k],
            "truncated": scored.truncated,
            "tokens": scored.tokens,
            "min_score": self.min_score,
            "milliseconds": {name: round(value, 3) for name, value in scored.milliseconds.items()},
        }


ROUTES: dict[str, tuple[type[RequestShape], ...]] = {
    "/v2/rerank": (RerankRequest,),
    "/v1/rerank": (RerankRequest,),
    "/rerank": (RerankRequest, TextsRequest),
    "/v1/score": (ScoreRequest,),
    "/score": (ScoreRequest,),
    "/v1/rank": (RankRequest,),
}
"""The shapes that a path takes."""


def parse(call: Call, body: bytes) -> RequestShape:
    """The request of a call in its shape; `call.body` becomes the JSON.

    Raises:
        ApiError: 400 if the body is not JSON; 422 for a missing field or a wrong type, naming the field.
    """
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ApiError(422, "the body must be a JSON object")
    call.body = found
    try:
        return call.shape.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        # of a union pydantic names the member as well, in words of Python
        known = {*call.shape.model_fields, *_Item.model_fields}
        path = [part for part in first["loc"] if isinstance(part, int) or part in known]
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        raise ApiError(422, f"{name}: {first['msg']}") from None


def error_body(error: ApiError, call: Call) -> dict[str, Any]:
    """An error in its API's shape: TEI reads `error` and `error_type`, vLLM an object `error`, Cohere `message`, Jina
    `detail`; clients of the last three call the same path."""
    kind = _KINDS.get(error.status, "Backend" if error.status >= 500 else "Refused")
    if call.path in ROUTES and call.shape is TextsRequest:
        return {"error": error.message, "error_type": kind, "id": call.id}
    told = {"message": error.message, "type": kind, "param": None, "code": error.status}
    return {"id": call.id, "message": error.message, "detail": error.message, "error": told}


def _usage(scored: Scored) -> dict[str, int]:
    return {"prompt_tokens": scored.tokens, "total_tokens": scored.tokens}
