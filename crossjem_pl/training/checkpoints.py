"""Checkpoints that appear whole or not at all, and the newest one that can be read."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from torch import Tensor

from crossjem_pl.files import replacing

__all__ = ["AtomicCheckpointIO", "check_finite", "is_whole", "last_whole_checkpoint"]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, flushes to the disk and renames: a full disk or a kill leaves the former file.

    Lightning's own plugin writes to TMPDIR and copies. Addresses of object storage are left to it.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Writes `checkpoint` to `path`.

        Raises:
            ValueError: if a weight is not finite; nothing is written.
        """
        check_finite(checkpoint.get("state_dict", {}))
        if "://" in str(path) or storage_options is not None:
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        with replacing(Path(path)) as stream:
            torch.save(checkpoint, stream)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """What is in `path`; tensors and plain values only, unless `weights_only` is False.

        Raises:
            ValueError: names the file, if it is damaged or cut off.
        """
        if "://" not in str(path) and Path(path).is_file() and not is_whole(Path(path)):
            raise ValueError(
                f"checkpoint {path} is damaged or cut off; --ckpt_path last takes the newest whole one"
            )
        return super().load_checkpoint(path, map_location, weights_only is not False)


def check_finite(weights: dict[str, Tensor]) -> None:
    """Raises a ValueError that names the first weight with a value that is not finite."""
    for name, value in weights.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(
                f"weight {name} is not finite, so nothing is saved: training diverged; resume with --ckpt_path last "
                "and a lower learning rate"
            )


def is_whole(path: Path) -> bool:
    """Whether every part of a checkpoint file (a ZIP archive) has its check sum."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError):
        return False


def last_whole_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of `folder` that can be read, or None if there is no checkpoint; warns about others.

    Raises:
        ValueError: names the files, if none can be read.
    """
    damaged: list[str] = []
    for path in sorted(folder.glob("*.ckpt"), key=lambda p: p.stat().st_mtime_ns, reverse=True):
        if is_whole(path):
            if damaged:
                warnings.warn(f"{', '.join(damaged)}: damaged or cut off; resuming from {path}", stacklevel=2)
            return path
        damaged.append(str(path))
    if damaged:
        raise ValueError(f"{', '.join(damaged)}: damaged or cut off, and there is no other checkpoint")
    return None
