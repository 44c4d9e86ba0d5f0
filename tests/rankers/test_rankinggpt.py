from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import RankingGPT
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests.conftest import example_lists
from tests.rankers.cases import LIMITS


@pytest.fixture
def gpt(tiny_models_folder: Path) -> str:
    return str(tiny_models_folder / "gpt")


@torch.no_grad()
def test_equals_the_likelihood_of_the_query_prompt_by_prompt(gpt: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(gpt).eval()
    tokenizer = AutoTokenizer.from_pretrained(gpt)
    ranker = RankingGPT(gpt, pairs_per_pass=3, **LIMITS).eval()
    for one in example_lists(3):
        scores = ranker(ranker.collate([one]))[0]
        query = tokenizer.encode(one.query, add_special_tokens=False)
        for score, item in zip(scores, one.items, strict=True):
            context = tokenizer.encode(f"Document: {item} Query:", add_special_tokens=False)
            ids = torch.tensor([context + query])
            logs = model(ids).logits[0].log_softmax(-1)
            expected = torch.stack(
                [logs[len(context) + i - 1, token] for i, token in enumerate(query)]
            ).mean()
            torch.testing.assert_close(score, expected, rtol=1e-5, atol=1e-5)


def test_an_item_that_is_only_its_space_is_named(gpt: str) -> None:
    ranker = RankingGPT(gpt, **LIMITS)
    with pytest.raises(ValueError, match=r"'q9'.*'items'.*no tokens"):
        ranker.collate([RankingList("q9", "red", ("a", "b"), ("boots", "\u200b"))])
    ranker.collate([RankingList("q9", "red", ("a",), ("  boots",))])


def test_dropout_reaches_the_attention(gpt: str) -> None:
    """A Llama has it as a number of its configuration and no module."""
    ranker = RankingGPT(gpt, dropout=0.5, **LIMITS).train()
    batch = ranker.collate(example_lists(1))
    assert not torch.equal(ranker(batch), ranker(batch))
    assert torch.equal(ranker.eval()(batch), ranker(batch))


def test_lora_trains_its_matrices_only(gpt: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    torch.manual_seed(0)
    ranker = RankingGPT(gpt, lora_rank=2, **LIMITS)
    trained = {name for name, p in ranker.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    assert not any("lm_head" in name for name in trained)
    lists = example_lists(3)
    plain = RankingGPT(gpt, **LIMITS).eval()
    torch.testing.assert_close(ranker.eval()(ranker.collate(lists)), plain(plain.collate(lists)))
    optimizer = torch.optim.SGD([p for p in ranker.parameters() if p.requires_grad], lr=1.0)
    for _ in range(2):
        optimizer.zero_grad()
        ranker(ranker.collate(lists)).sum().backward()
        optimizer.step()
    scores = ranker(ranker.collate(lists))
    assert (scores - plain(plain.collate(lists))).abs().max() > 1e-4
    save_ranker(ranker, tmp_path)
    again = load_ranker(str(tmp_path)).eval()
    torch.testing.assert_close(again(again.collate(lists)), scores)
    assert {name for name, p in again.named_parameters() if p.requires_grad} == trained
