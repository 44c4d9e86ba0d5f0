"""A ranker whose network runs in another runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from crossjem_pl.inference.export.runtimes import BACKENDS
from crossjem_pl.inference.export.write import EXPORT_FILE, Description, read_description
from crossjem_pl.lists import RankingList, shown
from crossjem_pl.rankers.base import RANKERS, Batch, Explanation, Ranker
from crossjem_pl.rankers.encoders import built_from

__all__ = ["ExportedRanker", "load_exported"]


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
    shell: Ranker

    def __init__(
        self, shell: Ranker, folder: Path, description: Description, precision: str = "float32"
    ) -> None:
        super().__init__(shell.init_args)
        backend = BACKENDS[description.backend]
        if precision not in backend.precisions:
            raise ValueError(
                f"{folder}: {description.backend} computes in {' or '.join(backend.precisions)}, not in {precision}"
            )
        description.check_files(folder)
        self.name = shell.name  # type: ignore[misc]
        self.equivariant = shell.equivariant  # type: ignore[misc]
        self.score_kind = shell.score_kind  # type: ignore[misc]
        self.description = description
        object.__setattr__(self, "shell", shell)  # not as a module: its empty weights are no part of this one
        self._session = backend.open(folder, precision, torch.get_num_threads())
        digest = "".join(description.files[name] for name in sorted(description.files))
        self.register_buffer("graph_sha256", torch.tensor(list(bytes.fromhex(digest)), dtype=torch.uint8))

    def collate(self, lists: Sequence[RankingList]) -> Batch:
        return self.shell.collate(lists)

    def score_run(self, **tensors: Tensor) -> Tensor:
        return torch.from_numpy(self._session({name: tensor.numpy() for name, tensor in tensors.items()}))

    def one_pass_items(self, ranking_list: RankingList) -> int:
        return self.shell.one_pass_items(ranking_list)

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


def load_exported(
    folder: str | Path,
    precision: str = "float32",
    backend: str | None = None,
    device: str | torch.device | None = None,
) -> ExportedRanker:
    """The ranker of a folder that `export_ranker` wrote.

    Args:
        folder: of an exported model.
        precision: what the runtime computes in.
        backend: the runtime that is wanted; None for the folder's.
        device: the device that is wanted; None or the CPU.

    Raises:
        ImportError: if the runtime is not installed.
        ValueError: naming the file, if something in the folder is not what was written; if there is no export for the
            backend, or the runtime cannot compute in `precision` or on the device.
    """
    folder = Path(folder)
    if backend not in (None, "torch", *BACKENDS):
        raise ValueError(f"there is no backend {backend!r}; there are torch, {', '.join(BACKENDS)}")
    if not (folder / EXPORT_FILE).is_file():
        command = f"crossjem export {folder} --to {backend or 'onnx'} --out FOLDER"
        raise ValueError(f"{folder} is not an exported model; write one with `{command}`")
    description = read_description(folder)
    if backend not in (None, description.backend):
        raise ValueError(f"{folder} is exported for {description.backend}, not for {backend}")
    if device is not None and str(device).partition(":")[0] != "cpu":
        raise ValueError(f"{folder}: exported models run on the CPU, not on {device}")
    kind = RANKERS.get(description.ranker)
    if kind is None:
        names = ", ".join(sorted(RANKERS))
        raise ValueError(f"{folder}: unknown ranker {shown(description.ranker)}; there are {names}")
    if not kind.can_be_exported():
        raise ValueError(f"{folder}: {description.ranker} is not a ranker that can be exported")
    with torch.device("meta"), built_from(folder / EXPORT_FILE):
        shell = kind.from_folder(str(folder), description.init_args)
    return ExportedRanker(shell, folder, description, precision)
