"""Wrong arguments of rankers are named, and texts that lose tokens are counted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from crossjem_pl import rankers
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import RANKERS
from tests.rankers import encoder_families
from tests.rankers.cases import CASES

NOT_FINITE = float("nan")
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("ANCE", {"dimension": 0}, "size must be at least 1"),
    ("BM25", {"k1": -1.0}, "must be"),
    ("BM25", {"b": 1.1}, "must be"),
    ("BM25", {"b": NOT_FINITE}, "must be"),
    ("ColBERT", {"query_marker": "[unused7]"}, r"marker '\[unused7\]' is no token"),
    ("ColBERT", {"scale": -1.0}, "scale must be positive"),
    ("ColBERT", {"query_length": -1}, "query_length at least 0"),
    ("ColBERT", {"query_length": 161}, "need 161 positions, the encoder has 160"),
    ("ColBERT", {"max_item_tokens": 159}, "max_item_tokens=159.*need 161 positions"),
    ("CoRALRanker", {"temperature": 0.0}, "temperature must be positive"),
    ("CoRALRanker", {"query_projection": False, "dimension": 8}, "dimension=8, but without query_projection"),
    ("DPR", {"pooling": "last"}, "pooling must be one of"),
    ("DPR", {"scale": 0.0}, "scale must be positive"),
    ("DPR", {"texts_per_pass": 0}, "texts_per_pass must be at least 1"),
    ("DPR", {"max_item_tokens": 160}, r"max_item_tokens=160.*162 positions, the encoder has 160"),
    ("DPR", {"projections": [{"activation": "softsign"}]}, "activation must be one of"),
    ("MEB", {"buckets": 0}, "buckets must be at least 1, got 0"),
    ("MonoBERT", {"item_order": "random"}, "item_order must be one of"),
    ("MonoBERT", {"pairs_per_pass": 0}, "pairs_per_pass must be at least 1, got 0"),
    (
        "MonoBERT",
        {"max_query_tokens": 80, "max_item_tokens": 78},
        r"= ?80 \+ .*=78 \+ 3 .* need 161 .* has 160",
    ),
    ("RankT5", {"encoder": "bert"}, "of the family 'bert'; this ranker takes t5"),
    ("RankT5", {"label_token": "<extra_id_99>"}, "'<extra_id_99>' is not a token of"),
    ("RankT5", {"variant": "decoder"}, "variant must be one of"),
    ("RankT5", {"layers": 5}, "layers=5, but there are 2"),
    ("RankingGPT", {"encoder": "bert"}, "'bert', which is no causal language model"),
    ("RankingGPT", {"max_query_tokens": 128}, r"need \d+ positions, .* has 160"),
    ("RankingGPT", {"lora_rank": -1}, "lora_rank must be at least 0"),
    (
        "SetEncoder",
        {"max_query_tokens": 100, "max_item_tokens": 58},
        "need 161 positions, the encoder has 160",
    ),
    ("SharedQuery", {"head": "maxsim"}, "head must be one of query, linear"),
    ("SharedQuery", {"item_positions": "shared"}, "item_positions must be one of continue, restart"),
    ("SharedQuery", {"max_query_tokens": 128}, "need 163 positions, the encoder has 160"),
    ("SharedQuery", {"attn_implementation": "sdpa"}, "brings its own attention"),
    ("TwinBERT", {"crossing": "mlp"}, "crossing must be one of"),
    *(
        (name, {"max_item_tokns": 7}, "max_item_tokns")
        for name in ("CrossJEM", "MonoBERT", "DPR", "SharedQuery")
    ),
]


@pytest.mark.parametrize(("name", "arguments", "message"), WRONG)
def test_wrong_arguments_are_named(
    name: str, arguments: dict[str, Any], message: str, tiny_models_folder: Path
) -> None:
    model = {"RankT5": "t5", "RankingGPT": "gpt"}.get(name, "bert")
    encoder = {"encoder": tiny_models_folder / arguments.get("encoder", model)}
    given = {name: str(path) for name, path in encoder.items()} if name not in ("BM25", "MEB") else {}
    with pytest.raises(ValueError, match=message):
        getattr(rankers, name)(**{**arguments, **given})


def test_missing_extras_are_named(tiny_models_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"crossjem_pl\[peft\]"):
        rankers.RankingGPT(str(tiny_models_folder / "gpt"), lora_rank=2, max_query_tokens=16)


def test_families_without_planned_attention_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'modernbert'.*distilbert"):
        rankers.SetEncoder(encoder_families.write(tmp_path / "modern", "modernbert"))


def test_families_whose_layers_take_more_than_a_mask_have_no_item_side_layers(tmp_path: Path) -> None:
    """RoFormer's layers have BERT's names, and turn queries and keys by their positions."""
    folder = encoder_families.write(tmp_path / "roformer", "roformer")
    with pytest.raises(ValueError, match=r"take only hidden states and a mask.*RoFormerModel is not one"):
        rankers.CrossJEM(folder, item_side_layers=1, max_query_tokens=8, max_union_tokens=64)


@pytest.mark.parametrize(
    "name", sorted(name for name in CASES if hasattr(RANKERS[name.split("-")[0]], "tokenize"))
)
def test_texts_that_lose_tokens_are_counted(name: str, tiny_models_folder: Path) -> None:
    ranker: Any = CASES[name](tiny_models_folder)
    ranker.max_query_tokens = ranker.max_item_tokens = 3
    lists = [
        RankingList.from_texts("red shoes", ["sofa lamp red boots shoes", "red", "sofa lamp"]),
        RankingList.from_texts("sofa lamp red boots shoes", ["sofa lamp red boots shoes", "red"]),
    ]
    batch = ranker.collate(lists)
    assert (batch.truncated_queries, batch.truncated_items) == (1, 2)
