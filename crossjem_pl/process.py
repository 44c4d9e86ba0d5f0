"""The process: freed memory goes back to the system, libraries are quiet, imports and exits do not look for garbage."""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import os
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collect_no_modules", "importing", "quiet_libraries", "release_freed", "small_kernel_cache"]

_NOISE = (
    ".*args parameter is intended to run from within Python.*",
    ".*Total length of `list` across ranks is zero.*",
    ".*exists and is not empty.*",
    ".*does not have many workers.*",
    ".*isinstance\\(treespec, LeafSpec\\).*",
    ".*predict returned None.*",
    ".*WeightAveraging doesn't support sharding.*",
)
_released = time.process_time()


def _no_advertisement(record: logging.LogRecord) -> bool:
    return not re.search("litlogger|litmodels", record.getMessage())


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


def quiet_libraries() -> None:
    """Hides what libraries print and a user cannot act on. It imports none of them."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # lightning's calls, not the user's
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(_no_advertisement)
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message)
