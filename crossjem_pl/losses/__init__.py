"""Ranking losses, imported when they are asked for: whoever trains with one imports no other.

Every one is called with scores and targets, floating point [lists, items], and a mask, bool [lists, items] and True on
items, and gives a scalar; `InBatchInfoNCE` takes vectors in place of scores.
"""

from importlib import import_module
from typing import Any

from crossjem_pl.losses.base import RankingLoss, VectorLoss

_MODULES = {
    "pointwise": ("BinaryCrossEntropy", "MeanSquaredError"),
    "pairwise": ("MarginMSE", "RankNet"),
    "listwise": (
        "ApproxDiscountedRankMSE",
        "KLDivergence",
        "LambdaLoss",
        "ListMLE",
        "ListNet",
        "Poly1CrossEntropy",
        "PositionAwareListMLE",
        "SoftmaxCrossEntropy",
    ),
    "contrastive": ("CoRAL", "InBatchInfoNCE", "InfoNCE"),
    "ranking_probability": ("RankingProbabilityLoss",),
    "combined": ("Sum",),
}
LOSSES = {name: module for module, names in _MODULES.items() for name in names}
"""Class of every loss -> its module in this package."""

__all__ = ["LOSSES", "RankingLoss", "VectorLoss", *LOSSES]


def __getattr__(name: str) -> Any:
    if name not in LOSSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LOSSES[name]}"), name)
