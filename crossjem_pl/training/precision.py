"""Which training precision pays on this machine."""

from __future__ import annotations

import torch

__all__ = ["best_precision"]


def best_precision() -> str:
    """Lightning's name of the fastest safe precision: "bf16-mixed", "16-mixed" or "32-true".

    bf16 where the hardware multiplies it: GPUs from Ampere on, CPUs with AMX or AVX-512 bf16 (elsewhere it is
    emulated, many times slower than float32); fp16 on older GPUs.
    """
    if torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.get_device_capability() >= (8, 0) else "16-mixed"
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.12 and later
    return "bf16-mixed" if capabilities.get("amx_bf16") or capabilities.get("avx512_bf16") else "32-true"
