"""What is measured beside time: memory, counted operations, the machine's peak in matrix products."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from crossjem_pl.inference.timing import milliseconds

_RESET = Path("/proc/self/clear_refs")
_LONGEST = 2.0
"""Seconds that one product may take; larger sizes are left out (emulated bfloat16 is slow)."""


def count_flops(call: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products and attentions of `call`, as torch counts them.

    A multiplication and its addition are two; padding is multiplied like the rest. What is no matrix product
    (embeddings, normalisation, softmax, means) is left out. torch knows no formula for its fused attention on a
    CPU: it gets the one of the other fused attentions. What runs outside of torch (an exported model) counts 0.
    """

    def attention(query: Any, key: Any, value: Any, *_: object, **__: object) -> int:
        return int(sdpa_flop_count(query, key, value))

    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with FlopCounterMode(display=False, custom_mapping={fused: attention}) as counter:
        call()
    return counter.get_total_flops()


def matrix_peak(device: torch.device, precision: str, repeats: int = 5) -> float:
    """Floating-point operations a second of the fastest square matrix product, in this precision.

    n x n products take 2 n^3 operations; n = 512, 1024 and 2048 on a CPU, 2048 to 16384 on a GPU, the best of
    `repeats` each, with as many threads as torch uses now. float32 is what torch multiplies by default (no TF32).
    """
    dtype = getattr(torch, precision)
    sizes = (512, 1024, 2048) if device.type == "cpu" else (2048, 4096, 8192, 16384)
    best = 0.0
    for n in sizes:
        if best and 2 * n**3 / best > _LONGEST:
            break
        a = torch.randn(n, n, device=device).to(dtype)
        a @ a
        seconds = min(milliseconds(lambda x: x @ x, a) for _ in range(repeats)) / 1000
        best = max(best, 2 * n**3 / seconds)
    return best


class MemoryMeter:
    """Peak memory since the meter was made, minus what was in use then, in MiB.

    On a CPU: VmHWM of /proc/self/status (Linux) minus the resident size at the start. It is exact in a fresh
    process only: memory that an allocator has kept from earlier work does not count as growth. On a GPU: torch's
    own peak of allocated memory.

    Raises:
        OSError: on a CPU, if the system has no /proc/self/status.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self.start = torch.cuda.memory_allocated(device) / 2**20
            return
        with suppress(OSError):  # not allowed everywhere; a fresh process has hardly been larger than now
            _RESET.write_text("5", encoding="ascii")  # sets the high-water mark back to the present size
        self.start = resident("VmRSS")

    def growth(self) -> float:
        """MiB beyond the start, at the worst moment so far."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20 - self.start
        return max(resident("VmHWM") - self.start, 0.0)


def resident(field: str, process: int | str = "self") -> float:
    """MiB of a field of /proc/<process>/status: VmRSS, resident now; VmHWM, at most so far; 0 of one that has ended.

    Raises:
        OSError: if there is no such file: the process is gone, or the system is no Linux.
    """
    path = Path(f"/proc/{process}/status")
    if not path.exists():
        raise OSError(f"memory is read from {path}, which is not there")
    lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0) / 1024
