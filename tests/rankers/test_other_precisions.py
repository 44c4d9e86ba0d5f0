"""Rankers whose contract is float32 scores, run in bfloat16: under autocast, and with bfloat16 weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conftest import example_lists
from tests.rankers.cases import CASES

NAMES = ("meb", "rankinggpt", "rankt5", "rankt5-encoder", "monot5", "setencoder", "sharedquery")


@torch.no_grad()
@pytest.mark.parametrize("name", [*NAMES, "sharedquery-linear-restart"])
def test_bfloat16_gives_float32_scores_close_to_the_exact(name: str, tiny_models_folder: Path) -> None:
    torch.manual_seed(0)
    ranker = CASES[name](tiny_models_folder).eval()
    batch = ranker.collate(example_lists(3))
    exact = ranker(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = ranker(batch)
    low = ranker.bfloat16()(batch)
    for scores in (mixed, low):
        assert scores.dtype == torch.float32
        torch.testing.assert_close(scores, exact, rtol=0.1, atol=0.1)
