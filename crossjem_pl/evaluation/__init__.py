"""Metrics, significance tests, comparisons and reports."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "Comparison": "comparison",
    "Evaluation": "metrics",
    "RankingMetrics": "metrics",
    "build_report": "report",
    "compare": "report",
    "compare_runs": "comparison",
    "evaluate_run": "metrics",
    "register_metric": "metrics",
    "write_report": "report",
}
"""Imported when asked for: monitoring needs neither pandas nor what writes pages."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
