"""Shared-query ranker and Set-Encoder against one dense attention mask over all tokens of a list."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import SetEncoder, SharedQuery, neural
from crossjem_pl.rankers.encoders import first_position, load_encoder
from crossjem_pl.rankers.pairwise.sharedquery import ItemPositions, SharedQueryHead
from tests.conftest import example_lists
from tests.rankers import encoder_families
from tests.rankers.cases import LIMITS

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def texts(ranker: SharedQuery | SetEncoder, one: RankingList) -> tuple[list[int], list[list[int]]]:
    """Ids of `[CLS] query [SEP]` and of each `item [SEP]`."""
    hf = partial(ranker.tokenizer.hf, add_special_tokens=False, split_special_tokens=False)
    cls, sep = ranker.tokenizer.hf.cls_token, ranker.tokenizer.hf.sep_token
    items = [hf(f"{text} {sep}")["input_ids"] for text in one.items]
    query = hf(f"{cls} {one.query} {sep}")["input_ids"]
    return query, items


def dense_states(
    ranker: SharedQuery | SetEncoder,
    folder: str,
    ids: list[int],
    segments: list[int],
    positions: list[int],
    see: Tensor,
) -> Tensor:
    """Last hidden state of all tokens, where token i sees token j if `see[i, j]`, with eager attention."""
    encoder: Any = load_encoder(folder, {"attn_implementation": "eager", "dropout": 0.0}).eval()
    encoder.load_state_dict(ranker.encoder.model.state_dict(), strict=False)
    inputs = {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([positions]) + first_position(encoder.config),
    }
    if getattr(encoder.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.tensor([segments])
    mask = torch.zeros(see.shape).masked_fill(~see, torch.finfo(torch.float32).min)[None, None]
    return encoder(**inputs, attention_mask=mask).last_hidden_state[0]


def shared_query_scores(ranker: SharedQuery, folder: str, one: RankingList) -> Tensor:
    query, items = texts(ranker, one)
    owner = torch.tensor([0] * len(query) + [j + 1 for j, ids in enumerate(items) for _ in ids])
    first = len(query) if ranker.item_positions == "continue" else 1
    positions = [*range(len(query)), *(first + p for ids in items for p in range(len(ids)))]
    see = (owner[None, :] == 0) | (owner[:, None] == owner[None, :])
    ids = query + [token for item in items for token in item]
    states = dense_states(ranker, folder, ids, (owner > 0).long().tolist(), positions, see)
    mean = states[1 : len(query) - 1].mean(0)
    expected = []
    for item in states[len(query) :].split([len(ids) for ids in items]):
        if isinstance(ranker.head, nn.Linear):
            expected.append(ranker.head(item.mean(0))[0])
        else:
            expected.append(7.0 * F.cosine_similarity(item[:-1].mean(0), mean, dim=0))
    return torch.stack(expected)


def set_encoder_scores(ranker: SetEncoder, folder: str, one: RankingList) -> Tensor:
    query, items = texts(ranker, one)
    pairs = [query + item for item in items]
    owner = torch.tensor([j for j, ids in enumerate(pairs) for _ in ids])
    positions = [p for ids in pairs for p in range(len(ids))]
    segments = [int(p >= len(query)) for p in positions]
    is_cls = torch.tensor(positions) == 0
    see = is_cls[None, :] | (owner[:, None] == owner[None, :])
    ids = [token for pair in pairs for token in pair]
    return ranker.classifier(dense_states(ranker, folder, ids, segments, positions, see)[is_cls])[:, 0]


@torch.no_grad()
@pytest.mark.parametrize("family", encoder_families.FAMILIES)
def test_equals_one_dense_attention_mask(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the number of runs."""
    folder = encoder_families.write(tmp_path / family, family)
    lists = [*example_lists(3, seed=4, most_items=5), *example_lists(1, seed=5, most_items=40)]
    rankers = [
        SharedQuery(folder, head, 7.0, positions, dropout=0.0, **LIMITS)
        for head in get_args(SharedQueryHead)
        for positions in get_args(ItemPositions)
    ]
    for ranker in (*rankers, SetEncoder(folder, dropout=0.0, **LIMITS)):
        literal: Any = set_encoder_scores if isinstance(ranker, SetEncoder) else shared_query_scores
        expected = [literal(ranker.eval(), folder, one) for one in lists]
        for tokens_per_run in (1, 60, 10_000):
            monkeypatch.setattr(neural, "_TOKENS_PER_RUN", tokens_per_run)
            batch = ranker.collate(lists)
            assert (len(batch.runs) == 1) == (tokens_per_run == 10_000)
            for row, scores in zip(ranker(batch), expected, strict=True):
                torch.testing.assert_close(row[: len(scores)], scores, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("head", get_args(SharedQueryHead))
def test_explanations_sum_to_the_scores(head: SharedQueryHead, tiny_bert: str) -> None:
    ranker = SharedQuery(tiny_bert, head, dropout=0.0, **LIMITS).eval()
    one = example_lists(1, seed=6)[0]
    explained = ranker.explain(one)
    assert [e.item for e in explained] == list(one.items)
    scores = ranker(ranker.collate([one]))[0]
    sums = torch.tensor([sum(part.value for part in e.contributions) for e in explained])
    torch.testing.assert_close(sums, scores, **CLOSE)
    torch.testing.assert_close(torch.tensor([e.score for e in explained]), scores, **CLOSE)
    pieces = ranker.tokenizer.hf.tokenize(one.items[0])
    assert [p.token for p in explained[0].contributions if p.part == "item"] == pieces


@pytest.mark.parametrize("cls", [SharedQuery, SetEncoder])
def test_the_network_compiles_as_a_whole_and_drops_in_training_only(
    cls: type[SharedQuery | SetEncoder], tiny_bert: str
) -> None:
    torch.manual_seed(0)
    ranker = cls(tiny_bert, dropout=0.5, **LIMITS)
    batch = ranker.collate(example_lists(2))
    assert not torch.equal(ranker.train()(batch), ranker(batch))
    expected = ranker.eval()(batch)
    assert torch.equal(expected, ranker(batch))
    compiled = torch.compile(ranker.score_run, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(**batch.runs[0]), ranker.score_run(**batch.runs[0]))
