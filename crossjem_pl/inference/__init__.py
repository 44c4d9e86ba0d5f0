"""Using a trained ranker."""

from crossjem_pl.inference.reranker import Activation, RankedItem, Reranker

__all__ = ["Activation", "RankedItem", "Reranker"]
