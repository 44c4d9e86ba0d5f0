"""Rankers inside other libraries' pipelines. One module a library, which is imported by nothing but its module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from crossjem_pl.inference.reranker import Reranker
from crossjem_pl.rankers.base import Ranker

__all__ = ["Model", "as_reranker", "library_of_extra"]

Model: TypeAlias = Reranker | Ranker | str | Path
"""What every adapter takes: a model folder, a hub repository, a ranker or a reranker."""


def as_reranker(model: Model) -> Reranker:
    """A reranker as it is; any other model as a `Reranker` with the default options."""
    return model if isinstance(model, Reranker) else Reranker(model)


@contextmanager
def library_of_extra(name: str) -> Iterator[None]:
    """Surrounds the import of the library that the extra `name` installs.

    Raises:
        ImportError: if the library cannot be imported; names the extra.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"crossjem_pl.adapters.{name} needs the extra: pip install 'crossjem_pl[{name}]' ({error})"
        ) from error
