"""`crossjem serve`: a model over HTTP."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec

from crossjem_pl.cli.command import passes_on
from crossjem_pl.serving import ServingOptions

__all__ = ["serve"]


@passes_on(ServingOptions, "api_key", "model_names")
def serve(
    model: str = "packaged:all-MiniLM-L6-v2",
    *,
    api_key_env: str | None = None,
    model_name: Sequence[str] = (),
    **options: object,
) -> None:
    """Answers rerank requests over HTTP.

    Args:
        model: model folder, hub repository or exported model; by default the packaged sentence encoder.
        api_key_env: environment variable that holds the key clients must send.
        model_name: name of the model in requests; repeatable.
    """
    for name in ("fastapi", "uvicorn", "httptools", "uvloop", "prometheus_client"):
        if find_spec(name) is None:
            raise ImportError(f"{name} is not installed: pip install 'crossjem_pl[serve]'")
    from crossjem_pl.serving.workers import serve as run

    key = None if api_key_env is None else os.environ.get(api_key_env)
    if api_key_env is not None and not key:
        raise ValueError(f"--api-key-env {api_key_env}: this environment variable is not set")
    run(ServingOptions(model, api_key=key, model_names=tuple(model_name), **options))  # type: ignore[arg-type]
