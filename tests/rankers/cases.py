"""One row per ranker: how the contract tests build a tiny one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crossjem_pl.rankers import CrossJEM, MaxSimHead, MonoBERT, QueryHead, Ranker

LIMITS = {"max_query_tokens": 16, "max_item_tokens": 16}

CASES: dict[str, Callable[[Path], Ranker]] = {
    "crossjem": lambda models: CrossJEM(str(models / "bert"), max_union_tokens=128, dropout=0.0, **LIMITS),
    "crossjem-query-item-layer": lambda models: CrossJEM(
        str(models / "bert"), QueryHead(), 1, "shared", max_union_tokens=128, dropout=0.0, **LIMITS
    ),
    "crossjem-maxsim": lambda models: CrossJEM(
        str(models / "bert"), MaxSimHead(linear=True), 0, "shared", max_union_tokens=128, dropout=0.0, **LIMITS
    ),
    "monobert": lambda models: MonoBERT(str(models / "bert"), dropout=0.0, **LIMITS),
}
"""Name -> builder; the part of the name before the first dash is the ranker's name in the registry."""
