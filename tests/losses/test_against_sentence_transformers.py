"""The same numbers as sentence-transformers on the same tensors, with its conventions bridged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.cross_encoder import losses as theirs
from torch import Tensor, nn

from crossjem_pl import losses as ours

Lists = tuple[Tensor, Tensor, Tensor]


class PresetScores(CrossEncoder):
    """A CrossEncoder without a network: the text of an item is the position of its score in a table."""

    num_labels = 1
    device = torch.device("cpu")

    def __init__(self, table: Tensor) -> None:
        nn.Module.__init__(self)
        self.table = table

    def preprocess(self, inputs: Any, prompt: str | None = None, **_: Any) -> dict[str, Any]:
        return {"positions": torch.tensor([int(item) for _, item in inputs])}

    def forward(self, input: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        return {"scores": self.table[input["positions"]]}


def make_lists(sizes: Sequence[int] = (6, 4, 9), graded: bool = True, tied: bool = True) -> Lists:
    generator = torch.Generator().manual_seed(len(sizes))
    mask = torch.arange(max(sizes))[None, :] < torch.tensor(sizes)[:, None]
    scores = torch.randn(mask.shape, generator=generator) * 2
    targets = torch.rand(mask.shape, generator=generator) * 3
    if tied:
        targets = targets.round()
        targets[:, 0], targets[:, 1] = 3.0, 0.0  # a strict pair in every list
    return scores, targets if graded else targets / 3, mask


def their_listwise(build: Callable[[PresetScores], nn.Module], lists: Lists) -> tuple[Tensor, Tensor]:
    """Value and gradient with respect to the scores [lists, items]."""
    scores, targets, mask = lists
    table = scores.clone().requires_grad_()
    loss = build(PresetScores(table.reshape(-1)))
    width = mask.shape[1]
    items = [[str(row * width + i) for i in range(width) if mask[row, i]] for row in range(len(mask))]
    labels = [targets[row][mask[row]] for row in range(len(mask))]
    value = loss([["q"] * len(mask), items], labels)
    return value.detach(), torch.autograd.grad(value, table)[0]


def our_value(loss: nn.Module, lists: Lists) -> tuple[Tensor, Tensor]:
    scores = lists[0].clone().requires_grad_()
    value = loss(scores, *lists[1:])
    return value.detach(), torch.autograd.grad(value, scores)[0]


def assert_equal(got: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


ONE, DISTINCT = make_lists((12,)), make_lists((60, 4, 30), tied=False)
BINARY, EQUAL = make_lists((12,), graded=False), make_lists((8, 8, 8))
SCHEMES = {
    "none": theirs.NoWeightingScheme(),
    "ndcg_loss2": theirs.NDCGLoss2Scheme(),
    "lambda_rank": theirs.LambdaRankScheme(),
    "ndcg_loss2pp": theirs.NDCGLoss2PPScheme(),
}
CASES: dict[str, tuple[nn.Module, Callable[[PresetScores], nn.Module], Lists]] = {
    "ListNet": (ours.ListNet(), theirs.ListNetLoss, make_lists()),
    # with ties theirs takes the order of the input, ours lets tied items claim none
    "ListMLE": (ours.ListMLE(), lambda m: theirs.ListMLELoss(m, respect_input_order=False), DISTINCT),
    "position-aware ListMLE": (
        ours.PositionAwareListMLE(),
        lambda m: theirs.PListMLELoss(m, respect_input_order=False),
        DISTINCT,
    ),
    "RankNet": (ours.RankNet(), lambda m: theirs.RankNetLoss(m, reduction_log="natural"), ONE),
    # theirs is the mean over the items of the batch: equal for lists of one size
    "ADR-MSE": (
        ours.ApproxDiscountedRankMSE(temperature=0.5),
        lambda m: theirs.ADRMSELoss(m, alpha=2.0),
        EQUAL,
    ),
    **{
        f"LambdaLoss {scheme} {k}": (
            ours.LambdaLoss(scheme, k=k, sigma=0.8),  # type: ignore[arg-type]
            lambda m, weights=weights, k=k: theirs.LambdaLoss(m, weights, k=k, sigma=0.8),
            lists,
        )
        for scheme, weights in SCHEMES.items()
        for k, lists in ((None, ONE), (3, BINARY))
    },
}


@pytest.mark.parametrize("name", CASES)
def test_a_listwise_loss_and_its_gradient_are_theirs(name: str) -> None:
    mine, build, lists = CASES[name]
    assert_equal(our_value(mine, lists), their_listwise(build, lists))
