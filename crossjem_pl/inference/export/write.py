"""Writes a trained ranker as a folder for another runtime."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import crossjem_pl
from crossjem_pl.data.simulator import simulate
from crossjem_pl.hashing import file_sha256, weights_sha256
from crossjem_pl.inference.export.backends import BACKENDS, find_backend
from crossjem_pl.inference.export.description import EXPORT_FILE, Description
from crossjem_pl.inference.export.extra import extra
from crossjem_pl.rankers.base import RANKERS, Ranker
from crossjem_pl.rankers.exportable import Exportable
from crossjem_pl.rankers.threshold import THRESHOLD_FILE

__all__ = ["OPSET", "export_ranker"]

OPSET = 18
"""ONNX operator set of the graphs: LayerNormalization and reductions with axes as inputs need 17 and 18."""


def export_ranker(
    ranker: Ranker, folder: str | Path, to: str = "onnx", int8: bool = False, model: str = ""
) -> Description:
    """Writes the tensor part of `ranker` for the runtime `to`, with its tokenizer and configuration.

    The graph is traced with `torch.export` on a few simulated lists; every axis of its inputs is dynamic.
    The folder holds the graph, `config.json`, the tokenizer's files and, written last, `export.json`.

    Args:
        ranker: on any device; it is left as it is.
        folder: made if absent; a former export in it is replaced.
        to: "onnx" or "openvino".
        int8: whether the weights of the matrix products become 8-bit integers; see the backends.
        model: where the ranker comes from, for `export.json`.

    Raises:
        ImportError: if a package of the `export` extra is missing.
        ValueError: if the ranker has no tensor part that runs elsewhere, for an unknown `to`, or if the
            folder holds something else than an export.
    """
    backend = find_backend(to)
    if not (isinstance(ranker, Exportable) or ranker.can_be_exported()):
        able = sorted(
            name for name, kind in RANKERS.items() if kind.can_be_exported() or issubclass(kind, Exportable)
        )
        raise ValueError(f"{ranker.name} cannot be exported; {' and '.join(able)} can")
    for module in ("onnx", "onnxscript", *backend.packages):
        extra(module)
    folder = _cleared(Path(folder))
    with tempfile.TemporaryDirectory() as scratch:
        graph = Path(scratch) / "graph.onnx"
        modes = {one: one.training for one in ranker.modules()}
        try:
            _write_graph(ranker.eval(), graph)
        finally:
            for one, training in modes.items():
                one.training = training
        backend.write(graph, folder, int8)
    config = json.dumps(ranker.save_assets(str(folder)), indent=2, ensure_ascii=False, allow_nan=False)
    (folder / "config.json").write_text(config + "\n", encoding="utf-8")
    packages = ("torch", "transformers", "onnxscript", *backend.packages)
    description = Description(
        backend=backend.name,
        precision="int8" if int8 else "float32",
        opset=OPSET,
        ranker=ranker.name,
        init_args=ranker.init_args,
        model=model,
        weights_sha256=weights_sha256(ranker),
        files={name: file_sha256(folder / name) for name in backend.files},
        versions={"crossjem_pl": crossjem_pl.__version__, **{name: version(name) for name in packages}},
    )
    description.write(folder)
    return description


def _cleared(folder: Path) -> Path:
    """The folder, made if absent, without the graph of a former export and the threshold chosen for it."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / EXPORT_FILE).exists():
        if any(folder.iterdir()):
            raise ValueError(f"{folder} holds other files than an exported model; give another folder")
        return folder
    former = (name for backend in BACKENDS.values() for name in backend.files)
    for name in (EXPORT_FILE, THRESHOLD_FILE, *former):
        (folder / name).unlink(missing_ok=True)
    return folder


def _write_graph(ranker: Ranker, path: Path) -> None:
    device = next(ranker.parameters()).device
    batch: Any = ranker.collate(list(simulate(3, 150, seed=0))).to(device)
    module: nn.Module
    if isinstance(ranker, Exportable):
        part = ranker.tensor_part()
        module, names, run = part.module, part.axes, ranker.tensor_inputs(batch)[0]
    else:
        module, names, run = _Network(ranker), ranker.run_axes, batch.runs[0]
    example = _without_ones(run, names)
    axes: Any = {
        name: {i: axis for i, axis in enumerate(names[name]) if not axis.isdigit()} for name in example
    }
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            module,
            (),
            kwargs=example,
            dynamic_shapes=axes,
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        assert program is not None
        program.save(str(path), external_data=False)


class _Network(nn.Module):
    """`Ranker.score_run` as the forward pass of a module."""

    def __init__(self, ranker: Ranker) -> None:
        super().__init__()
        self.ranker = ranker
        self.forward = (
            ranker.score_run
        )  # not a method that calls it: the exporter reads the names of its arguments


def _without_ones(inputs: dict[str, Tensor], axes: dict[str, tuple[str, ...]]) -> dict[str, Tensor]:
    """The inputs with every axis of size 1, which tracing would take for a constant, repeated to size 2."""
    ones = {axis for name, x in inputs.items() for axis, n in zip(axes[name], x.shape, strict=True) if n == 1}
    return {name: x.repeat([2 if axis in ones else 1 for axis in axes[name]]) for name, x in inputs.items()}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes about shared axes and packages that it does not need."""
    exporter = logging.getLogger("torch.onnx")
    before = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(before)
