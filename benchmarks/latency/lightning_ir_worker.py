"""Times lightning-ir on lists that come as JSON lines; runs in an environment of its own, without this package.

    python lightning_ir_worker.py ENCODER DEVICE THREADS

Prints {"version"} when it is ready, then {"milliseconds"} for each line {"queries", "items"}.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch


def load(encoder: str, device: str) -> Any:
    """lightning-ir's pointwise cross-encoder on `encoder`, [CLS] and a linear layer."""
    package = importlib.import_module("lightning_ir")
    config = importlib.import_module("lightning_ir.models").MonoConfig(pooling_strategy="first")
    return package.CrossEncoderModule(encoder, config).eval().to(device)


def rank(module: Any, queries: Sequence[str], items: Sequence[Sequence[str]]) -> list[list[int]]:
    """The places of each query's items, best first."""
    with torch.inference_mode():
        scores = module.score(queries, items).scores.float().cpu()
    own = scores.split([len(texts) for texts in items])
    return [torch.argsort(one, descending=True, stable=True).tolist() for one in own]


def main(argv: Sequence[str]) -> None:
    """Answers on standard output; libraries that print there are sent to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    torch.set_num_threads(int(argv[2]))
    module = load(argv[0], argv[1])
    print(json.dumps({"version": importlib.metadata.version("lightning-ir")}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        rank(module, request["queries"], request["items"])
        elapsed = 1000 * (time.perf_counter() - start)
        print(json.dumps({"milliseconds": elapsed}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
