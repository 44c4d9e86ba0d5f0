"""What a ranker offers so that its tensor part can run outside of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

__all__ = ["Exportable", "TensorPart"]


@dataclass(frozen=True)
class TensorPart:
    """A module of tensors only, free of control flow that depends on their values or sizes.

    Args:
        module: takes the inputs in the order of `axes`, by position or by name, and returns one float32
            tensor of scores.
        axes: for each input, the name of each of its axes. All axes are dynamic; two of the same name have
            the same size.
    """

    module: nn.Module
    axes: dict[str, tuple[str, ...]]


class Exportable(ABC):
    """A ranker whose `forward(batch)` is `tensor_scores(batch, [part(**x) for x in tensor_inputs(batch)])`.

    `tensor_inputs` and `tensor_scores` never read the weights: an exported model keeps them in Python and
    replaces only the part in the middle.
    """

    @abstractmethod
    def tensor_part(self) -> TensorPart:
        """The part that holds all weights; it shares them with the ranker.

        Raises:
            ValueError: if a component of this ranker has no such form; names it.
        """

    @abstractmethod
    def tensor_inputs(self, batch: Any) -> list[dict[str, Tensor]]:
        """The inputs of each run of the tensor part that the batch needs, with the names of its `axes`."""

    @abstractmethod
    def tensor_scores(self, batch: Any, outputs: Sequence[Tensor]) -> Tensor:
        """Scores, float32 [lists, max_items], from the outputs of the runs."""
