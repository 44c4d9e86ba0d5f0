"""What `/metrics` tells: text-embeddings-inference's names where they mean the same, for all workers together."""

from __future__ import annotations

import os
import re

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

__all__ = ["IN_FLIGHT", "observe_batch", "observe_request", "observe_times", "render"]

disable_created_metrics()

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = tuple(4**n for n in range(10))

_COUNT = Counter("te_request_count", "Requests that were received", ["method"])
_SUCCESS = Counter("te_request_success", "Requests that were answered with 200", ["method"])
_FAILURE = Counter("te_request_failure", "Requests that were answered with an error", ["method", "err"])
_DURATION = Histogram("te_request_duration", "Seconds of a request that was answered", buckets=_SECONDS)
_TIMES = {
    name: Histogram(f"te_request_{name}_duration", f"Seconds of a request's {words}", buckets=_SECONDS)
    for name, words in (("tokenization", "tokenising"), ("queue", "waiting"), ("inference", "passes"))
}
_ITEMS = Histogram("crossjem_request_items", "Items of a request", buckets=_SIZES)
IN_FLIGHT = Gauge("te_queue_size", "Requests that wait or are computed", multiprocess_mode="livesum")
_BATCH_SIZE = Histogram("te_batch_next_size", "Lists and parts of lists in a forward pass", buckets=_SIZES)
_BATCH_TOKENS = Histogram("te_batch_next_tokens", "Tokens of a forward pass", buckets=_SIZES)
_TRUNCATED = Counter("crossjem_truncated_texts", "Texts that lost tokens to a length limit")
_TOTAL = re.compile(rb"(te_request_(?:count|success|failure))_total")


def observe_request(route: str, status: int, seconds: float) -> None:
    """Counts a request by route, and by the error if it was one."""
    _COUNT.labels(route).inc()
    if status < 400:
        _SUCCESS.labels(route).inc()
        _DURATION.observe(seconds)
    else:
        _FAILURE.labels(route, str(status)).inc()


def observe_times(items: int, truncated: int, milliseconds: dict[str, float]) -> None:
    """Takes the times of a list that was scored, by the names in `Scored`."""
    _ITEMS.observe(items)
    _TRUNCATED.inc(truncated)
    for name, metric in _TIMES.items():
        metric.observe(milliseconds[name] / 1000)


def observe_batch(parts: int, tokens: int) -> None:
    """Takes a forward pass."""
    _BATCH_SIZE.observe(parts)
    _BATCH_TOKENS.observe(tokens)


def render() -> bytes:
    """The text format of Prometheus."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    return _TOTAL.sub(rb"\1", generate_latest(registry))
