"""Imports of the packages that the `export` extra brings."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["extra"]


def extra(module: str) -> Any:
    """The module of that name, imported.

    Raises:
        ImportError: if it is not there; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module.partition('.')[0]} could not be imported, which exported models need: "
            f"pip install 'crossjem_pl[export]' ({error})"
        ) from error
