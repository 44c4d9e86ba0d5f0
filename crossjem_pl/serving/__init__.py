"""An HTTP server for rankers, in the shapes that rerank clients already speak, and its page."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["ServingOptions"]


@dataclass(frozen=True)
class ServingOptions:
    """What `crossjem serve` was told; a worker process receives it as it is.

    Args:
        model: model folder, hub repository or exported model.
        host, port: where to listen; port 0 takes a free one.
        device: "cpu", "cuda", ...; by default a GPU if there is one.
        precision: as in `Reranker`.
        workers: processes that share the port.
        max_batch_tokens: tokens of one forward pass that several requests share; by default 4,096 on a CPU and
            65,536 on a GPU. One pass of one list is never divided, whatever it has.
        max_queue: requests in the process at once; more are refused with 429.
        max_items: items of a request.
        max_body: bytes of a request.
        request_timeout: seconds until a request is given up.
        client_timeout: seconds for a client to send a request's head, to send its body, to take the answer.
        drain_timeout: seconds that requests have to end after SIGTERM.
        api_key: what `Authorization: Bearer` must carry; None: nobody is asked.
        model_names: names of the model in requests; the first one is given in answers. Empty: the folder's name.
        second: a second model that is served beside the first, under its folder's name.
        store: token store, for `ids` in `/v1/rank`.
        log_texts: whether queries enter the log.

    Raises:
        ValueError: naming the option, for a number that is not above 0.
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
    client_timeout: float = 30.0
    drain_timeout: float = 60.0
    api_key: str | None = None
    model_names: tuple[str, ...] = ()
    second: str | None = None
    store: str | None = None
    log_texts: bool = False

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, int | float) and option.name not in ("port", "log_texts") and not value > 0:
                raise ValueError(f"{option.name} must be above 0, got {value}")
