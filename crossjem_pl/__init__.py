"""Fast and accurate re-ranking of short texts: CROSS-JEM and its baselines on PyTorch Lightning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossjem_pl.inference import Reranker
    from crossjem_pl.lists import RankingList

__all__ = ["RankingList", "Reranker"]
__version__ = "0.2.0"

_MODULES = {"RankingList": "crossjem_pl.lists", "Reranker": "crossjem_pl.inference"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # imported when it is asked for, so that the command line answers at once
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
