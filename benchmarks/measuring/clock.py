"""Wall-clock time of a call, the accelerator's work included."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

__all__ = ["milliseconds", "synchronise"]


def synchronise(device: torch.device) -> None:
    """Waits until the device has done what it was given; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def milliseconds(call: Callable[[], object], device: torch.device) -> float:
    """How long `call` takes, from an idle device to an idle device."""
    synchronise(device)
    start = time.perf_counter()
    call()
    synchronise(device)
    return 1000 * (time.perf_counter() - start)
