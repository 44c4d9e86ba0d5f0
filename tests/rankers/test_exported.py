"""Rankers of pairs and of packed lists as ONNX graphs, for lists of other sizes than those traced."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from crossjem_pl.inference.export.ranker import load_exported
from crossjem_pl.inference.export.write import export_ranker
from tests.conftest import example_lists
from tests.rankers.cases import CASES

pytest.importorskip("onnxruntime")


@torch.no_grad()
@pytest.mark.parametrize("name", ["sharedquery", "setencoder", "rankt5", "rankinggpt"])
def test_an_exported_ranker_scores_the_same(name: str, tiny_models_folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    ranker = CASES[name](tiny_models_folder).eval()
    export_ranker(ranker, tmp_path / name)
    exported = load_exported(tmp_path / name)
    for lists in (example_lists(3, seed=7, most_items=20), example_lists(1, seed=8, most_items=3)):
        scores = exported(exported.collate(lists))
        torch.testing.assert_close(scores, ranker(ranker.collate(lists)), rtol=1e-5, atol=1e-5)
