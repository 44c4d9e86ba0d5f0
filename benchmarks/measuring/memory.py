"""Peak memory of some work, beyond what was there before it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

__all__ = ["MemoryMeter"]

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


class MemoryMeter:
    """Peak memory since the meter was made, minus what was in use then, in MiB.

    On a CPU: VmHWM of /proc/self/status (Linux) minus the resident size at the start. It is honest in a fresh
    process only: memory that an allocator has kept from earlier work does not count as growth. On an accelerator:
    torch's own peak of allocated memory.

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
        self.start = _resident("VmRSS")

    def growth(self) -> float:
        """MiB beyond the start, at the worst moment so far."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20 - self.start
        return max(_resident("VmHWM") - self.start, 0.0)


def _resident(field: str) -> float:
    if not _STATUS.exists():
        raise OSError(f"peak memory is read from {_STATUS}, which this system does not have")
    lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024
