"""The accuracy study: rivals and variants at equal lists and in equal training time, with significance and cost.

    python -m benchmarks.study --data data/debian-titles --minutes 10 --seeds 0 --more-seeds 1 2

Parts: "lists" trains every system on the same number of lists, "time" every system for the same number of minutes
(a system's seconds per optimiser step are measured first, on this machine, and decide its number of steps),
"ablation" CROSS-JEM's heads, item layers and unions at the same number of lists. Finished trainings are not
repeated. --more-seeds trains the baseline and the best other system of a part with further seeds. Without --scores
a monoBERT is trained on the labels and scores the training lists.

Writes accuracy.json, accuracy.md and accuracy.png.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring.options import exit_status, parser
from benchmarks.measuring.pages import conditions, describe_conditions, write
from benchmarks.study.cost import inference_cost
from benchmarks.study.pace import seconds_per_step
from benchmarks.study.page import METRICS, Trained, accuracy_table, cost_table, plot_pareto
from benchmarks.study.spec import read_study
from benchmarks.tables.measures import accuracy, per_query
from benchmarks.tables.runs import Runner, read_dataset
from benchmarks.tables.spec import System
from crossjem_pl.cli.main import quiet_libraries
from crossjem_pl.rankers.encoders import PACKAGED

PARTS = ("lists", "time", "ablation")

_SMOKE_MINUTES = 0.02
_SMOKE_VARIANTS = 7
"""A smoke run trains every seventh row of the ablation, the baseline first."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after a mistake in the input or a failed training."""
    args = _options().parse_args(argv)
    quiet_libraries()
    return exit_status(lambda: run(args))


def run(args: argparse.Namespace) -> None:
    """Trains what is missing, measures, prints and writes."""
    study = read_study()
    runner = _runner(args)
    runner.check_data()
    rivals = bool({"lists", "time"} & set(args.parts))
    systems = _chosen(study.systems, args.only) if rivals else []
    variants = _chosen(study.ablation, args.only) if "ablation" in args.parts else []
    if args.smoke:
        variants = variants[::_SMOKE_VARIANTS]
    around = conditions(torch.device("cpu"))
    lines = ["# Accuracy study", "", *describe_conditions(around)]
    if args.smoke:
        lines += [
            "A smoke run on a few simulated lists: it shows that every step runs and says nothing of quality.",
            "",
        ]
    lines += [f"{runner.describe()}; encoder {runner.shared_encoder}.", ""]
    found: dict[str, Any] = {"conditions": around, "dataset": args.dataset}

    runner.teach()
    pace = seconds_per_step(runner, systems, **({"steps": 2, "rounds": 1} if args.smoke else {}))
    built = runner.build([*systems, *variants][0])
    batch_size = int(built.datamodule.batch_size)
    count = args.lists or len(built.datamodule.lists("train"))
    minutes = _SMOKE_MINUTES if args.smoke else args.minutes
    plans: dict[str, tuple[str, str, Sequence[System], Callable[[System], int]]] = {
        "lists": (
            f"Equal lists: {count:,}, each seen once",
            study.baseline,
            systems,
            lambda system: math.ceil(count / batch_size),
        ),
        "time": (
            f"Equal training time: {minutes:g} minutes",
            study.baseline,
            systems,
            lambda system: max(1, round(60 * minutes / pace[system.name])),
        ),
        "ablation": (
            f"Ablation: {count:,} lists, each seen once",
            study.ablation_baseline,
            variants,
            lambda system: math.ceil(count / batch_size),
        ),
    }
    done: dict[str, Trained] = {}
    for part in args.parts:
        title, baseline, rows, steps = plans[part]
        trained = _train(runner, rows, steps, pace, batch_size, args.seeds, baseline, args.more_seeds)
        done[part] = trained
        found[part] = _as_json(trained)
        first = baseline if baseline in trained.frames else next(iter(trained.frames))
        lines += [f"## {title}", "", *accuracy_table(trained, first), ""]
    args.out.mkdir(parents=True, exist_ok=True)
    if done.keys() & {"lists", "time"}:
        costs = inference_cost(
            {system.name: runner.ranker(system).eval() for system in systems},
            (10, 20) if args.smoke else args.items,
            2 if args.smoke else args.rounds,
            args.precision,
        )
        found["cost"] = {
            name: {n: dataclasses.asdict(c) for n, c in own.items()} for name, own in costs.items()
        }
        first = study.baseline if study.baseline in costs else next(iter(costs))
        lines += [
            "## Inference",
            "",
            f"Simulated keyword lists, one query at a time, {args.precision}, medians; scoring: encoder and pooling; "
            "whole: texts in, sorted items out, nothing tokenised ahead. Rankers that encode items apart have their "
            "vectors computed ahead.",
            "",
            *cost_table(costs, first),
            "",
        ]
        part = "time" if "time" in done else "lists"
        sizes = list(next(iter(costs.values())))
        title = f"{plans[part][0]}. {around['machine']}, {args.precision}"
        plot_pareto(done[part], costs, sizes[len(sizes) // 2], title, args.out / "accuracy.png")
    lines += [
        "Figures in per cent, with 95% bootstrap intervals over queries; several seeds are averaged per query first "
        "and stand in brackets. p: paired randomisation test against the baseline, Holm-corrected over a table's rows. "
        "Training minutes: optimiser steps times the median seconds of a step.",
        "",
        *(["```text", *dict.fromkeys(runner.commands), "```"] if runner.commands else []),
    ]
    write(found, lines, args.out, "accuracy")
    print(f"wrote {args.out}/accuracy.json, accuracy.md")


def _train(
    runner: Runner,
    systems: Sequence[System],
    steps_of: Callable[[System], int],
    pace: dict[str, float],
    batch_size: int,
    seeds: Sequence[int],
    baseline: str,
    more_seeds: Sequence[int],
) -> Trained:
    out = Trained()

    def add(system: System, chosen: Sequence[int]) -> None:
        steps = out.steps[system.name] = steps_of(system)
        out.lists[system.name] = steps * batch_size
        if system.name in pace:
            out.minutes[system.name] = steps * pace[system.name] / 60
        options = (
            ("trainer.max_epochs", "-1"),
            ("trainer.max_steps", str(steps)),
            ("trainer.check_val_every_n_epoch", "null"),
            ("trainer.val_check_interval", str(steps)),
        )
        planned = dataclasses.replace(system, options=(*system.options, *options))
        folders = out.folders.setdefault(system.name, [])
        folders += [runner.run(planned, seed) for seed in chosen]
        out.frames[system.name] = per_query(folders, runner.split, METRICS)

    for system in systems:
        add(system, seeds)
    if more_seeds and len(systems) > 1:
        others = [system for system in systems if system.name != baseline]
        best = max(others, key=lambda system: accuracy(out.frames[system.name])[METRICS[0]].mean)
        for system in systems:
            if system.name in (baseline, best.name):
                add(system, more_seeds)
    return out


def _as_json(trained: Trained) -> dict[str, Any]:
    return {
        name: {
            "figures": {metric: dataclasses.asdict(cell) for metric, cell in accuracy(frames).items()},
            "steps": trained.steps[name],
            "lists": trained.lists[name],
            "minutes": trained.minutes.get(name),
            "runs": [str(folder) for folder in trained.folders[name]],
        }
        for name, frames in trained.frames.items()
    }


def _chosen(systems: Sequence[System], only: Sequence[str] | None) -> list[System]:
    kept = [system for system in systems if only is None or system.name in only]
    if not kept:
        raise ValueError(f"--only names none of {', '.join(repr(system.name) for system in systems)}")
    return kept


def _runner(args: argparse.Namespace) -> Runner:
    return Runner(
        dataset=read_dataset(args.dataset, args.data),
        encoder=args.encoder or PACKAGED,
        teacher_encoder=args.teacher_encoder,
        scores=args.scores,
        overlays=args.overlays,
        encoder_options=args.encoder_options,
        options=args.options,
        runs=args.runs,
        smoke=args.smoke,
    )


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.study", __doc__)
    out.add_argument(
        "--dataset", default="debian-titles", help="experiments/NAME.yaml (default debian-titles)"
    )
    out.add_argument("--data", type=Path, help="folder of the lists")
    out.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    out.add_argument("--lists", type=int, help="training lists of the parts with equal lists (default: all)")
    out.add_argument("--minutes", type=float, default=10.0, help="of training, for equal time (default 10)")
    out.add_argument("--seeds", type=int, nargs="+", default=[0])
    out.add_argument(
        "--more-seeds", type=int, nargs="*", default=[], help="of the baseline and the best other system"
    )
    out.add_argument(
        "--only", nargs="+", metavar="SYSTEM", help="only these rows of every part that has them"
    )
    out.add_argument("--encoder", help=f"default {PACKAGED}")
    out.add_argument("--teacher-encoder", help="default: the same")
    out.add_argument("--scores", type=Path, help="teacher scores that are there already")
    out.add_argument("--overlays", type=Path, nargs="+", default=[], help="configuration files for every run")
    out.add_argument("--encoder-options", nargs="+", default=[], metavar="KEY=VALUE")
    out.add_argument(
        "--items", type=int, nargs="+", default=[30, 100, 700], help="list lengths that are timed"
    )
    out.add_argument("--rounds", type=int, default=9, help="lists of a length")
    out.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of the timings")
    out.add_argument("--runs", type=Path, default=Path("runs/study"))
    out.add_argument("--out", type=Path, default=Path("docs/results"))
    out.add_argument("--smoke", action="store_true", help="a few simulated lists: minutes on two cores")
    out.add_argument(
        "--options", nargs=argparse.REMAINDER, default=[], help="options of every run; comes last"
    )
    return out


if __name__ == "__main__":
    raise SystemExit(main())
