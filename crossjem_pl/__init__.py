"""Fast and accurate re-ranking of short texts: CROSS-JEM and its baselines on PyTorch Lightning."""

from typing import TYPE_CHECKING, Any

from crossjem_pl.lists import RankingList

if TYPE_CHECKING:
    from crossjem_pl.inference import Reranker

__all__ = ["RankingList", "Reranker"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Reranker":  # torch and transformers load only when they are needed
        from crossjem_pl.inference import Reranker

        return Reranker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
