"""The runtimes by name."""

from __future__ import annotations

from crossjem_pl.inference.export.backend import Backend
from crossjem_pl.inference.export.onnx_backend import OnnxBackend
from crossjem_pl.inference.export.openvino_backend import OpenVINOBackend

__all__ = ["BACKENDS", "find_backend"]

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (OnnxBackend(), OpenVINOBackend())}


def find_backend(name: str) -> Backend:
    """The backend `name`.

    Raises:
        ValueError: if there is none.
    """
    if name not in BACKENDS:
        raise ValueError(f"there is no backend {name!r} to export to; there are {', '.join(BACKENDS)}")
    return BACKENDS[name]
