"""What the commands share: their arguments, which are those of a function, and how they print."""

from __future__ import annotations

import inspect
import re
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["add_arguments", "make_table", "new_console", "passes_on", "standard_input"]

F = TypeVar("F", bound=Callable[..., Any])


def passes_on(other: Callable[..., Any], *without: str) -> Callable[[F], F]:
    """Decorates a command whose `**options` are the parameters with a default of `other`, but for those `without`."""

    def decorate(command: F) -> F:
        command.options = (other, {*without, *inspect.signature(command).parameters})  # type: ignore[attr-defined]
        return command

    return decorate


def add_arguments(parser: ArgumentParser, command: Callable[..., Any]) -> None:
    """Adds the parameters of a function to a parser, with the `Args` of its docstring as their help.

    Keyword-only parameters become options, the others stand by their place. Types come from the annotations: a
    sequence takes several values, a flag (False by default) none. What is not given is not in the parsed namespace, so
    that the function's own defaults hold.
    """
    helps = _helps(command)
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            _add(parser, parameter, helps.get(name, ""), parameter.kind is inspect.Parameter.KEYWORD_ONLY)
    other, without = getattr(command, "options", (None, ()))
    if other is not None:
        helps = _helps(other)
        for name, parameter in inspect.signature(other, eval_str=True).parameters.items():
            if name not in without and parameter.default is not parameter.empty:
                _add(parser, parameter, helps.get(name, ""), True)


def _add(parser: ArgumentParser, parameter: inspect.Parameter, text: str, option: bool) -> None:
    default, needed = parameter.default, parameter.default is parameter.empty
    kind: dict[str, Any] = {"help": text.replace("%", "%%")}
    if not (needed or default is None or default is False or default == ()):
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
        kind["help"] += f" (default {shown})"
    if parameter.annotation is bool:
        kind["action"] = "store_true"
    else:
        kind |= _type(parameter.annotation, option, needed)
    if option:
        kind |= {"default": SUPPRESS, "required": needed}
        flags = ["-c"] if parameter.name == "config" else []  # as in a training
        parser.add_argument(*flags, f"--{parameter.name.replace('_', '-')}", **kind)
    else:
        kind |= {} if needed else {"nargs": "?", "default": default}
        parser.add_argument(parameter.name, **kind)


def _type(annotation: Any, option: bool, needed: bool) -> dict[str, Any]:
    """What argparse must know of a parameter's type."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (UnionType, Union):  # `Literal[...] | None` is the latter
        return _type(next(kind for kind in inner if kind is not NoneType), option, needed)
    if origin is Literal:
        return {"choices": inner}
    if origin is not None:
        several = {"action": "extend", "nargs": "*"} if option and not needed else {"nargs": "+"}
        return _type(inner[0], option, needed) | several
    shown = {Path: "PATH", int: "N", float: "X"}.get(annotation, "TEXT")
    return {"type": annotation, **({"metavar": shown} if option else {})}


def _helps(function: Callable[..., Any]) -> dict[str, str]:
    """The text of each parameter in the `Args` of a docstring."""
    described = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2]
    described = re.split(r"\n+(?=\S)", described)[0]
    found = re.findall(r"^ {4}(\w+(?:, \w+)*): (.*?)(?=^ {4}\w|\Z)", described, re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()).rstrip(".") for names, text in found for name in names.split(", ")}


def new_console() -> Console:
    """The terminal as it is; as many columns as `COLUMNS` says, or 80, where the output goes to a file or a pipe."""
    from rich.console import Console

    return Console()


def make_table(
    title: str, header: Sequence[object], rows: Iterable[Sequence[object]], left: int = 1
) -> Table:
    """A table of texts as they are (no markup); all but the first `left` columns are aligned to the right."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left")
    for number, name in enumerate(header):
        table.add_column(escape(str(name)), justify="left" if number < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


@contextmanager
def standard_input(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments of a command whose input may be `-`: then a file that holds what standard input gave.

    Its name, by which messages call it, is `stdin` with the ending of what it holds: Parquet, JSON lines or an array,
    or a table, which is TSV if its first line has a tab.
    """
    given = [name for name in ("source", "lists", "items", "run") if str(arguments.get(name)) == "-"]
    if not given:
        yield arguments
        return
    from tempfile import TemporaryDirectory

    content = sys.stdin.buffer.read()
    first = content.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    kinds = {b"PAR1": "parquet", b"{": "jsonl", b"[": "json"}
    table = "tsv" if b"\t" in first else "csv"
    kind = next((kind for start, kind in kinds.items() if first.startswith(start)), table)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"stdin.{kind}"
        path.write_bytes(content)
        yield {**arguments, **dict.fromkeys(given, type(arguments[given[0]])(path))}
