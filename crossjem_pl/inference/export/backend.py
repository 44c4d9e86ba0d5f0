"""What a runtime must offer to run exported models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

__all__ = ["Backend", "Session"]

Array = np.ndarray[Any, Any]
Session = Callable[[Mapping[str, Array]], Array]
"""One run of the graph: named inputs to scores, float32 [n]. Several threads may call it at once."""


class Backend(ABC):
    """Writes a runtime's own files from an ONNX graph, and runs them."""

    name: ClassVar[str]
    files: ClassVar[tuple[str, ...]]
    """What it writes into the folder, the graph first."""
    packages: ClassVar[tuple[str, ...]]
    """The distributions whose versions are recorded."""
    precisions: ClassVar[tuple[str, ...]]
    """What the runtime can compute in."""

    @abstractmethod
    def write(self, graph: Path, folder: Path, int8: bool) -> None:
        """Writes `files` to `folder`.

        Args:
            graph: ONNX file in float32; it may be moved.
            folder: exists.
            int8: whether the weights of the matrix products become 8-bit integers.

        Raises:
            ImportError: if the runtime is not installed.
        """

    @abstractmethod
    def open(self, folder: Path, precision: str, threads: int) -> Session:
        """A session over the files in `folder`.

        Args:
            precision: one of `precisions`.
            threads: how many one run may use.

        Raises:
            ImportError: if the runtime is not installed.
        """
