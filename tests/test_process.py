"""Freed memory goes back to the system, and no more often than asked."""

from __future__ import annotations

import logging
import os
import platform

import pytest

from benchmarks.measuring import resident
from crossjem_pl import process


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries give memory back by themselves"
)
def test_holes_in_the_heap_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def holes() -> list[bytearray]:
        blocks = [bytearray(b"x" * 60_000) for _ in range(2000)]  # below the size that gets pages of its own
        return blocks[::50]

    kept = holes()
    full = resident("VmRSS")
    process.release_freed(1e9)
    assert resident("VmRSS") > full - 50, "not so soon"
    monkeypatch.setattr(process, "_released", -1.0)
    process.release_freed(0.5)
    assert resident("VmRSS") < full - 80
    assert len(kept) == 40


def test_libraries_are_quietened_once() -> None:
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    process.quiet_libraries()
    before = len(logger.filters)
    process.quiet_libraries()
    assert len(logger.filters) == before


def test_what_the_environment_says_of_kernels_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    monkeypatch.setenv(name, "7")
    process.small_kernel_cache()
    assert os.environ[name] == "7"
    monkeypatch.delenv(name)
    process.small_kernel_cache()
    assert os.environ[name] == "128"
