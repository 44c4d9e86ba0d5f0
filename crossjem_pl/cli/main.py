"""Dispatches the command line; expected mistakes end in one message, not in a traceback."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crossjem_pl import __version__
from crossjem_pl.process import collect_no_modules, importing, quiet_libraries, small_kernel_cache

__all__ = ["COMMANDS", "TRAINING", "main"]

TRAINING = {
    "fit": "train a ranker (-c FILE or a packaged experiment, repeatable; later ones win)",
    "validate": "evaluate on the validation lists",
    "test": "evaluate: MODEL LISTS, or -c with the test lists (the validation lists if there are none)",
    "predict": "score lists and write a TREC run",
}
"""The subcommands that a configuration describes."""
COMMANDS = {
    "rank": ("rank", "rank items for a query, with a trained model or the packaged encoder"),
    "simulate": ("lists", "write simulated sponsored-search lists"),
    "convert": ("lists", "convert ranking lists between file layouts"),
    "split": ("lists", "divide ranking lists into train, dev and test by query, group or time"),
    "prepare": ("prepare", "turn a public dataset or a click log into ranking lists"),
    "check": ("check", "look for mistakes in ranking lists before training on them"),
    "overlap": ("check", "count the tokens that items share: whether a joint pass pays"),
    "evaluate": ("evaluate", "metrics of a TREC run against judgements"),
    "score": ("score", "score any number of lists, each exactly once, here or on Ray"),
    "teach": ("score", "write a model's scores of lists, to distil from"),
    "blend": ("score", "graded targets from labels and a zero-shot bi-encoder"),
    "compare": ("evaluate", "one table of several runs, with significance"),
    "report": ("evaluate", "learning curves, breakdowns and examples of runs as Markdown and HTML"),
    "threshold": ("threshold", "find and store the score below which items are filtered"),
    "tune": ("tune", "measure the fastest passes and precision of a model on this machine"),
    "tokens": ("lists", "store the token ids of items, to rank them by id"),
    "serve": ("serve", "answer rerank requests over HTTP, with a page"),
    "export": ("export", "write a model as ONNX or OpenVINO"),
}
"""The other subcommands: the module of `crossjem_pl.cli` that has the function of this name, and its help."""

_DESCRIPTION = "Re-rank short texts: train, evaluate, compare and use CROSS-JEM and its baselines."
_EPILOG = """`crossjem COMMAND --help` describes a command. `lightning` and `python -m crossjem_pl` are the same.
Exit status: 0, 1 after an error of the program, 2 after a mistake in the input, 130 after Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status: 0, 2 after a mistake in the input, 130 after Ctrl-C."""
    args = list(sys.argv[1:] if argv is None else argv)
    quiet_libraries()
    small_kernel_cache()
    if argv is None and args[:1] == ["rank"]:  # a program that ends at once
        collect_no_modules()
    try:
        _run(args)
    except _mistakes() as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _run(args: list[str]) -> None:
    helps = {**TRAINING, **{name: text for name, (_, text) in COMMANDS.items()}}
    name = _chosen("crossjem", _DESCRIPTION, helps, args)
    if name == "test" and len(args) > 1 and not args[1].startswith("-"):
        command = _function("testing", "evaluate_model")
    elif name in TRAINING:
        with importing():
            from crossjem_pl.cli.training import run_training

        run_training(args)
        return
    else:
        command = _function(COMMANDS[name][0], name)
    program, rest, text = f"crossjem {name}", args[1:], helps[name]
    if isinstance(command, Mapping):  # a function for each second word
        kinds = {kind: (function.__doc__ or "").partition(".")[0] for kind, function in command.items()}
        kind = _chosen(program, text, kinds, rest)
        command, program, rest, text = command[kind], f"{program} {kind}", rest[1:], kinds[kind]
    from crossjem_pl.cli.command import add_arguments, standard_input

    parser = argparse.ArgumentParser(prog=program, description=text[0].upper() + text[1:] + ".")
    add_arguments(parser, command)
    with standard_input(vars(parser.parse_intermixed_args(rest))) as arguments:
        command(**arguments)


def _chosen(program: str, description: str, helps: Mapping[str, str], args: Sequence[str]) -> str:
    """The first argument, if it is one of the commands; help, version and mistakes end the program."""
    parser = argparse.ArgumentParser(
        prog=program,
        description=description[0].upper() + description[1:],
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"crossjem_pl {__version__}")
    commands = parser.add_subparsers(dest="chosen", metavar="COMMAND", required=True)
    for name, text in helps.items():
        commands.add_parser(name, help=text, add_help=False)
    return str(parser.parse_args(args[:1]).chosen)


def _function(module: str, name: str) -> Callable[..., None] | Mapping[str, Callable[..., None]]:
    found: Any = getattr(importlib.import_module(f"crossjem_pl.cli.{module}"), name)
    return found


def _mistakes() -> tuple[type[Exception], ...]:
    """The errors that bad input raises: Python's, and Lightning's for contradicting trainer options if it is loaded."""
    lightning = sys.modules.get("lightning.fabric.utilities.exceptions")
    more = () if lightning is None else (lightning.MisconfigurationException,)
    return (ValueError, OSError, ImportError, *more)
