"""The machine's peak in matrix products, measured: what a model's share of it is a share of."""

from __future__ import annotations

import torch

from benchmarks.measuring.clock import milliseconds

__all__ = ["matrix_peak"]

_LONGEST = 2.0
"""Seconds that one product may take; larger sizes are left out (emulated bfloat16 is slow)."""


def matrix_peak(device: torch.device, precision: str, repeats: int = 5) -> float:
    """Floating-point operations a second of the fastest square matrix product, in this precision.

    n x n products take 2 n^3 operations; n = 512, 1024 and 2048 on a CPU, 2048 to 16384 on an accelerator, the
    best of `repeats` each, with as many threads as torch uses now. float32 is what torch multiplies by default
    (no TF32).
    """
    dtype = getattr(torch, precision)
    sizes = (512, 1024, 2048) if device.type == "cpu" else (2048, 4096, 8192, 16384)
    best = 0.0
    for n in sizes:
        if best and 2 * n**3 / best > _LONGEST:
            break
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        a @ b
        for _ in range(repeats):
            seconds = milliseconds(lambda a=a, b=b: a @ b, device) / 1000  # type: ignore[misc]
            best = max(best, 2 * n**3 / seconds)
    return best
