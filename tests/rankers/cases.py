"""One row per ranker: how the contract tests build a tiny one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from crossjem_pl.rankers import (
    ANCE,
    BM25,
    DPR,
    MEB,
    Ahead,
    Cascade,
    ColBERT,
    CoRALRanker,
    CrossJEM,
    Instructor,
    LinearHead,
    MonoBERT,
    MonoT5,
    Ranker,
    RankingGPT,
    RankT5,
    SetEncoder,
    SharedQuery,
    TwinBERT,
)

LIMITS: dict[str, Any] = {"max_query_tokens": 16, "max_item_tokens": 16}
PASS: dict[str, Any] = {"max_union_tokens": 128, "dropout": 0.0}


def of(family: str, kind: Callable[..., Ranker], *arguments: Any, **options: Any) -> Callable[[Path], Ranker]:
    """The builder of a ranker on the tiny encoder of a family."""
    return lambda models: kind(str(models / family), *arguments, **options, **LIMITS)


bert, t5, gpt = (partial(of, family) for family in ("bert", "t5", "gpt"))
CASES: dict[str, Callable[[Path], Ranker]] = {
    "ahead": bert(Ahead, upper_layers=1, dropout=0.0),
    "ahead-late-linear": bert(Ahead, LinearHead(positions=True), upper_layers=0, dropout=0.0),
    "bm25": lambda models: BM25(),
    "cascade": lambda models: Cascade(bert(CrossJEM, **PASS)(models), bert(MonoBERT)(models), k=3),
    "cascade-bm25": lambda models: Cascade(BM25(), bert(DPR)(models), k=2),
    "crossjem": bert(CrossJEM, **PASS),
    "crossjem-positional": bert(CrossJEM, form="paper-positional", **PASS),
    "crossjem-best": bert(CrossJEM, form="best", **PASS),
    "crossjem-query": bert(CrossJEM, form="best-query", item_side_layers=0, **PASS),
    "meb": lambda models: MEB(buckets=4096),
    "rankt5": t5(RankT5, dropout=0.0, pairs_per_pass=7),
    "rankt5-encoder": t5(RankT5, "encoder", dropout=0.0),
    "monot5": t5(MonoT5, dropout=0.0, layers=1),
    "rankinggpt": gpt(RankingGPT, pairs_per_pass=7),
    "setencoder": bert(SetEncoder, dropout=0.0),
    "sharedquery": bert(SharedQuery, dropout=0.0),
    "sharedquery-linear-restart": bert(SharedQuery, "linear", item_positions="restart", dropout=0.0),
    "monobert": bert(MonoBERT, dropout=0.0),
    "dpr": bert(DPR, dropout=0.0),
    "dpr-shared-mean-cosine-prompts-projection": bert(
        DPR,
        "mean",
        shared=True,
        normalize=True,
        projections=[{"size": 24, "activation": "tanh", "layer_norm": True}, {"residual": True}],
        query_prompt="find: ",
        item_prompt="shop: ",
        dropout=0.0,
    ),
    "ance": bert(ANCE, dropout=0.0),
    "twinbert": bert(TwinBERT, dropout=0.0),
    "twinbert-residual-cls": bert(TwinBERT, "cls", "residual", dimension=24, dropout=0.0),
    "instructor": bert(Instructor, "find the shop for: ", "the shop: ", texts_per_pass=5, dropout=0.0),
    "coral": bert(CoRALRanker, query_layers=1, dimension=16, dropout=0.0),
    "coral-frozen-query": lambda models: bert(
        CoRALRanker,
        query_encoder=str(models / "bert"),
        freeze_query=True,
        query_projection=False,
        dropout=0.0,
    )(models),
    "colbert": bert(ColBERT, dimension=16, query_marker="a", item_marker="b", dropout=0.0),
    "colbert-no-augmentation": bert(ColBERT, query_length=0, scale=0.5, dropout=0.0),
}
"""Name -> builder; the part of the name before the first dash is the ranker's name in the registry."""
