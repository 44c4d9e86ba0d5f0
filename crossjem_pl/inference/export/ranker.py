"""A ranker whose network runs in another runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from crossjem_pl.inference.export.runtimes import find_backend
from crossjem_pl.inference.export.write import Description, is_export, read_description
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import RANKERS, Batch, Explanation, Ranker
from crossjem_pl.rankers.folder import load_ranker

__all__ = ["ExportedRanker", "load_backend", "load_exported"]


class ExportedRanker(Ranker):
    """The ranker of an exported folder: its own tokenisation, passes and padding around a runtime's session.

    It runs on the CPU, with as many threads as torch has when it is loaded, and cannot be trained. Its only
    tensor is the hash of its graph, so that what is stored for one export (a threshold) fits no other.

    Args:
        shell: the exported ranker without weights, on the "meta" device.
        folder: where the graph lies.
        description: of the folder.
        precision: what the runtime computes in.

    Raises:
        ImportError: if the runtime is not installed.
        ValueError: if it cannot compute in `precision`, or a file is not the one that was written.
    """

    trainable = False
    graph_sha256: Tensor

    def __init__(
        self, shell: Ranker, folder: Path, description: Description, precision: str = "float32"
    ) -> None:
        super().__init__(shell.init_args)
        backend = find_backend(description.backend)
        if precision not in backend.precisions:
            raise ValueError(
                f"{folder}: {backend.name} computes in {' or '.join(backend.precisions)}, not in {precision}"
            )
        description.check_files(folder)
        self.name = shell.name  # type: ignore[misc]
        self.equivariant = shell.equivariant  # type: ignore[misc]
        self.score_kind = shell.score_kind  # type: ignore[misc]
        self.description = description
        # its methods, not the module: its empty weights are no part of this one
        self._collate, self._one_pass_items = shell.collate, shell.one_pass_items
        self._session = backend.open(folder, precision, torch.get_num_threads())
        digest = "".join(description.files[name] for name in sorted(description.files))
        self.register_buffer("graph_sha256", torch.tensor(list(bytes.fromhex(digest)), dtype=torch.uint8))

    @property
    def shell(self) -> Ranker:
        """The exported ranker without weights: its tokenisation and passes."""
        return self._collate.__self__  # type: ignore[attr-defined]

    def collate(self, lists: Sequence[RankingList]) -> Batch:
        return self._collate(lists)

    def score_run(self, **tensors: Tensor) -> Tensor:
        return torch.from_numpy(self._session({name: tensor.numpy() for name, tensor in tensors.items()}))

    def one_pass_items(self, ranking_list: RankingList) -> int:
        return self._one_pass_items(ranking_list)

    def explain(self, ranking_list: RankingList) -> list[Explanation]:
        raise ValueError(
            f"an exported model cannot explain its scores; load {self.description.model!r}, which it was "
            "made from"
        )

    def save_assets(self, folder: str) -> dict[str, Any]:
        raise ValueError("an exported model is not saved anew: copy its folder")

    @classmethod
    def from_folder(cls, folder: str, init_args: dict[str, Any]) -> Self:
        raise ValueError(f"{folder}: exported models are loaded with `load_exported`")


def load_exported(folder: str | Path, precision: str = "float32") -> ExportedRanker:
    """The ranker of a folder that `export_ranker` wrote.

    Raises:
        FileNotFoundError: if the folder has no `export.json`.
        ImportError: if the runtime is not installed.
        ValueError: naming the file, if something in the folder is not what was written; and if the runtime
            cannot compute in `precision`.
    """
    folder = Path(folder)
    description = read_description(folder)
    if description.ranker not in RANKERS:
        raise ValueError(
            f"{folder}: unknown ranker {description.ranker!r}; there are {', '.join(sorted(RANKERS))}"
        )
    if not RANKERS[description.ranker].can_be_exported():
        raise ValueError(f"{folder}: {description.ranker} is not a ranker that can be exported")
    with torch.device("meta"):
        shell = RANKERS[description.ranker].from_folder(str(folder), description.init_args)
    return ExportedRanker(shell, folder, description, precision)


def load_backend(
    name: str, backend: str | None, device: str | torch.device | None, precision: str
) -> tuple[Ranker, str | torch.device | None]:
    """A ranker and the device that it can run on.

    Args:
        name: model folder, hub repository, or folder of an exported model.
        backend: "torch", "onnx" or "openvino"; None for what the folder holds.
        device: where it shall run; None for the ranker's best.
        precision: see `Reranker`.

    Raises:
        FileNotFoundError: if there is no such model.
        ImportError: if the runtime is not installed.
        ValueError: if the folder does not hold a model for the backend, or an exported one shall not run on
            the CPU.
    """
    if backend is not None and backend != "torch":
        find_backend(backend)
    if not is_export(name):
        if backend not in (None, "torch"):
            raise ValueError(
                f"{name} is not an exported model; write one with "
                f"`crossjem export {name} --to {backend} --out FOLDER`"
            )
        return load_ranker(name), device
    found = read_description(Path(name)).backend
    if backend not in (None, found):
        raise ValueError(f"{name} is exported for {found}, not for {backend}")
    if device is not None and torch.device(device).type != "cpu":
        raise ValueError(f"{name}: exported models run on the CPU, not on {device}")
    return load_exported(name, precision), "cpu"
