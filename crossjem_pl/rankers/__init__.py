"""All rankers behind one contract. Importing this package fills the registry `RANKERS`."""

from crossjem_pl.rankers.base import RANKERS, Batch, Ranker
from crossjem_pl.rankers.crossjem import CrossJEM
from crossjem_pl.rankers.heads import LinearHead, MaxSimHead, QueryHead, ScoringHead
from crossjem_pl.rankers.monobert import MonoBERT

__all__ = [
    "RANKERS",
    "Batch",
    "CrossJEM",
    "LinearHead",
    "MaxSimHead",
    "MonoBERT",
    "QueryHead",
    "Ranker",
    "ScoringHead",
]
