"""Reproduces a table of the papers: `python -m benchmarks.tables 6 --smoke`, or `make table6 SMOKE=1`.

Trains every system of the table that has not been trained yet, evaluates it, prints the table beside the papers'
figures and writes it as tableN.md and tableN.json.

`python -m benchmarks.tables study` is the accuracy study: CROSS-JEM, its variants and its rivals on the same number of
lists and in the same training time, with what they cost; it writes accuracy.md, accuracy.json and accuracy.png.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.charts import chart
from benchmarks.contenders import OwnRanker, measured_lists, time_in_turn
from benchmarks.pages import difference, interval, provenance, table, write
from benchmarks.program import parser, program
from benchmarks.statistics import differences, mean_cells
from benchmarks.tables.pace import seconds_per_step
from benchmarks.tables.runs import DEFAULT_ENCODER, Runner, add_run_options
from benchmarks.tables.spec import TABLES, Part, System, Targets, read_table
from crossjem_pl.data.overlap import encoder_shape, measure_overlap
from crossjem_pl.evaluation.charts import MARKERS
from crossjem_pl.evaluation.comparison import compare_runs
from crossjem_pl.evaluation.page import render
from crossjem_pl.evaluation.report import comparison_report
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

LATENCY, THROUGHPUT, PARAMETERS = "p50 ms", "pairs/s", "parameters"
_UNITS = {PARAMETERS: 1e-6, **dict.fromkeys((" ms", THROUGHPUT, "times", "lists", "minutes"), 1.0)}
_UNITS |= dict.fromkeys(("N", "L_u", "m", "N_u"), 1.0)
"""Factors of columns by how their names end; the others are per cent, parameters are in millions."""
_SMOKE_MINUTES = 0.02
_ON_LABELS = ", on labels"

Cells = dict[str, dict[str, Any]]
Found = dict[str, Cells]
"""Row -> column -> cell: `mean`, and where there are any `low`, `high`, `seeds`."""


def run(args: argparse.Namespace) -> None:
    """Trains what is missing, prints and writes the table."""
    title, parts = read_table(args.table)
    study = args.table == "study"
    name = "accuracy" if study else f"table{args.table}"
    found: dict[str, Any] = {"provenance": provenance(torch.device("cpu"), args.command), "parts": []}
    page = [f"# {title}" if study else f"# Table {args.table}: {title}", ""]
    if args.smoke:
        page += [
            "A smoke run on a few simulated lists: it shows that every step runs and says nothing of quality.",
            "",
        ]
    for part in _wanted(args, parts):
        runner = Runner(args.dataset or part.dataset, args)
        rows = tuple(row for row in part.rows if args.only is None or row.name in args.only)
        if part.kind != "settings":
            runner.check_data()
        work = Work(
            dataclasses.replace(part, rows=rows), runner, args.seeds[:1] if part.one_seed else args.seeds
        )
        lines, cells = KINDS[part.kind](work)
        found["parts"].append({"caption": part.caption, "dataset": runner.name, "cells": cells})
        page += [f"## {part.caption}", "", runner.describe(), ""]
        if part.kind != "overlap" and (args.table, part.kind) != ("study", "latency"):
            page += [*_settings_lines(work), ""]
        page += [*lines, "", *([part.note, ""] if part.note else [])]
        if runner.commands:
            page += ["```text", *dict.fromkeys(runner.commands), "```", ""]
    page += [
        "Our figures are in per cent (latencies in milliseconds, parameters in millions), with 95% bootstrap intervals "
        "over queries; where there are several seeds their means are in brackets. p: paired randomisation test, "
        "Holm-corrected over the rows. The papers' figures are from their own data, encoders and machines."
    ]
    out = args.out / "smoke" if args.smoke else args.out
    write(found, page, out, name)
    if study:
        plot_pareto(found, out / f"{name}.png")


def _wanted(args: argparse.Namespace, parts: Sequence[Part]) -> list[Part]:
    """The parts of the table that are asked for.

    Raises:
        ValueError: if there is no such part, or no such row in any of them.
    """
    numbers = args.parts or range(1, len(parts) + 1)
    if not all(1 <= number <= len(parts) for number in numbers):
        raise ValueError(f"--parts: table {args.table} has the parts 1 to {len(parts)}, got {numbers}")
    chosen = [parts[number - 1] for number in numbers]
    rows = dict.fromkeys(row.name for part in chosen for row in part.rows)
    if unknown := [name for name in (*(args.only or ()), *(args.several or ())) if name not in rows]:
        raise ValueError(f"there is no row {unknown[0]!r}; there are {', '.join(map(repr, rows))}")
    return chosen


@dataclasses.dataclass
class Work:
    """A part with the rows that are wanted, and what runs them."""

    part: Part
    runner: Runner
    seeds: Sequence[int]

    @property
    def kept(self) -> list[System]:
        """The rows that this run can have: a smoke run has none that need the hub."""
        return [row for row in self.part.rows if not (self.runner.args.smoke and row.hub_model)]

    @cached_property
    def steps(self) -> dict[str, int]:
        """Optimiser steps of every row that has a budget, see `Part`."""
        args, runner = self.runner.args, self.runner
        if self.part.budget is None:
            return {}
        if self.part.budget == "minutes":
            minutes = _SMOKE_MINUTES if args.smoke else args.minutes
            return {name: max(1, round(60 * minutes / seconds)) for name, seconds in self.pace.items()}
        count = args.lists or len(runner.build(self.kept[0]).datamodule.lists("train"))
        return dict.fromkeys(
            [row.name for row in self.kept if row.learns], math.ceil(count / self.batch_size)
        )

    @cached_property
    def batch_size(self) -> int:
        """Lists of a training step."""
        return int(self.runner.config(self.kept[0]).data.batch_size)

    @cached_property
    def pace(self) -> dict[str, float]:
        """Seconds of an optimiser step of every row."""
        learning = [row for row in self.kept if row.learns]
        return seconds_per_step(self.runner, learning, *((2, 1) if self.runner.args.smoke else ()))

    def folders(self, targets: Targets = "scores") -> dict[str, list[Path]]:
        """Run folders of every row, one per seed; trains what is not there yet."""
        if any(row.learns and (row.targets or targets) == "scores" for row in self.kept):
            self.runner.teach()
        rows = {row.name: row for row in self.kept if row.learns or targets == "scores"}
        found: dict[str, list[Path]] = {}
        for name, row in sorted(rows.items(), key=lambda pair: pair[1].model_of is not None):
            if row.model_of is not None and row.model_of not in rows:
                raise ValueError(f"{name!r} evaluates the model of {row.model_of!r}: ask for that row too")
            found[name] = []
            several = self.runner.args.several
            for i, seed in enumerate(self.seeds if several is None or name in several else self.seeds[:1]):
                model = None if row.model_of is None else found[row.model_of][i] / "model"
                found[name].append(self.runner.run(self._planned(row), seed, targets, model))
        return {name: found[name] for name in rows}

    def _planned(self, row: System) -> System:
        """The row with its number of steps, if it has a budget."""
        if row.name not in self.steps or not row.learns:
            return row
        steps = self.steps[row.name]
        plan = {"max_epochs": -1, "max_steps": steps, "check_val_every_n_epoch": "null"}
        plan |= {"val_check_interval": steps}
        options = {**row.options, **{f"trainer.{key}": value for key, value in plan.items()}}
        return dataclasses.replace(row, options=options)

    def settings(self, row: System) -> dict[str, Any]:
        """What the papers state of a row's training, as it is configured here; without what it does not have."""
        config = self.runner.config(row)
        given = config.model.ranker.get("init_args", {})
        found = {
            "N": config.data.n_items,
            "L_u": given.get("max_union_tokens"),
            "encoder": given.get("encoder"),
        }
        if row.learns:
            found |= {"targets": config.model.targets, "learning rate": config.model.lr}
            found["loss"] = config.model.loss.class_path.rsplit(".", 1)[1]
        elif row.published or not row.trained:
            found["targets"] = "as published" if row.published else "none"
        return {name: value for name, value in found.items() if value is not None}


def accuracy_part(work: Work) -> tuple[list[str], Found]:
    part, runner = work.part, work.runner
    metrics = [column for column in part.columns if column != PARAMETERS]
    folders = work.folders()
    frames = {name: runner.per_query(seeds, metrics) for name, seeds in folders.items()}
    found: Found = {name: mean_cells(seeds) for name, seeds in frames.items()}
    if part.labels_too:
        for name, seeds in work.folders("labels").items():
            cells = mean_cells(runner.per_query(seeds, metrics))
            found[name] |= {column + _ON_LABELS: cell for column, cell in cells.items()}
    if PARAMETERS in part.columns:
        for row in work.kept:
            count = sum(weight.numel() for weight in runner.ranker(row).parameters())
            found[row.name][PARAMETERS] = {"mean": float(count)}
    for name, steps in work.steps.items():
        found[name]["lists"] = {"mean": float(steps * work.batch_size)}
        found[name]["minutes"] = {"mean": steps * work.pace[name] / 60}
    for metric in metrics[:2]:
        for name, cell in differences(frames, part.baseline or "", metric).items():
            found[name][f"{metric} against {part.baseline} (p)"] = dict(cell)
    return _figures(work, found), found


def filter_part(work: Work) -> tuple[list[str], Found]:
    """Ranking metrics per query; of AUC and accuracies the figure of all (query, item) pairs, as the papers."""
    columns, found = [column for column in work.part.columns if column != LATENCY], {}
    folders = work.folders()
    for name, seeds in folders.items():
        evaluations = work.runner.evaluations(seeds, columns)
        pooled = evaluations[0].pooled
        ranking = [column for column in evaluations[0].per_query.columns if column not in pooled]
        found[name] = mean_cells([one.per_query[ranking] for one in evaluations]) if ranking else {}
        for column in pooled:
            values = [one.pooled[column] for one in evaluations]
            found[name][column] = {"mean": float(np.mean(values)), "seeds": values}
    if LATENCY in work.part.columns:
        rerankers = {name: Reranker.from_pretrained(seeds[0] / "model") for name, seeds in folders.items()}
        for name, cells in _latencies(work, rerankers).items():
            found[name] |= cells
    return _figures(work, found), found


def latency_part(work: Work) -> tuple[list[str], Found]:
    rankers: dict[str, Any] = {row.name: work.runner.ranker(row) for row in work.kept}
    if torch.cuda.is_available() and "monoBERT" in rankers:
        rankers["monoBERT"].pairs_per_pass = 512
    found = _latencies(work, {name: Reranker(ranker) for name, ranker in rankers.items()})
    return _figures(work, found), found


def settings_part(work: Work) -> tuple[list[str], Found]:
    found: Found = {}
    for row in work.kept:
        settings = work.settings(row)
        found[row.name] = {column: {"mean": float(settings[column])} for column in work.part.columns}
    return _figures(work, found), found


def overlap_part(work: Work) -> tuple[list[str], Found]:
    """m and N_u for every limit L."""
    runner, found = work.runner, {}
    lists = runner.build(System(runner.name)).datamodule.lists(runner.split)
    encoder = runner.encoder or DEFAULT_ENCODER
    tokenizer, limits = ShortTextTokenizer(load_tokenizer(encoder)), [int(row.name) for row in work.part.rows]
    report = measure_overlap(lists, tokenizer, encoder_shape(encoder), max_item_tokens=limits, items=[1])
    for counted in report.limits:
        means = {"m": counted.total_tokens, "N_u": counted.union_tokens}
        found[str(counted.max_item_tokens)] = {name: {"mean": mean} for name, mean in means.items()}
    sizes = f"{len(lists)} lists, {np.mean([len(ranking_list) for ranking_list in lists]):.0f} items each on average."
    return [sizes, "", *_figures(work, found)], found


def examples_part(work: Work) -> tuple[list[str], Found]:
    folders = work.folders()
    baseline = folders.get(work.part.baseline or "", next(reversed(folders.values())))[0]
    runs = [seeds[0] for seeds in folders.values()]
    comparison = compare_runs(runs, baseline=str(baseline), split=work.runner.split, names=work.part.columns)
    return [render(comparison_report(comparison), "md").replace("# ", "### ")], {}


KINDS: Mapping[str, Callable[[Work], tuple[list[str], Found]]] = {
    "accuracy": accuracy_part,
    "filter": filter_part,
    "latency": latency_part,
    "settings": settings_part,
    "overlap": overlap_part,
    "examples": examples_part,
}


def _settings_lines(work: Work) -> list[str]:
    """How every row is trained, as the configuration has it; N: items drawn of a list and step."""
    rows = [{"name": row.name} | work.settings(row) for row in work.kept]
    names = ("N", "L_u", "encoder", "targets", "loss", "learning rate")
    return table(rows, {"": "{name}"} | {name: f"{{{name}}}" for name in names})


def _figures(work: Work, found: Found) -> list[str]:
    """One line per row: every column with its interval, the papers' figure, and the difference to the baseline."""
    columns = list(
        dict.fromkeys([*work.part.columns, *(column for cells in found.values() for column in cells)])
    )

    def ours(column: str) -> Callable[[Any], str]:
        if column.endswith("(p)"):
            return lambda row: difference(found[row["name"]][column])
        scale = next((factor for unit, factor in _UNITS.items() if column.endswith(unit)), 100.0)
        return lambda row: interval(found[row["name"]][column], scale, 2 if scale == 100 else 1)

    form: dict[str, Any] = {"system": "{name}"}
    for column in columns:
        form[column] = ours(column)
        if any(column in row.paper for row in work.part.rows):
            form[f"paper's {column}"] = f"{{paper[{column}]:g}}"
    lines = table([dataclasses.asdict(row) for row in work.part.rows], form)
    for row in work.part.rows:
        if row not in work.kept:
            lines += ["", f"Not run: {row.name}: needs {row.hub_model} from the Hugging Face hub."]
    return lines


def _latencies(work: Work, rerankers: Mapping[str, Reranker]) -> Found:
    """Median milliseconds of every ranker, texts in and sorted items out, in turn on the same simulated lists.

    Of 700 items, with pairs a second; or of the number of items in each column, such as "100 ms".
    """
    smoke, found = work.runner.args.smoke, dict[str, dict[str, Any]]()
    contenders = [OwnRanker(name, reranker) for name, reranker in rerankers.items()]
    sizes = {column: int(column.split()[0]) for column in work.part.columns if column[0].isdigit()}
    for column, items in (sizes or {LATENCY: 700}).items():
        lists = measured_lists(min(items, 60) if smoke else items, 3 if smoke else work.runner.args.rounds)
        for name, times in time_in_turn(contenders, [[ranking_list] for ranking_list in lists]).items():
            found.setdefault(name, {})[column] = {"mean": times.median}
            if column == LATENCY:
                found[name][THROUGHPUT] = {"mean": 1000 * len(lists[0]) / times.median}
    return found


def plot_pareto(found: Mapping[str, Any], path: Path) -> None:
    """RR@10 with its interval, in equal time, against the milliseconds of ranking lists of 100 items."""
    cells = {part["caption"]: part["cells"] for part in found["parts"]}
    costs, accuracies = cells.get("Inference"), cells.get("Equal training time") or cells.get("Equal lists")
    if not costs or not accuracies:
        return
    with chart(path, found["provenance"]["machine"], width=8.0) as (axes,):
        for i, name in enumerate(name for name in accuracies if name in costs):
            mean, low, high = (100 * accuracies[name]["RR@10"][key] for key in ("mean", "low", "high"))
            x, error = costs[name]["100 ms"]["mean"], [[mean - low], [high - mean]]
            axes.errorbar(x, mean, error, fmt=MARKERS[i % len(MARKERS)], ms=5, lw=0.8, label=name)
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        axes.set_xscale("log")
        axes.set_xlabel("milliseconds, 100 items")
        axes.set_ylabel("RR@10, per cent")


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.tables", __doc__, "docs/results", encoder=None)
    add = out.add_argument
    add("table", choices=TABLES)
    add("--dataset", help="another experiments/NAME.yaml than the table's own")
    add("--parts", type=int, nargs="+", help="only these parts of the table, from 1")
    add("--lists", type=int, help="study: training lists of the parts with equal lists (default: all)")
    add("--minutes", type=float, default=10.0, help="study: of training, for equal time (default 10)")
    add("--rounds", type=int, default=15, help="lists that are timed (default 15)")
    add_run_options(out, "runs/tables")
    return out


main = partial(program, _options, run)

if __name__ == "__main__":
    raise SystemExit(main())
