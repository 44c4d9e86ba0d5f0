"""Metrics, significance tests and comparison reports."""

from crossjem_pl.evaluation.compare import compare, compare_runs, write_comparison
from crossjem_pl.evaluation.measures import Evaluation, evaluate_run
from crossjem_pl.evaluation.metrics import RankingMetrics, compute, tie_order
from crossjem_pl.evaluation.results import Comparison, Difference, Example, MetricResult, SystemResult
from crossjem_pl.evaluation.significance import (
    WinTieLoss,
    bootstrap_interval,
    holm,
    randomisation_test,
    t_test,
    win_tie_loss,
)

__all__ = [
    "Comparison",
    "Difference",
    "Evaluation",
    "Example",
    "MetricResult",
    "RankingMetrics",
    "SystemResult",
    "WinTieLoss",
    "bootstrap_interval",
    "compare",
    "compare_runs",
    "compute",
    "evaluate_run",
    "holm",
    "randomisation_test",
    "t_test",
    "tie_order",
    "win_tie_loss",
    "write_comparison",
]
