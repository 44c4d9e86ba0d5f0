"""Reproduces a table of the papers: `python -m benchmarks.tables 6 --smoke`, or `make table6 SMOKE=1`.

Trains every system of the table that has not been trained yet, evaluates it, prints the table beside the paper's
figures and writes it as Markdown.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.measuring.options import exit_status
from benchmarks.tables.parts import KINDS, Work
from benchmarks.tables.runs import DEFAULT_ENCODER, Runner, read_dataset
from benchmarks.tables.spec import TABLES, Part, TableSpec, read_table
from crossjem_pl.cli.main import quiet_libraries
from crossjem_pl.rankers.encoders import PACKAGED
from crossjem_pl.training.run_folder import describe_machine


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after a mistake in the input or a failed training."""
    args = _parser().parse_args(argv)
    quiet_libraries()
    return exit_status(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    text = "\n".join(_page(read_table(args.table), args))
    Console(width=140).print(Markdown(text))
    out = args.out / "smoke" if args.smoke else args.out
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"table{args.table}.md"
    path.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {path}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", type=int, choices=TABLES)
    parser.add_argument("--data", type=Path, help="folder of the lists, or of the datasets' folders")
    parser.add_argument("--dataset", help="another experiments/NAME.yaml than the table's own")
    parser.add_argument("--encoder", help=f"default {DEFAULT_ENCODER}; {PACKAGED} with --smoke")
    parser.add_argument("--teacher-encoder", help="default: the same")
    parser.add_argument("--scores", type=Path, help="teacher scores that are there already")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--parts", type=int, nargs="+", help="only these parts of the table, from 1")
    parser.add_argument("--only", nargs="+", metavar="SYSTEM", help="only these rows")
    parser.add_argument(
        "--overlays", type=Path, nargs="+", default=[], help="configuration files for every run"
    )
    parser.add_argument("--encoder-options", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs/tables"))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--smoke", action="store_true", help="a few simulated lists: minutes on two cores")
    parser.add_argument(
        "--options", nargs=argparse.REMAINDER, default=[], help="options of every run; comes last"
    )
    return parser


def _page(spec: TableSpec, args: argparse.Namespace) -> list[str]:
    out = [f"# Table {spec.number}: {spec.title}", ""]
    if args.smoke:
        out += [
            "A smoke run on a few simulated lists: it shows that every step runs and says nothing of quality.",
            "",
        ]
    for part in (spec.parts[number - 1] for number in args.parts or range(1, len(spec.parts) + 1)):
        out += _part(part, args)
    return [
        *out,
        f"Machine: {describe_machine()}. Our figures are in per cent (latencies in milliseconds), with 95% bootstrap "
        "intervals over queries; where there are several seeds their means are in brackets. p: paired randomisation "
        "test, Holm-corrected over the rows. The paper's figures are from its own data, encoders and machines.",
    ]


def _part(part: Part, args: argparse.Namespace) -> list[str]:
    runner = Runner(
        dataset=read_dataset(args.dataset or part.dataset, args.data),
        encoder=args.encoder or (PACKAGED if args.smoke else None),
        teacher_encoder=args.teacher_encoder,
        scores=args.scores,
        overlays=args.overlays,
        encoder_options=args.encoder_options
        or (["dropout=0", "freeze_embeddings=true"] if args.smoke else []),
        options=args.options,
        runs=args.runs,
        smoke=args.smoke,
    )
    runner.check_data()
    systems = [system for system in part.systems if args.only is None or system.name in args.only]
    seeds = ", ".join(map(str, args.seeds))
    about = (
        f"{runner.describe()}; encoder {runner.shared_encoder}; seed{'s' * (len(args.seeds) > 1)} {seeds}."
    )
    lines = KINDS[part.kind](Work(part, systems, runner, args.seeds))
    commands = ["```text", *dict.fromkeys(runner.commands), "```", ""] if runner.commands else []
    return [
        f"## {part.caption}",
        "",
        about,
        "",
        *lines,
        "",
        *([part.note, ""] if part.note else []),
        *commands,
    ]


if __name__ == "__main__":
    raise SystemExit(main())
