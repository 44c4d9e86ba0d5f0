"""Model folders written by version 0.1 (commit f314800) load, and score and learn as they did then, in fp32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from crossjem_pl.data.formats import read_lists
from crossjem_pl.rankers.folder import load_ranker

RECORDED = Path(__file__).parent / "recorded"
EXPECTED = json.loads((RECORDED / "expected.json").read_text(encoding="utf-8"))


DROPPED = {"crossjem-maxsim": "union_positions='shared'", "crossjem-query-item-layer": "item layers"}


@pytest.mark.parametrize(("name", "what"), DROPPED.items())
def test_folders_of_dropped_forms_say_which_version_reads_them(name: str, what: str) -> None:
    with pytest.raises(ValueError, match=rf"{what}.*crossjem_pl 0\.1 \(commit f314800\) reads such folders"):
        load_ranker(str(RECORDED / name))


@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - DROPPED))
def test_scores_and_gradients_are_those_recorded(name: str) -> None:
    lists = list(read_lists(RECORDED / "lists.jsonl"))
    ranker = load_ranker(str(RECORDED / name)).eval()
    ranker.index_items(text for one in lists for text in one.items)
    out = ranker(ranker.collate(lists))
    for row, scores in zip(out, EXPECTED[name]["scores"], strict=True):
        torch.testing.assert_close(row[: len(scores)], torch.tensor(scores), rtol=1e-5, atol=1e-5)
    if "gradients" not in EXPECTED[name]:
        return
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    named = {n.replace("item_side_layers", "split_layers.layers"): p for n, p in ranker.named_parameters()}
    norms = {n: float(p.grad.norm()) for n, p in named.items() if p.grad is not None}
    assert norms == pytest.approx(EXPECTED[name]["gradients"], rel=1e-3, abs=1e-5)
