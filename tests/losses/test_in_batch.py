"""In-batch negatives: the masking rule against a loop, and the gathering of two processes against one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from crossjem_pl.losses import InBatchInfoNCE, InfoNCE
from tests.processes import run_two

Batch = dict[str, Tensor]


def make_batch(sizes: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float64) -> Batch:
    """Lists whose items are drawn from 12 texts and whose queries from 3, so that keys repeat."""
    generator = torch.Generator().manual_seed(seed)
    lists, items = len(sizes), max(sizes)
    targets = (torch.rand(lists, items, generator=generator) > 0.6).to(dtype)
    targets[:, 0] = 1.0
    return {
        "query_vectors": torch.randn(lists, 4, generator=generator, dtype=dtype),
        "item_vectors": torch.randn(lists, items, 4, generator=generator, dtype=dtype),
        "targets": targets,
        "mask": torch.arange(items)[None, :] < torch.tensor(sizes)[:, None],
        "item_keys": torch.randint(-6, 6, (lists, items), generator=generator),
        "query_keys": torch.randint(0, 3, (lists,), generator=generator),
    }


def loss_of(batch: Batch, reduction: Any = "mean", **options: Any) -> Tensor:
    arguments: dict[str, Any] = {**batch, "reduction": reduction}
    return InBatchInfoNCE(**options)(**arguments)


def loop(batch: Batch, temperature: float) -> float:
    """Transcribed from the rule: every item of the batch but the known positives of the query."""
    q, d, y, mask = batch["query_vectors"], batch["item_vectors"], batch["targets"], batch["mask"]
    places = [(int(a), int(b)) for a, b in mask.nonzero()]
    per_list = []
    for row in range(len(q)):
        known = {
            int(batch["item_keys"][a, b])
            for a, b in places
            if batch["query_keys"][a] == batch["query_keys"][row] and y[a, b] > 0
        }
        negatives = [
            math.exp(float(q[row] @ d[a, b]) / temperature)
            for a, b in places
            if int(batch["item_keys"][a, b]) not in known
        ]
        positives = [
            math.exp(float(q[row] @ d[a, b]) / temperature) for a, b in places if a == row and y[a, b] > 0
        ]
        if positives and negatives:
            terms = [-math.log(p / (p + sum(negatives))) for p in positives]
            per_list.append(sum(terms) / len(terms))
    return sum(per_list) / len(per_list)


@pytest.mark.parametrize("seed", range(5))
def test_value_equals_the_loop(seed: int) -> None:
    batch = make_batch((4, 2, 5, 3), seed)
    value = loss_of(batch, temperature=0.7)
    assert value.item() == pytest.approx(loop(batch, 0.7), rel=1e-9)


def test_one_list_is_info_nce_of_its_scores() -> None:
    batch = make_batch((5,))
    batch["item_keys"] = torch.arange(5)[None]
    batch["targets"] = torch.tensor([[1.0, 0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    scores = torch.einsum("ld,lid->li", batch["query_vectors"], batch["item_vectors"])
    expected = InfoNCE(0.5)(scores, batch["targets"], batch["mask"])
    torch.testing.assert_close(loss_of(batch, temperature=0.5), expected)


def leaves(batch: Batch) -> Batch:
    return {k: v.clone().requires_grad_() if k.endswith("vectors") else v for k, v in batch.items()}


def test_padding_takes_no_part() -> None:
    batch = leaves(make_batch((4, 2, 5, 3)))
    expected = torch.autograd.grad(loss_of(batch), [batch["query_vectors"], batch["item_vectors"]])
    dirty = leaves(
        {
            **make_batch((4, 2, 5, 3)),
            "item_vectors": batch["item_vectors"].detach().masked_fill(~batch["mask"][..., None], torch.nan),
            "targets": batch["targets"].masked_fill(~batch["mask"], torch.inf),
            "item_keys": batch["item_keys"].masked_fill(~batch["mask"], 99),
        }
    )
    value = loss_of(dirty)
    got = torch.autograd.grad(value, [dirty["query_vectors"], dirty["item_vectors"]])
    torch.testing.assert_close(value, loss_of(batch))
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g, e)
    assert (got[1][~batch["mask"]] == 0).all()


def test_gradient_is_right() -> None:
    batch = leaves(make_batch((4, 2, 5)))
    vectors = batch["query_vectors"], batch["item_vectors"]
    assert torch.autograd.gradcheck(
        lambda q, d: loss_of({**batch, "query_vectors": q, "item_vectors": d}, temperature=0.5), vectors
    )


def test_half_precision_computes_in_float32() -> None:
    batch = make_batch((4, 2, 5), dtype=torch.float32)
    expected = loss_of(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss_of(batch) == expected
    half = {k: v.half() if k.endswith("vectors") else v for k, v in batch.items()}
    assert loss_of(half).dtype == torch.float32
    torch.testing.assert_close(loss_of(half), expected, rtol=1e-2, atol=1e-2)


def test_lists_without_a_positive_or_a_negative_have_no_loss() -> None:
    batch = make_batch((3, 3))
    batch["item_keys"] = torch.tensor([[1, 2, 3], [4, 5, 6]])
    batch["query_keys"] = torch.tensor([0, 1])
    batch["targets"][0] = 0.0
    each = loss_of(batch, reduction="none")
    assert each[0] == 0
    torch.testing.assert_close(loss_of(batch), each[1])
    batch["targets"][:] = 1.0
    batch["query_keys"][:] = 0
    batch = leaves(batch)
    value = loss_of(batch)
    value.backward()
    assert value == 0
    assert (batch["item_vectors"].grad == 0).all()  # type: ignore[union-attr]


def split(batch: Batch, boundary: int, sizes: tuple[int, ...]) -> list[Batch]:
    """The lists before and from `boundary`, each part cut to its own longest list."""
    parts = []
    for rows in (slice(0, boundary), slice(boundary, None)):
        part = {k: v[rows] for k, v in batch.items()}
        widest = max(sizes[rows])
        parts.append({k: v if k.startswith("query") else v[:, :widest].clone() for k, v in part.items()})
    return parts


def gather_in_process(rank: int, parts: list[Batch], folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    batch = leaves(parts[rank])
    value = loss_of(batch, temperature=0.5, gather=True)
    value.backward()
    each = loss_of(batch, temperature=0.5, gather=True, reduction="none")
    result = (value.detach(), each.detach(), batch["query_vectors"].grad, batch["item_vectors"].grad)
    torch.save(result, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path: Path) -> None:
    """Unequal numbers of lists and items, one list without a positive; DDP averages value and gradient."""
    sizes = (4, 2, 3, 7, 5)
    batch = make_batch(sizes, seed=3)
    batch["targets"][1] = 0.0
    whole = leaves(batch)
    expected = loss_of(whole, temperature=0.5)
    expected.backward()
    parts = split(batch, 3, sizes)
    run_two(gather_in_process, parts, str(tmp_path))
    results = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]

    torch.testing.assert_close((results[0][0] + results[1][0]) / 2, expected.detach())
    each = loss_of(batch, temperature=0.5, reduction="none")
    torch.testing.assert_close(torch.cat([r[1] for r in results]), each)
    torch.testing.assert_close(torch.cat([r[2] for r in results]) / 2, whole["query_vectors"].grad)
    for r, rows in zip(results, (slice(0, 3), slice(3, None)), strict=True):
        gradient = whole["item_vectors"].grad
        assert gradient is not None
        torch.testing.assert_close(r[3] / 2, gradient[rows, : r[3].shape[1]])
