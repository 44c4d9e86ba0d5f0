"""Dispatches the command line; expected mistakes end in one message, not in a traceback."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

__all__ = ["COMMANDS", "main", "quiet_libraries"]

TRAINING = {
    "fit": "train a ranker (-c FILE or a packaged experiment, repeatable; later ones win)",
    "validate": "evaluate on the validation lists",
    "test": "evaluate: MODEL LISTS, or -c with the test lists (the validation lists if there are none)",
    "predict": "score lists and write a TREC run",
}
COMMANDS = {
    "rank": "rank items for a query, with a trained model or the packaged encoder",
    "simulate": "write simulated sponsored-search lists",
    "convert": "convert ranking lists between file layouts",
    "split": "divide ranking lists into train, dev and test by query, group or time",
    "prepare": "turn a public dataset or a click log into ranking lists",
    "check": "look for mistakes in ranking lists before training on them",
    "overlap": "count the tokens that items share: whether a joint pass pays",
    "evaluate": "metrics of a TREC run against judgements",
    "teach": "write a model's scores of lists, to distil from",
    "blend": "graded targets from labels and a zero-shot bi-encoder",
    "compare": "one table of several runs, with significance",
    "report": "learning curves, breakdowns and examples of runs as Markdown and HTML",
    "threshold": "find and store the score below which items are filtered",
    "tune": "measure the fastest passes and precision of a model on this machine",
    "tokens": "store the token ids of items, to rank them by id",
    "serve": "answer rerank requests over HTTP, with a page",
    "export": "write a model as ONNX or OpenVINO",
}
"""Subcommands beside the training ones; each is the module `crossjem_pl.cli.<name>`."""

_EPILOG = """`crossjem COMMAND --help` describes a command. `lightning` and `python -m crossjem_pl` are the same.
Exit status: 0, 1 after an error of the program, 2 after a mistake in the input, 130 after Ctrl-C."""

_NOISE = (
    ".*args parameter is intended to run from within Python.*",
    ".*Total length of `list` across ranks is zero.*",
    ".*exists and is not empty.*",
    ".*does not have many workers.*",
    ".*isinstance\\(treespec, LeafSpec\\).*",
    ".*predict returned None.*",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status: 0, 2 after a mistake in the input, 130 after Ctrl-C."""
    args = list(sys.argv[1:] if argv is None else argv)
    quiet_libraries()
    try:
        if args[:1] == ["test"] and len(args) > 1 and not args[1].startswith("-"):
            from crossjem_pl.cli.testing import run_test

            run_test(args[1:])
        elif args and args[0] in TRAINING:
            from crossjem_pl.cli.training import run_training

            run_training(args)
        else:
            _run_command(args)
    except _mistakes() as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _run_command(args: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="crossjem",
        description="Re-rank short texts: train, evaluate, compare and use CROSS-JEM and its baselines.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="print the version and exit"
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in TRAINING.items():
        subparsers.add_parser(name, help=text, add_help=False)
    chosen = args[0] if args and args[0] in COMMANDS else None
    for name, text in COMMANDS.items():
        sub = subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == chosen:  # the other commands' modules need not be imported
            _module(name).add_arguments(sub)
    parsed, rest = parser.parse_known_args(args)
    if rest and ("texts" not in parsed or any(text.startswith("-") for text in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:  # argparse takes the texts before an option, and leaves those behind it
        parsed.texts += rest
    _module(parsed.command).run(parsed)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import crossjem_pl

        print(f"crossjem_pl {crossjem_pl.__version__}")
        parser.exit()


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"crossjem_pl.cli.{name}")


def _mistakes() -> tuple[type[Exception], ...]:
    """The errors that bad input raises: Python's, and Lightning's for contradicting trainer options if it is loaded."""
    lightning = sys.modules.get("lightning.fabric.utilities.exceptions")
    more = () if lightning is None else (lightning.MisconfigurationException,)
    return (ValueError, OSError, ImportError, *more)


def quiet_libraries() -> None:
    """Hides what libraries print and a user cannot act on. It imports none of them."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # lightning's calls, not the user's
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(
        lambda record: "litlogger" not in record.getMessage() and "litmodels" not in record.getMessage()
    )
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message)
