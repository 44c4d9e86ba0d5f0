"""`crossjem serve`: a model over HTTP."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        default="packaged:all-MiniLM-L6-v2",
        help="model folder, hub repository or exported model (default: the packaged sentence encoder)",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    parser.add_argument("--port", type=int, default=8000, help="default 8000; 0 takes a free one")
    parser.add_argument("--device", help="cpu, cuda, ... (default: a GPU if there is one)")
    parser.add_argument("--precision", choices=["float32", "bfloat16", "float16"], help="as in `Reranker`")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the port (default 1)")
    parser.add_argument(
        "--max-batch-tokens", type=int, metavar="T", help="tokens of a shared pass (4096; 65536 on a GPU)"
    )
    parser.add_argument(
        "--max-queue", type=int, default=256, metavar="R", help="requests at once; more get 429 (default 256)"
    )
    parser.add_argument(
        "--max-items", type=int, default=5000, metavar="N", help="items of a request (default 5000)"
    )
    parser.add_argument(
        "--max-body", type=int, default=2_000_000, metavar="BYTES", help="of a request (default 2,000,000)"
    )
    parser.add_argument(
        "--request-timeout", type=float, default=60.0, metavar="S", help="seconds until 504 (default 60)"
    )
    parser.add_argument(
        "--api-key-env", metavar="NAME", help="environment variable that holds the key clients must send"
    )
    parser.add_argument(
        "--model-name", action="append", default=[], metavar="NAME", help="name in requests; repeatable"
    )
    parser.add_argument("--second", metavar="MODEL", help="a second model, served beside the first")
    parser.add_argument("--store", metavar="FOLDER", help="token store: /v1/rank takes its ids")
    parser.add_argument("--log-texts", action="store_true", help="write queries into the log")


def run(args: argparse.Namespace) -> None:
    for name in ("fastapi", "uvicorn", "uvloop", "prometheus_client"):
        if find_spec(name) is None:
            raise ImportError(f"{name} is not installed: pip install 'crossjem_pl[serve]'")
    from crossjem_pl.serving import ServingOptions
    from crossjem_pl.serving.workers import serve

    key = None
    if args.api_key_env is not None:
        key = os.environ.get(args.api_key_env)
        if not key:
            raise ValueError(f"--api-key-env {args.api_key_env}: this environment variable is not set")
    options = {
        name: value
        for name, value in vars(args).items()
        if name not in ("command", "api_key_env", "model_name")
    }
    serve(ServingOptions(**options, api_key=key, model_names=tuple(args.model_name)))
