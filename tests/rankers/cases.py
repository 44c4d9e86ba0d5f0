"""One row per ranker: how the contract tests build a tiny one."""

from __future__ import annotations

from collections.abc import Callable
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
PASS: dict[str, Any] = {"max_union_tokens": 128, "dropout": 0.0, **LIMITS}

CASES: dict[str, Callable[[Path], Ranker]] = {
    "ahead": lambda models: Ahead(str(models / "bert"), upper_layers=1, dropout=0.0, **LIMITS),
    "ahead-late-linear": lambda models: Ahead(
        str(models / "bert"), LinearHead(positions=True), upper_layers=0, dropout=0.0, **LIMITS
    ),
    "bm25": lambda models: BM25(),
    "cascade": lambda models: Cascade(
        CrossJEM(str(models / "bert"), **PASS), MonoBERT(str(models / "bert"), **LIMITS), k=3
    ),
    "cascade-bm25": lambda models: Cascade(BM25(), DPR(str(models / "bert"), **LIMITS), k=2),
    "crossjem": lambda models: CrossJEM(str(models / "bert"), **PASS),
    "crossjem-positional": lambda models: CrossJEM(str(models / "bert"), form="paper-positional", **PASS),
    "crossjem-best": lambda models: CrossJEM(str(models / "bert"), form="best", **PASS),
    "crossjem-query": lambda models: CrossJEM(
        str(models / "bert"), form="best-query", item_side_layers=0, **PASS
    ),
    "meb": lambda models: MEB(buckets=4096),
    "rankt5": lambda models: RankT5(str(models / "t5"), dropout=0.0, pairs_per_pass=7, **LIMITS),
    "rankt5-encoder": lambda models: RankT5(str(models / "t5"), "encoder", dropout=0.0, **LIMITS),
    "monot5": lambda models: MonoT5(str(models / "t5"), dropout=0.0, layers=1, **LIMITS),
    "rankinggpt": lambda models: RankingGPT(str(models / "gpt"), pairs_per_pass=7, **LIMITS),
    "setencoder": lambda models: SetEncoder(str(models / "bert"), dropout=0.0, **LIMITS),
    "sharedquery": lambda models: SharedQuery(str(models / "bert"), dropout=0.0, **LIMITS),
    "sharedquery-linear-restart": lambda models: SharedQuery(
        str(models / "bert"), "linear", item_positions="restart", dropout=0.0, **LIMITS
    ),
    "monobert": lambda models: MonoBERT(str(models / "bert"), dropout=0.0, **LIMITS),
    "dpr": lambda models: DPR(str(models / "bert"), dropout=0.0, **LIMITS),
    "dpr-shared-mean-cosine-prompts-projection": lambda models: DPR(
        str(models / "bert"),
        "mean",
        shared=True,
        normalize=True,
        projections=[{"size": 24, "activation": "tanh", "layer_norm": True}, {"residual": True}],
        query_prompt="find: ",
        item_prompt="shop: ",
        dropout=0.0,
        **LIMITS,
    ),
    "ance": lambda models: ANCE(str(models / "bert"), dropout=0.0, **LIMITS),
    "twinbert": lambda models: TwinBERT(str(models / "bert"), dropout=0.0, **LIMITS),
    "twinbert-residual-cls": lambda models: TwinBERT(
        str(models / "bert"), "cls", "residual", dimension=24, dropout=0.0, **LIMITS
    ),
    "instructor": lambda models: Instructor(
        str(models / "bert"), "find the shop for: ", "the shop: ", texts_per_pass=5, dropout=0.0, **LIMITS
    ),
    "coral": lambda models: CoRALRanker(
        str(models / "bert"), query_layers=1, dimension=16, dropout=0.0, **LIMITS
    ),
    "coral-frozen-query": lambda models: CoRALRanker(
        str(models / "bert"),
        query_encoder=str(models / "bert"),
        freeze_query=True,
        query_projection=False,
        dropout=0.0,
        **LIMITS,
    ),
    "colbert": lambda models: ColBERT(
        str(models / "bert"), dimension=16, query_marker="a", item_marker="b", dropout=0.0, **LIMITS
    ),
    "colbert-no-augmentation": lambda models: ColBERT(
        str(models / "bert"), query_length=0, scale=0.5, dropout=0.0, **LIMITS
    ),
}
"""Name -> builder; the part of the name before the first dash is the ranker's name in the registry."""
