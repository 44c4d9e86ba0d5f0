"""Linear heads in float32, whatever precision the model runs in or its weights are stored in."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["linear_float32"]


def linear_float32(layer: nn.Linear, states: Tensor) -> Tensor:
    """`layer(states)`, float32 [..., out], outside any autocast."""
    with torch.autocast(states.device.type, enabled=False):
        bias = None if layer.bias is None else layer.bias.float()
        return F.linear(states.float(), layer.weight.float(), bias)
