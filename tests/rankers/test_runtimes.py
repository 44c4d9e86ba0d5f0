"""Rankers in bfloat16 (under autocast, and with bfloat16 weights), and as ONNX graphs for lists of other sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from crossjem_pl.inference.export.ranker import load_exported
from crossjem_pl.inference.export.write import export_ranker
from tests import tiny_models
from tests.conftest import example_lists
from tests.rankers.cases import CASES

NAMES = (
    *("ahead", "crossjem-positional", "crossjem-query", "crossjem-best", "meb", "rankinggpt", "rankt5"),
    *("rankt5-encoder", "monot5", "setencoder", "sharedquery", "sharedquery-linear-restart"),
)


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_gives_float32_scores_close_to_the_exact(name: str, tiny_models_folder: Path) -> None:
    torch.manual_seed(0)
    ranker = CASES[name](tiny_models_folder).eval()
    batch = ranker.collate(example_lists(3))
    exact = ranker(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = ranker(batch)
    for scores in (mixed, ranker.bfloat16()(batch)):
        assert scores.dtype == torch.float32
        torch.testing.assert_close(scores, exact, rtol=0.1, atol=0.1)


@torch.no_grad()
@pytest.mark.parametrize("name", ["ahead", "sharedquery", "rankt5", "rankinggpt"])
def test_an_exported_ranker_scores_the_same(name: str, tmp_path: Path) -> None:
    """Of as few layers as it may have: tracing takes seconds for each."""
    pytest.importorskip("onnxruntime")
    tiny_models.write_bert(tmp_path / "bert", layers=2 if name == "ahead" else 1)
    tiny_models.write_t5(tmp_path / "t5", layers=1)
    tiny_models.write_gpt(tmp_path / "gpt", layers=1)
    torch.manual_seed(0)
    ranker = CASES[name](tmp_path).eval()
    export_ranker(ranker, tmp_path / name)
    exported = load_exported(tmp_path / name)
    for lists in (example_lists(3, seed=7, most_items=20), example_lists(1, seed=8, most_items=3)):
        scores = exported(exported.collate(lists))
        torch.testing.assert_close(scores, ranker(ranker.collate(lists)), rtol=1e-5, atol=1e-5)
