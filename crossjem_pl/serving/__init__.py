"""An HTTP server for rankers, in the shapes that rerank clients already speak, and its page."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ServingOptions"]


@dataclass(frozen=True)
class ServingOptions:
    """What `crossjem serve` was told; a worker process receives it as it is.

    Args:
        model: model folder, hub repository or exported model.
        host, port: where to listen; port 0 takes a free one.
        device: "cpu", "cuda", ...; None for a GPU if there is one.
        precision: as in `Reranker`.
        workers: processes that share the port.
        max_batch_tokens: tokens of one forward pass that several requests share; None for 4,096 on a CPU and
            65,536 on a GPU. One pass of one list is never divided, whatever it has.
        max_queue: requests in the process at once; more are refused with 429.
        max_items: items of a request.
        max_body: bytes of a request.
        request_timeout: seconds until a request is given up, and the most that `X-Request-Timeout` may ask for.
        body_timeout: seconds in which a request's body must arrive.
        drain_timeout: seconds that requests have to end after SIGTERM.
        api_key: what `Authorization: Bearer` must carry; None: nobody is asked.
        model_names: names of the model in requests; the first one is given in answers. Empty: the folder's name.
        second: a second model that is served beside the first, under its folder's name.
        store: token store, for `ids` in `/v1/rank`.
        log_texts: whether queries enter the log.
    """

    model: str
    host: str = "127.0.0.1"
    port: int = 8000
    device: str | None = None
    precision: str | None = None
    workers: int = 1
    max_batch_tokens: int | None = None
    max_queue: int = 256
    max_items: int = 5000
    max_body: int = 2_000_000
    request_timeout: float = 60.0
    body_timeout: float = 30.0
    drain_timeout: float = 60.0
    api_key: str | None = None
    model_names: tuple[str, ...] = ()
    second: str | None = None
    store: str | None = None
    log_texts: bool = False

    def __post_init__(self) -> None:
        for name in ("workers", "max_queue", "max_items", "max_body"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_batch_tokens is not None and self.max_batch_tokens < 1:
            raise ValueError(f"max_batch_tokens must be at least 1, got {self.max_batch_tokens}")
        for name in ("request_timeout", "body_timeout", "drain_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0 seconds, got {getattr(self, name)}")
