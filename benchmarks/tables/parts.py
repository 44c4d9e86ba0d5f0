"""Fills the parts of a table: one function per kind, from run folders to Markdown lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.latency import measure
from benchmarks.tables.measures import Cell, accuracy, differences, filtering, per_query
from benchmarks.tables.page import figures_table, overlap_table
from benchmarks.tables.runs import Runner
from benchmarks.tables.spec import Part, System
from crossjem_pl.data.overlap import overlap_statistics
from crossjem_pl.evaluation.comparison import compare_runs
from crossjem_pl.evaluation.page import render
from crossjem_pl.evaluation.report import comparison_report
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

__all__ = ["KINDS", "Work"]

LATENCY = "p50 ms"


@dataclass(frozen=True)
class Work:
    """A part, the rows of it that are wanted, and what runs them."""

    part: Part
    systems: Sequence[System]
    runner: Runner
    seeds: Sequence[int]

    @property
    def left_out(self) -> dict[str, str]:
        """Systems that a smoke run cannot have, and why."""
        if not self.runner.smoke:
            return {}
        return {
            one.name: f"needs {one.encoder} from the Hugging Face hub"
            for one in self.systems
            if one.needs_hub
        }

    def folders(self) -> dict[str, list[Path]]:
        """Run folders of every system, one per seed; trains what is not there yet."""
        self.runner.teach()
        kept = [system for system in self.systems if system.name not in self.left_out]
        by_name = {system.name: system for system in kept}
        found: dict[str, list[Path]] = {}
        for system in sorted(kept, key=lambda one: one.model_of is not None):
            if system.model_of is not None and system.model_of not in by_name:
                raise ValueError(
                    f"{system.name!r} evaluates the model of {system.model_of!r}: ask for that row too"
                )
            found[system.name] = []
            for seed in self.seeds:
                model = None
                if system.model_of is not None:
                    model = self.runner.folder(by_name[system.model_of], seed) / "model"
                found[system.name].append(self.runner.run(system, seed, model))
        return {system.name: found[system.name] for system in kept}


def accuracy_part(work: Work) -> list[str]:
    part, split = work.part, work.runner.split
    frames = {name: per_query(seeds, split, part.columns) for name, seeds in work.folders().items()}
    found = {name: accuracy(seeds) for name, seeds in frames.items()}
    compared = differences(frames, part.baseline, part.columns[0]) if part.baseline in frames else {}
    return figures_table(part, found, compared, work.left_out)


def filter_part(work: Work) -> list[str]:
    folders = work.folders()
    columns = [column for column in work.part.columns if column != LATENCY]
    found = {name: filtering(seeds, work.runner.split, columns) for name, seeds in folders.items()}
    if LATENCY in work.part.columns:
        rerankers = {name: Reranker.from_pretrained(seeds[0] / "model") for name, seeds in folders.items()}
        for name, cell in _milliseconds(rerankers, work.runner.smoke).items():
            found[name][LATENCY] = cell
    return figures_table(work.part, found, {}, work.left_out)


def latency_part(work: Work) -> list[str]:
    kept = [system for system in work.systems if system.name not in work.left_out]
    rerankers = {system.name: Reranker(work.runner.ranker(system)) for system in kept}
    found = {name: {LATENCY: cell} for name, cell in _milliseconds(rerankers, work.runner.smoke).items()}
    return figures_table(work.part, found, {}, work.left_out)


def overlap_part(work: Work) -> list[str]:
    lists = work.runner.lists()
    tokenizer = ShortTextTokenizer(load_tokenizer(work.runner.shared_encoder))
    rows = []
    for limit, _ in work.part.paper:
        counted = overlap_statistics(lists, tokenizer, int(limit))
        rows.append((limit, counted.total_tokens, counted.union_tokens))
    sizes = f"{len(lists)} lists, {np.mean([len(one) for one in lists]):.0f} items each on average."
    return [sizes, "", *overlap_table(work.part, rows)]


def examples_part(work: Work) -> list[str]:
    folders = work.folders()
    names = list(folders)
    baseline = folders[work.part.baseline][0] if work.part.baseline in folders else folders[names[-1]][0]
    comparison = compare_runs(
        [seeds[0] for seeds in folders.values()],
        baseline=str(baseline),
        split=work.runner.split,
        names=work.part.columns,
    )
    return [render(comparison_report(comparison), "report.md").replace("# ", "### ")]


KINDS: Mapping[str, Callable[[Work], list[str]]] = {
    "accuracy": accuracy_part,
    "filter": filter_part,
    "latency": latency_part,
    "overlap": overlap_part,
    "examples": examples_part,
}


def _milliseconds(rerankers: Mapping[str, Reranker], smoke: bool) -> dict[str, Cell]:
    """Median latency of every ranker, taking turns on the same simulated lists."""
    times = measure(dict(rerankers), 60 if smoke else 700, rounds=3 if smoke else 15, warm=False)
    medians = {name: float(np.median(milliseconds)) for name, milliseconds in times.items()}
    return {name: Cell(median, None, None, (median,)) for name, median in medians.items()}
