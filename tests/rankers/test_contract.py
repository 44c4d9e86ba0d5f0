"""The contract that every ranker of the registry keeps."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import RANKERS, Ranker
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from tests.conftest import example_lists
from tests.rankers.cases import CASES

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module", params=sorted(CASES))
def ranker(request: pytest.FixtureRequest, tiny_models_folder: Path, lists: list[RankingList]) -> Ranker:
    torch.manual_seed(0)
    built = CASES[request.param](tiny_models_folder)
    built.index_items(text for one in lists for text in one.items)
    return built.eval()


@torch.no_grad()
def scores(ranker: Ranker, lists: list[RankingList]) -> list[torch.Tensor]:
    batch = ranker.collate(lists)
    out = ranker(batch)
    assert out.dtype == torch.float32
    assert out.shape == batch.item_mask.shape == (len(lists), max(map(len, lists)))
    assert torch.isfinite(out).all()
    assert not out[~batch.item_mask].any(), "padding has score 0"
    return [row[: len(one)] for row, one in zip(out, lists, strict=True)]


def test_every_ranker_of_the_registry_has_a_row() -> None:
    assert {name.split("-")[0] for name in CASES} == set(RANKERS)


def test_padding_and_batch_composition_do_not_matter(ranker: Ranker, lists: list[RankingList]) -> None:
    together = scores(ranker, lists)
    for i, one in enumerate(lists):
        torch.testing.assert_close(together[i], scores(ranker, [one])[0], **TOLERANCE)
    backwards = scores(ranker, lists[::-1])[::-1]
    for a, b in zip(together, backwards, strict=True):
        torch.testing.assert_close(a, b, **TOLERANCE)


def test_permuting_the_items_permutes_the_scores(ranker: Ranker, lists: list[RankingList]) -> None:
    if not type(ranker).equivariant:
        assert type(ranker).__doc__ is not None
        assert "order" in type(ranker).__doc__, "a ranker that depends on the item order says so"
        return
    for one in lists:
        order = torch.randperm(len(one), generator=torch.Generator().manual_seed(3))
        permuted = scores(ranker, [one.select(order.tolist())])[0]
        torch.testing.assert_close(scores(ranker, [one])[0][order], permuted, **TOLERANCE)


def test_every_ranker_collates_in_a_worker_process(
    tiny_models_folder: Path, lists: list[RankingList]
) -> None:
    rankers = [build(tiny_models_folder).eval() for build in CASES.values()]
    calls = [partial(pickle.loads(pickle.dumps(ranker.collate)), lists[:3]) for ranker in rankers]
    loader = DataLoader(calls, batch_size=None, collate_fn=lambda call: call(), num_workers=1)  # type: ignore[arg-type, var-annotated]
    for ranker, batch in zip(rankers, loader, strict=True):
        torch.testing.assert_close(ranker(batch), ranker(ranker.collate(lists[:3])), **TOLERANCE)


def test_a_saved_ranker_scores_the_same(ranker: Ranker, lists: list[RankingList], tmp_path: Path) -> None:
    save_ranker(ranker, tmp_path / "model")
    assert (tmp_path / "model" / "config.json").exists()
    again = load_ranker(str(tmp_path / "model")).eval()
    for a, b in zip(scores(ranker, lists), scores(again, lists), strict=True):
        torch.testing.assert_close(a, b, **TOLERANCE)
    save_ranker(again, tmp_path / "second")
    third = load_ranker(str(tmp_path / "second")).eval()
    torch.testing.assert_close(scores(third, lists)[0], scores(ranker, lists)[0], **TOLERANCE)


def test_gradients_reach_the_parameters(ranker: Ranker, lists: list[RankingList]) -> None:
    parameters = [p for p in ranker.parameters() if p.requires_grad]
    assert bool(parameters) == type(ranker).trainable
    if not parameters:
        return
    ranker.zero_grad()
    batch = ranker.collate(lists)
    out = ranker(batch)
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    # the token embeddings of tokens that do not occur get none, every other tensor gets some
    missing = [n for n, p in ranker.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing
    assert all(torch.isfinite(p.grad).all() for p in parameters if p.grad is not None)
    ranker.zero_grad()


def test_overfits_eight_lists(
    ranker: Ranker, tiny_models_folder: Path, request: pytest.FixtureRequest
) -> None:
    if not type(ranker).trainable:
        assert not any(p.requires_grad for p in ranker.parameters())
        return
    torch.manual_seed(0)
    name = request.node.callspec.params["ranker"]
    fresh = CASES[name](tiny_models_folder).train()
    few = example_lists(8, seed=5, most_items=5)
    batch = fresh.collate(few)
    best = torch.tensor([one.labels.index(1.0) for one in few if one.labels])
    optimizer = torch.optim.AdamW([p for p in fresh.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(300):
        out = fresh(batch).masked_fill(~batch.item_mask, -torch.inf)
        if torch.equal(out.argmax(-1), best):
            break
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(out, best).backward()
        optimizer.step()
    assert torch.equal(out.argmax(-1), best), "MRR is not 1.0"


def test_names_the_list_and_field_of_a_text_without_tokens(ranker: Ranker) -> None:
    blank = "\u200b\u200d"  # not white space to Python, nothing to a tokenizer
    one = RankingList("q7", "red shoes", ("a", "b"), ("blue boots", blank))
    if not hasattr(ranker, "tokenizer"):
        return
    with pytest.raises(ValueError, match=r"'q7'.*'items'.*no tokens"):
        ranker.collate([one])


def test_equal_items_tie_exactly(ranker: Ranker) -> None:
    """However many items stand between them; but for the Set-Encoder, to which each is one more item to see."""
    texts = [text for one in example_lists(6, seed=2, most_items=8) for text in one.items]
    one = RankingList.from_texts("red shoes", [*texts, "sofa lamp", *texts[::-1]])
    (row,) = scores(ranker, [one])
    tolerance = 1e-5 if ranker.name == "setencoder" else 0.0
    torch.testing.assert_close(row[: len(texts)], row[len(texts) + 1 :].flip(0), rtol=0, atol=tolerance)
