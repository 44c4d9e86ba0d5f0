"""Sums, means and maxima over segments of a flat tensor."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["segment_max", "segment_mean", "segment_sum"]


def segment_sum(values: Tensor, segment: Tensor, segments: int) -> Tensor:
    """Sums of `values` [n, ...] by `segment` int64 [n]; [segments, ...]."""
    out = torch.zeros((segments, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return out.index_add(0, segment, values)


def segment_mean(values: Tensor, segment: Tensor, segments: int) -> Tensor:
    """Means of `values` [n, ...] by `segment`; 0 where a segment is empty."""
    counts = torch.bincount(segment, minlength=segments).clamp(min=1).to(values.dtype)
    return segment_sum(values, segment, segments) / counts.view(-1, *[1] * (values.ndim - 1))


def segment_max(values: Tensor, segment: Tensor, segments: int) -> Tensor:
    """Maxima of `values` [n, m] by `segment`; -inf where a segment is empty."""
    out = torch.full((segments, values.shape[1]), -torch.inf, dtype=values.dtype, device=values.device)
    index = segment[:, None].expand_as(values)
    return out.scatter_reduce(0, index, values, reduce="amax", include_self=True)
