"""Exact search of the items with the greatest inner product with each query."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = ["Backend", "nearest_items"]

Backend = Literal["auto", "torch", "faiss"]


def nearest_items(
    queries: Tensor,
    items: Tensor,
    depth: int,
    backend: Backend = "auto",
    chunk: int = 65_536,
    rows: int = 1024,
) -> Tensor:
    """Numbers of the `depth` items with the greatest inner products, best first.

    The search is exact in either backend. Memory is that of `rows` x `chunk` products beyond the vectors.

    Args:
        queries: float32 [queries, width].
        items: float32 [items, width].
        depth: how many; all items if there are fewer.
        backend: "torch", on the vectors' device; "faiss", a flat index on the CPU (extra `mine`); "auto"
            takes faiss if it is installed and the vectors are on the CPU.
        chunk: items compared at a time (torch).
        rows: queries compared at a time (torch).

    Returns:
        int64 [queries, depth] on the CPU. In which order equal products come is up to the backend.

    Raises:
        ImportError: if faiss is asked for and missing.
        ValueError: on a depth below 1 or an unknown backend.
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth}")
    if backend not in ("auto", "torch", "faiss"):
        raise ValueError(f"backend must be auto, torch or faiss; got {backend!r}")
    depth = min(depth, len(items))
    if backend == "faiss" or (backend == "auto" and items.device.type == "cpu"):
        found = _faiss(queries, items, depth, required=backend == "faiss")
        if found is not None:
            return found
    return torch.cat([_torch(part, items, depth, chunk) for part in queries.split(rows)]).cpu()


def _torch(queries: Tensor, items: Tensor, depth: int, chunk: int) -> Tensor:
    best = queries.new_empty(len(queries), 0)
    number = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
    for begin in range(0, len(items), chunk):
        products = queries @ items[begin : begin + chunk].T
        value, place = products.topk(min(depth, products.shape[1]), dim=1)
        best, number = torch.cat((best, value), dim=1), torch.cat((number, place + begin), dim=1)
        best, kept = best.topk(min(depth, best.shape[1]), dim=1)
        number = number.gather(1, kept)
    return number


def _faiss(queries: Tensor, items: Tensor, depth: int, required: bool) -> Tensor | None:
    try:
        import faiss
    except ImportError as error:
        if required:
            raise ImportError("the backend faiss needs the extra: pip install 'crossjem_pl[mine]'") from error
        return None
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(items.float().cpu().contiguous().numpy())
    _, number = index.search(queries.float().cpu().contiguous().numpy(), depth)
    return torch.from_numpy(number)
