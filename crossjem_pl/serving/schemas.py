"""Requests, answers and errors of every API that the server speaks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, WithJsonSchema
from pydantic_core import from_json
from torch import Tensor

__all__ = [
    "ApiError",
    "RankRequest",
    "RerankRequest",
    "ScoreRequest",
    "Scored",
    "Shape",
    "TextsRequest",
    "error_body",
    "parse",
    "parse_json",
    "rerank_answer",
    "score_answer",
    "texts_answer",
]

Shape = Literal["documents", "texts"]

_KINDS = {400: "Empty", 413: "Validation", 422: "Validation", 429: "Overloaded", 503: "Unhealthy"}


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

    @property
    def kind(self) -> str:
        """In TEI's words, where it has one."""
        return _KINDS.get(self.status, "Backend" if self.status >= 500 else "Refused")


def error_body(error: ApiError, shape: Shape, request_id: str) -> dict[str, Any]:
    """An error in its API's shape: TEI reads `error` and `error_type`, vLLM an object `error`, Cohere `message`, Jina
    `detail`; clients of the last three call the same path."""
    if shape == "texts":
        return {"error": error.message, "error_type": error.kind, "id": request_id}
    told = {"message": error.message, "type": error.kind, "param": None, "code": error.status}
    return {"id": request_id, "message": error.message, "detail": error.message, "error": told}


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None


_DOCUMENT = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"text": {"type": "string"}}}]}
_Documents = Annotated[list[Any], WithJsonSchema({"type": "array", "items": _DOCUMENT})]
_Texts = str | list[str]
_Count = Annotated[int, Field(ge=0, le=2**31)]


class RerankRequest(_Request):
    """`documents`, the shape of Cohere v1 and v2, Jina and vLLM; other fields of theirs are accepted and ignored.

    `top_n` 0 or none is all. `return_documents` is by default what the path's API does: yes in `/rerank` (vLLM).
    """

    query: str
    documents: _Documents
    top_n: _Count | None = None
    return_documents: bool | None = None
    rank_fields: list[str] | None = None
    max_tokens_per_doc: Annotated[int, Field(ge=1)] | None = None
    raw_scores: bool = False

    def texts(self) -> list[str]:
        """The texts of the documents: themselves, their `text`, or their `rank_fields` one after the other."""
        return [self._text(i, document) for i, document in enumerate(self.documents)]

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


class TextsRequest(_Request):
    """`texts`, the shape of text-embeddings-inference. Scores are probabilities unless `raw_scores`."""

    query: str
    texts: list[str]
    truncate: bool | None = True
    truncation_direction: Literal["right", "Right", "left", "Left"] = "right"
    raw_scores: bool = False
    return_text: bool = False


class ScoreRequest(_Request):
    """vLLM's `/score`: one query and its documents, or as many queries as documents, paired."""

    queries: _Texts | None = None
    documents: _Texts | None = None
    text_1: _Texts | None = None
    text_2: _Texts | None = None

    def pairs(self) -> tuple[list[str], list[str]]:
        """Queries and documents, as many of either."""
        sides = []
        for name, other in (("queries", "text_1"), ("documents", "text_2")):
            given = getattr(self, name) if getattr(self, name) is not None else getattr(self, other)
            if given is None:
                raise ApiError(422, f"{name}: this field is required")
            sides.append([given] if isinstance(given, str) else given)
        queries, documents = sides
        if not queries or not documents:
            raise ApiError(400, "queries and documents must not be empty")
        if len(queries) == 1:
            queries = queries * len(documents)
        if len(queries) != len(documents):
            raise ApiError(422, f"queries: {len(queries)} for {len(documents)} documents; one, or as many")
        return queries, documents


class _Item(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    id: str
    text: str


class RankRequest(_Request):
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
    items: list[str] | list[_Item] | None = None
    ids: list[str] | None = None
    top_k: Annotated[int, Field(ge=1, le=2**31)] | None = None
    min_score: FiniteFloat | Literal["stored"] | None = None
    activation: Literal["none", "sigmoid", "softmax"] = "none"
    explain: bool = False

    def texts(self) -> tuple[list[str], list[str] | None]:
        """The texts, or the ids of the store, and the ids to answer with, if any."""
        if (self.items is None) == (self.ids is None):
            raise ApiError(422, "items: give either items or ids")
        if self.items is None:
            return self.ids or [], self.ids
        ids = [item.id for item in self.items if not isinstance(item, str)]
        return [item if isinstance(item, str) else item.text for item in self.items], ids or None


R = TypeVar("R", bound=_Request)


def parse_json(body: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Raises:
        ApiError: 400 if it is none.
    """
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ApiError(422, "the body must be a JSON object")
    return found


def parse(shape: type[R], body: dict[str, Any]) -> R:
    """The request in its shape.

    Raises:
        ApiError: 422 for a missing field or a wrong type, naming the field.
    """
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        # of a union pydantic names the member as well, in words of Python
        path = [
            part
            for part in first["loc"]
            if isinstance(part, int) or part in shape.model_fields or part == "text"
        ]
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        raise ApiError(422, f"{name}: {first['msg']}") from None


@dataclass
class Scored:
    """The scores of a request's items with what the answer tells beside them.

    Args:
        raw: the ranker's own scores, float32 [items], in the request's order.
        probabilities: of relevance, in [0, 1], float64 [items].
        truncated: texts that lost tokens to a length limit.
        tokens: of the query and the items, each counted once.
        characters: likewise.
        milliseconds: of tokenising, waiting and computing.
    """

    raw: Tensor
    probabilities: Tensor
    truncated: int
    tokens: int
    characters: int
    milliseconds: dict[str, float]

    def __len__(self) -> int:
        return len(self.raw)

    def order(self, top: int | None = None) -> list[int]:
        """Items by their own scores, best first; equal ones keep the request's order."""
        return torch.sort(self.raw, descending=True, stable=True).indices[: top or None].tolist()

    def shown(self, raw: bool) -> list[float]:
        """What an answer gives as scores."""
        return (self.raw if raw else self.probabilities).tolist()


def rerank_answer(
    request: RerankRequest, texts: Sequence[str], scored: Scored, model: str, request_id: str, version: str
) -> dict[str, Any]:
    """One answer for Cohere, Jina and vLLM: each reads its own fields."""
    results: list[dict[str, Any]] = []
    scores = scored.shown(request.raw_scores)
    for i in scored.order(request.top_n):
        row: dict[str, Any] = {"index": i, "relevance_score": scores[i]}
        if request.return_documents:
            given = request.documents[i]
            row["document"] = given if isinstance(given, dict) else {"text": texts[i]}
        results.append(row)
    return {
        "id": request_id,
        "model": model,
        "results": results,
        "usage": {"prompt_tokens": scored.tokens, "total_tokens": scored.tokens},
        "meta": {
            "api_version": {"version": version, "is_experimental": False},
            "billed_units": {"search_units": 1},
            "truncated": scored.truncated,
            **({"warnings": [_cut(scored.truncated)]} if scored.truncated else {}),
        },
    }


def texts_answer(request: TextsRequest, scored: Scored) -> list[dict[str, Any]]:
    """TEI's answer: a list, best first."""
    scores = scored.shown(request.raw_scores)
    return [
        {"index": i, "score": scores[i], **({"text": request.texts[i]} if request.return_text else {})}
        for i in scored.order()
    ]


def score_answer(scored: Scored, model: str, request_id: str) -> dict[str, Any]:
    """vLLM's answer, in the order of the documents."""
    return {
        "id": request_id,
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [
            {"index": i, "object": "score", "score": score} for i, score in enumerate(scored.shown(False))
        ],
        "usage": {"prompt_tokens": scored.tokens, "total_tokens": scored.tokens},
        "truncated": scored.truncated,
    }


def _cut(count: int) -> str:
    return f"{count} texts were longer than the model's limits and were cut"
