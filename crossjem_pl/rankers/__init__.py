"""All rankers behind one contract. Importing this package fills the registry `RANKERS`."""

from crossjem_pl.rankers.base import RANKERS, Batch, Ranker
from crossjem_pl.rankers.crossjem.heads import LinearHead, MatchHead, MaxSimHead, QueryHead, ScoringHead
from crossjem_pl.rankers.crossjem.model import CrossJEM
from crossjem_pl.rankers.dual.ance import ANCE
from crossjem_pl.rankers.dual.colbert import ColBERT
from crossjem_pl.rankers.dual.coral import CoRALRanker
from crossjem_pl.rankers.dual.dpr import DPR
from crossjem_pl.rankers.dual.dual import DualRanker
from crossjem_pl.rankers.dual.instructor import Instructor
from crossjem_pl.rankers.dual.twinbert import TwinBERT
from crossjem_pl.rankers.pairwise.monobert import MonoBERT
from crossjem_pl.rankers.pairwise.monot5 import MonoT5
from crossjem_pl.rankers.pairwise.rankinggpt import RankingGPT
from crossjem_pl.rankers.pairwise.rankt5 import RankT5
from crossjem_pl.rankers.pairwise.setencoder import SetEncoder
from crossjem_pl.rankers.pairwise.sharedquery import SharedQuery
from crossjem_pl.rankers.sparse.bm25 import BM25
from crossjem_pl.rankers.sparse.meb import MEB

__all__ = [
    "ANCE",
    "BM25",
    "DPR",
    "MEB",
    "RANKERS",
    "Batch",
    "CoRALRanker",
    "ColBERT",
    "CrossJEM",
    "DualRanker",
    "Instructor",
    "LinearHead",
    "MatchHead",
    "MaxSimHead",
    "MonoBERT",
    "MonoT5",
    "QueryHead",
    "RankT5",
    "Ranker",
    "RankingGPT",
    "ScoringHead",
    "SetEncoder",
    "SharedQuery",
    "TwinBERT",
]
