"""Ranking losses: pure masked functions, each with a thin `RankingLoss` module that `LOSSES` names."""

from crossjem_pl.losses.base import LOSSES, RankingLoss
from crossjem_pl.losses.contrastive import CoRAL, InfoNCE, coral, in_batch_info_nce, info_nce
from crossjem_pl.losses.listwise import (
    ApproxDiscountedRankMSE,
    KLDivergence,
    LambdaLoss,
    ListMLE,
    ListNet,
    Poly1CrossEntropy,
    PositionAwareListMLE,
    SoftmaxCrossEntropy,
    approx_discounted_rank_mse,
    kl_divergence,
    lambda_loss,
    list_mle,
    list_net,
    poly1_cross_entropy,
    position_aware_list_mle,
    softmax_cross_entropy,
)
from crossjem_pl.losses.pairwise import MarginMSE, RankNet, margin_mse, ranknet
from crossjem_pl.losses.pointwise import (
    BinaryCrossEntropy,
    MeanSquaredError,
    binary_cross_entropy,
    mean_squared_error,
)
from crossjem_pl.losses.ranking_probability import RankingProbabilityLoss, ranking_probability_loss

__all__ = [
    "LOSSES",
    "ApproxDiscountedRankMSE",
    "BinaryCrossEntropy",
    "CoRAL",
    "InfoNCE",
    "KLDivergence",
    "LambdaLoss",
    "ListMLE",
    "ListNet",
    "MarginMSE",
    "MeanSquaredError",
    "Poly1CrossEntropy",
    "PositionAwareListMLE",
    "RankNet",
    "RankingLoss",
    "RankingProbabilityLoss",
    "SoftmaxCrossEntropy",
    "approx_discounted_rank_mse",
    "binary_cross_entropy",
    "coral",
    "in_batch_info_nce",
    "info_nce",
    "kl_divergence",
    "lambda_loss",
    "list_mle",
    "list_net",
    "margin_mse",
    "mean_squared_error",
    "poly1_cross_entropy",
    "position_aware_list_mle",
    "ranking_probability_loss",
    "ranknet",
    "softmax_cross_entropy",
]
