"""The LightningModule and the callbacks that make a run reproducible and leave its results on disk."""

from crossjem_pl.training.callbacks import AverageWithStart, RandomState
from crossjem_pl.training.module import RankingModule
from crossjem_pl.training.run_folder import RunFolder

__all__ = ["AverageWithStart", "RandomState", "RankingModule", "RunFolder"]
