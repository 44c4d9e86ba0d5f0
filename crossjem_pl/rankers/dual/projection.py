"""Layers between an encoder's output and the vectors that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from torch import Tensor, nn

__all__ = ["ACTIVATIONS", "Activation", "Projection", "ProjectionSpec", "projections"]

Activation = Literal["identity", "tanh", "relu", "gelu", "silu", "sigmoid"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
}


class ProjectionSpec(TypedDict, total=False):
    """A projection y = LayerNorm(activation(W x + b) + residual(x)).

    Args:
        size: width of y; absent for that of x.
        bias: whether there is a b (default True).
        activation: default "identity".
        residual: whether x is added, through a matrix of its own where the widths differ (default False).
        layer_norm: whether the result is normalised (default False).
    """

    size: int
    bias: bool
    activation: Activation
    residual: bool
    layer_norm: bool


class Projection(nn.Module):
    """See `ProjectionSpec`. Maps [..., width] to [..., size].

    Raises:
        ValueError: on a size below 1 or an unknown activation.
    """

    def __init__(self, width: int, spec: ProjectionSpec) -> None:
        super().__init__()
        activation = spec.get("activation", "identity")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {activation!r}")
        self.size = spec.get("size", width)
        if self.size < 1:
            raise ValueError(f"a projection's size must be at least 1, got {self.size}")
        self.linear = nn.Linear(width, self.size, bias=spec.get("bias", True))
        self.activation = ACTIVATIONS[activation]()
        self.residual: nn.Module | None = None
        if spec.get("residual", False):
            self.residual = nn.Identity() if width == self.size else nn.Linear(width, self.size, bias=False)
        self.norm = nn.LayerNorm(self.size) if spec.get("layer_norm", False) else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.linear(x))
        if self.residual is not None:
            y = y + self.residual(x)
        return y if self.norm is None else self.norm(y)


def projections(width: int, specs: Sequence[ProjectionSpec]) -> nn.Sequential:
    """The projections one after the other, the first from `width`; no spec is the identity."""
    layers = nn.Sequential()
    for spec in specs:
        layers.append(Projection(width, spec))
        width = spec.get("size", width)
    return layers
