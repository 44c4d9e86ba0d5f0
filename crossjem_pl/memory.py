"""Memory of a process that computes for hours: what was freed goes back to the system."""

from __future__ import annotations

import ctypes
import os
import time

__all__ = ["release_freed", "small_kernel_cache"]

_released = time.process_time()


def release_freed(seconds: float) -> None:
    """Gives freed memory back to the system, once in `seconds` of CPU time; only glibc needs it and can.

    Tensors of ever new sizes leave holes in glibc's heap, which it would keep: memory would grow for hours. Giving it
    back takes milliseconds, and the pages are fetched anew when they are used again.
    """
    global _released
    now = time.process_time()
    if now - _released < seconds:
        return
    _released = now
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        return
    trim(0)


def small_kernel_cache() -> None:
    """Lets oneDNN keep 128 kernels and not 1,024, if the environment says nothing; before the first of them is made.

    A kernel fits one shape. In bfloat16 a training that meets ever new shapes would fill a gigabyte with them.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
