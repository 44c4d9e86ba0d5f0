"""Writes a trained ranker as a folder for another runtime; `export.json` says what it holds and was made from."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import crossjem_pl
from crossjem_pl.data.simulator import simulate
from crossjem_pl.files import replacing_folder, write_json
from crossjem_pl.hashing import file_sha256, weights_sha256
from crossjem_pl.inference.export.runtimes import BACKENDS, extra
from crossjem_pl.lists import shown
from crossjem_pl.rankers.base import RANKERS, Ranker
from crossjem_pl.rankers.encoders import check_files, read_json
from crossjem_pl.rankers.folder import portable
from crossjem_pl.rankers.threshold import THRESHOLD_FILE

__all__ = ["EXPORT_FILE", "OPSET", "Description", "export_ranker", "read_description"]

EXPORT_FILE = "export.json"
"""Its name. A folder that has it is an exported model."""

FORMAT = 2


@dataclass(frozen=True)
class Description:
    """The content of `export.json`.

    Args:
        backend: name of the runtime.
        precision: "float32" or "int8", of the weights of the matrix products.
        opset: ONNX operator set of the graph.
        ranker: name of the ranker whose graph it is.
        init_args: its init arguments.
        model: where the ranker was loaded from, as it was given.
        weights_sha256: of the ranker's weights, as in `threshold.json`.
        files: SHA-256 of the other files.
        versions: of the packages that wrote it.
        format: of this file.
    """

    backend: str
    precision: str
    opset: int
    ranker: str
    init_args: dict[str, Any]
    model: str
    weights_sha256: str
    files: dict[str, str]
    versions: dict[str, str]
    format: int = FORMAT

    def check_files(self, folder: Path) -> None:
        """Raises a ValueError if a file of the graph is missing or not the one that was written."""
        where = folder / EXPORT_FILE
        if not {*BACKENDS[self.backend].files} <= self.files.keys():
            raise ValueError(f"{where}, field 'files': not the files of an export for {self.backend}")
        for name in self.files:
            if not (folder / name).is_file():
                raise ValueError(f"{folder}: {EXPORT_FILE} names the file {name}, which is missing")
        check_files(folder, self.files, where)


def read_description(folder: Path) -> Description:
    """Reads `export.json`.

    Raises:
        ValueError: naming file and field, if there is none or it is not of this form.
    """
    path = folder / EXPORT_FILE
    content = read_json(path)
    kinds = {"opset": int, "format": int, "init_args": dict, "files": dict, "versions": dict}
    for field in fields(Description):
        if not isinstance(content.get(field.name), kinds.get(field.name, str)):
            raise ValueError(
                f"{path}, field {field.name!r}: {shown(content.get(field.name))} is not what belongs there"
            )
    found = Description(**{field.name: content[field.name] for field in fields(Description)})
    if found.format != FORMAT:
        raise ValueError(f"{path}, field 'format': {found.format} is unknown to this version; export again")
    if found.backend not in BACKENDS:
        raise ValueError(
            f"{path}: there is no backend {shown(found.backend)}; there are {', '.join(BACKENDS)}"
        )
    return found


OPSET = 18
"""ONNX operator set of the graphs: LayerNormalization and reductions with axes as inputs need 17 and 18."""


def export_ranker(
    ranker: Ranker, folder: str | Path, to: str = "onnx", int8: bool = False, model: str = ""
) -> Description:
    """Writes the network of `ranker`, its `score_run`, for the runtime `to`, with its tokenizer and configuration.

    The graph is traced with `torch.export` on a few simulated lists; every axis of its inputs is dynamic.
    The folder holds the graph, `config.json`, the tokenizer's files and, written last, `export.json`.

    Args:
        ranker: on any device; it is left as it is.
        folder: made if absent; a former export in it is replaced.
        to: "onnx" or "openvino".
        int8: whether the weights of the matrix products become 8-bit integers; see `BACKENDS`.
        model: where the ranker comes from, for `export.json`.

    Raises:
        ImportError: if a package of the `export` extra is missing.
        ValueError: if the ranker defines no `score_run`, for an unknown `to`, or if the
            folder holds something else than an export.
    """
    if to not in BACKENDS:
        raise ValueError(f"there is no backend {to!r} to export to; there are {', '.join(BACKENDS)}")
    backend = BACKENDS[to]
    if not ranker.can_be_exported():
        able = sorted(name for name, kind in RANKERS.items() if kind.can_be_exported())
        raise ValueError(f"{ranker.name} cannot be exported; these rankers can: {', '.join(able)}")
    for module in ("onnx", "onnxscript", *backend.packages):
        extra(module)
    _check_target(Path(folder))
    with replacing_folder(Path(folder)) as done:
        return _write(ranker, done, to, int8, model)


def _write(ranker: Ranker, folder: Path, to: str, int8: bool, model: str) -> Description:
    backend = BACKENDS[to]
    with tempfile.TemporaryDirectory() as scratch:
        graph = Path(scratch) / "graph.onnx"
        modes = {one: one.training for one in ranker.modules()}
        try:
            _write_graph(ranker.eval(), graph)
        finally:
            for one, training in modes.items():
                one.training = training
        backend.write(graph, folder, int8)
    write_json(folder / "config.json", ranker.save_assets(str(folder)), allow_nan=False)
    packages = ("torch", "transformers", "onnxscript", *backend.packages)
    description = Description(
        backend=to,
        precision="int8" if int8 else "float32",
        opset=OPSET,
        ranker=ranker.name,
        init_args=portable(ranker.init_args),
        model=Path(model).name if Path(model).is_absolute() else model,
        weights_sha256=weights_sha256(ranker),
        files={name.relative_to(folder).as_posix(): file_sha256(name) for name in _files(folder)},
        versions={"crossjem_pl": crossjem_pl.__version__, **{name: version(name) for name in packages}},
    )
    write_json(folder / EXPORT_FILE, asdict(description), allow_nan=False)
    return description


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _check_target(folder: Path) -> None:
    """Raises a ValueError unless the folder is missing, empty or holds an export and nothing else."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, not a folder")
    named = read_json(folder / EXPORT_FILE).get("files")
    ours = {EXPORT_FILE, THRESHOLD_FILE, *(named if isinstance(named, dict) else ())}
    for path in _files(folder):
        if (name := path.relative_to(folder).as_posix()) not in ours:
            raise ValueError(
                f"{folder} holds other files than an exported model ({name}); give another folder"
            )


class _Network(nn.Module):
    """`Ranker.score_run` as the forward pass of a module."""

    def __init__(self, ranker: Ranker) -> None:
        super().__init__()
        self.ranker = ranker
        # not a method that calls it: the exporter reads the names of its arguments
        self.forward = ranker.score_run


def _write_graph(ranker: Ranker, path: Path) -> None:
    device = next(ranker.parameters()).device
    run = ranker.collate(list(simulate(3, 150, seed=0))).to(device).runs[0]
    axes = ranker.run_axes
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            _Network(ranker),
            (),
            kwargs=_without_ones(run, axes),
            dynamic_shapes={
                name: {i: axis for i, axis in enumerate(axes[name]) if not axis.isdigit()} for name in run
            },
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        assert program is not None
        program.save(str(path), external_data=False)


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
