"""All rankers behind one contract. Importing this package fills the registry `RANKERS`."""

from crossjem_pl.rankers.ance import ANCE
from crossjem_pl.rankers.base import RANKERS, Batch, Ranker
from crossjem_pl.rankers.bm25 import BM25
from crossjem_pl.rankers.colbert import ColBERT
from crossjem_pl.rankers.coral import CoRALRanker
from crossjem_pl.rankers.crossjem import CrossJEM
from crossjem_pl.rankers.dpr import DPR
from crossjem_pl.rankers.dual import DualRanker
from crossjem_pl.rankers.heads import LinearHead, MatchHead, MaxSimHead, QueryHead, ScoringHead
from crossjem_pl.rankers.instructor import Instructor
from crossjem_pl.rankers.meb import MEB
from crossjem_pl.rankers.monobert import MonoBERT
from crossjem_pl.rankers.monot5 import MonoT5
from crossjem_pl.rankers.rankinggpt import RankingGPT
from crossjem_pl.rankers.rankt5 import RankT5
from crossjem_pl.rankers.setencoder import SetEncoder
from crossjem_pl.rankers.sharedquery import SharedQuery
from crossjem_pl.rankers.twinbert import TwinBERT

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
