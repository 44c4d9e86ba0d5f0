"""Memory: what was freed goes back to the system, and imports and exits take no time to look for garbage."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_no_modules", "importing", "release_freed", "small_kernel_cache"]

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


@contextmanager
def importing() -> Iterator[None]:
    """Imports without the collector of reference cycles: modules hold none, and it takes a fifth of their time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def collect_no_modules() -> None:
    """Lets the process end without looking for cycles in all that it imported, which takes half a second.

    Libraries that count their objects at the end (DuckDB's) would report leaks.
    """
    atexit.register(gc.freeze)
