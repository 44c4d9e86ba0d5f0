"""Using a trained ranker."""

from crossjem_pl.inference.reranker import Activation, RankedId, RankedItem, Reranker

__all__ = ["Activation", "RankedId", "RankedItem", "Reranker"]
