"""All rankers behind one contract; `RANKERS` holds them by name.

Every public class of the ranker packages is an attribute of this package (`from crossjem_pl.rankers import
MonoBERT`), imported when it is asked for: whoever loads one ranker imports no other. A new ranker is one file with a
class decorated with `@register`.
"""

from importlib import import_module
from typing import Any

from crossjem_pl.rankers.base import RANKERS, Batch, Ranker, public_classes

__all__ = ["RANKERS", "Batch", "Ranker"]


def __getattr__(name: str) -> Any:
    module = public_classes().get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *public_classes()})
