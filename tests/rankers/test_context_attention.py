from __future__ import annotations

import pytest
import torch
from torch import Tensor

from crossjem_pl.rankers.attention import HIDDEN
from crossjem_pl.rankers.pairwise.context_attention import attend_with_context, group
from crossjem_pl.rankers.pairwise.packed_attention import Packing, pack

LENGTHS = [3, 1, 30, 40, 2, 2, 9, 5, 1, 7]
CONTEXT_OF = torch.tensor([1, 0, 1, 1, 2, 0, 0, 2, 1, 0])
HEADS, WIDTH = 2, 4


@pytest.fixture
def packing() -> Packing:
    lengths = torch.tensor(LENGTHS)
    sequence = torch.repeat_interleave(torch.arange(len(LENGTHS)), lengths)
    place = torch.cat([torch.arange(n) for n in LENGTHS])
    return pack(sequence, place, len(LENGTHS))


def test_a_group_has_one_context_and_whole_sequences(packing: Packing) -> None:
    groups = group(packing, CONTEXT_OF)
    assert len(groups.rows) < len(LENGTHS)
    assert torch.equal(groups.rows.flatten()[groups.flat], torch.arange(sum(LENGTHS)))
    token_sequence = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    found = []
    for rows, sequence, context in zip(groups.rows, groups.sequence, groups.context_of, strict=True):
        real = sequence >= 0
        assert torch.equal(token_sequence[rows[real]], sequence[real])
        assert set(CONTEXT_OF[sequence[real]].tolist()) == {int(context)}
        found += sorted(set(sequence[real].tolist()))
    assert sorted(found) == list(range(len(LENGTHS)))


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_every_sequence_attends_to_its_context_and_itself(
    packing: Packing, added: bool, gradients: bool
) -> None:
    torch.manual_seed(0)
    tokens = sum(LENGTHS)
    query, key, value = (torch.randn(tokens, HEADS, WIDTH) for _ in range(3))
    context_key, context_value = (torch.randn(3, 5, HEADS, WIDTH) for _ in range(2))
    seen = torch.rand(len(LENGTHS), 5) < 0.7
    mask = torch.where(seen, torch.randn(len(LENGTHS), 5), HIDDEN) if added else seen
    with torch.set_grad_enabled(gradients):
        out = attend_with_context(
            query,
            key,
            value,
            group(packing, CONTEXT_OF),
            context_key,
            context_value,
            mask,
            scaling=None,
            dropout=0.0,
        )
    start = 0
    for i, length in enumerate(LENGTHS):
        own = slice(start, start + length)
        for head in range(HEADS):
            columns = torch.nonzero(seen[i])[:, 0]
            bias = mask[i, columns] if added else torch.zeros(len(columns))
            expected = literal(
                query[own, head],
                torch.cat([context_key[CONTEXT_OF[i], columns, head], key[own, head]]),
                torch.cat([context_value[CONTEXT_OF[i], columns, head], value[own, head]]),
                torch.cat([bias, torch.zeros(length)]),
            )
            torch.testing.assert_close(out[own, head], expected, atol=1e-5, rtol=0)
        start += length


def literal(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    out = []
    for row in query:
        logits = torch.stack([row @ k / WIDTH**0.5 for k in key]) + bias
        out.append((torch.softmax(logits, 0)[:, None] * value).sum(0))
    return torch.stack(out)
