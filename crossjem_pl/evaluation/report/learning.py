"""The section on the course of the training."""

from __future__ import annotations

from collections.abc import Sequence

from crossjem_pl.evaluation.report.contents import Block, Figure, Missing, Paragraph, Section, Table
from crossjem_pl.evaluation.report.curves import Curve
from crossjem_pl.evaluation.report.figures import draw_losses, draw_validations
from crossjem_pl.evaluation.report.folders import RunRecord, setting

__all__ = ["learning_section"]


def learning_section(records: Sequence[RunRecord], metric: str, draw: bool) -> Section:
    """Training losses and monitored metrics against steps, and where the best validation was.

    Losses of one class share a plot; losses of different classes have different scales and get one each. Of
    several runs `metric` is drawn, of one run all metrics.
    """
    blocks: list[Block] = []
    trained = [record for record in records if record.curve is not None]
    for record in records:
        if record.path.is_dir() and record.curve is None:
            blocks.append(
                Missing(f"{record.name}: {record.path / 'metrics.csv'} is missing, so it has no curves.")
            )
        elif record.curve is None:
            blocks.append(Missing(f"{record.name} is a bare run file, which tells nothing of a training."))
    if not trained:
        return Section("Learning curves", tuple(blocks))
    if draw:
        blocks += _loss_figures(trained)
        blocks += _validation_figures(trained, metric)
    blocks.append(_table(trained, metric))
    blocks += [Paragraph(text) for text in _remarks(trained)]
    return Section("Learning curves", tuple(blocks))


def _loss_figures(records: Sequence[RunRecord]) -> list[Block]:
    groups: dict[tuple[str | None, str], dict[str, Curve]] = {}
    for record in records:
        if record.curve is not None and record.curve.loss is not None:
            alone = "" if record.loss is not None else record.name
            groups.setdefault((record.loss, alone), {})[record.name] = record.curve.loss
    return [
        Figure(f"training-loss-{number}", draw_losses(_title(loss, curves), curves))
        for number, ((loss, _), curves) in enumerate(groups.items(), 1)
    ]


def _title(loss: str | None, curves: dict[str, Curve]) -> str | None:
    """A plot of one run has no legend, so its title names the run."""
    if len(curves) > 1:
        return loss
    name = next(iter(curves))
    return name if loss is None else f"{loss}, {name}"


def _validation_figures(records: Sequence[RunRecord], metric: str) -> list[Block]:
    curves = {record.name: record.curve.metrics for record in records if record.curve is not None}
    if len(curves) == 1:
        name, metrics = next(iter(curves.items()))
        return [Figure("validation", draw_validations(f"Validation, {name}", metrics))] if metrics else []
    monitored = {name: metrics[metric] for name, metrics in curves.items() if metric in metrics}
    return [Figure("validation", draw_validations(f"Validation {metric}", monitored))] if monitored else []


def _table(records: Sequence[RunRecord], metric: str) -> Table:
    monitored = dict.fromkeys(name for one in records if one.curve is not None for name in one.curve.metrics)
    names = sorted(monitored, key=lambda name: name != metric)  # the chosen one first
    rows = []
    for record in records:
        curve = record.curve
        if curve is None:
            continue
        last = max(int(one.steps[-1]) for one in (curve.loss, *curve.metrics.values()) if one is not None)
        first = next(iter(curve.metrics.items()), None)
        rows.append(
            (
                record.name,
                record.loss or "–",
                f"{last + 1:,}",  # Lightning counts steps from 0
                "–" if first is None else f"{len(first[1].steps):,}",
                *(_best(curve.metrics, name) for name in names),
            )
        )
    columns = ("Run", "Loss", "Steps", "Validations", *(f"Best {name} (step)" for name in names))
    return Table(columns, tuple(rows), words=(1,))


def _best(metrics: dict[str, Curve], name: str) -> str:
    if name not in metrics:
        return "–"
    curve = metrics[name]
    best = int(curve.values.argmax())
    return f"{curve.values[best]:.4f} ({curve.steps[best] + 1:,})"


def _remarks(records: Sequence[RunRecord]) -> list[str]:
    remarks = [
        "Faint: the logged loss of single batches; strong: a moving mean over a twentieth of the points. Monitored "
        "metrics see the candidates of a list only; the results above are ir-measures' over all judgements."
    ]
    if len({record.loss for record in records}) > 1:
        remarks.append(
            "Losses of different classes have different scales: compare the metrics, not the losses."
        )
    sizes = {record.name: setting(record.config, "data", "batch_size") for record in records}
    if len({size for size in sizes.values() if size is not None}) > 1:
        lists = ", ".join(f"{name} {size}" for name, size in sizes.items() if size is not None)
        remarks.append(f"Steps are not alike: lists per step and process are {lists}.")
    for record in records:
        curve = record.curve
        if curve is not None and len(curve.files) > 1:
            rows = f"; {curve.replaced:,} logged rows of earlier starts were gone over again"
            again = f"{rows} and count from the later one"
            remarks.append(
                f"{record.name} was started {len(curve.files)} times: its curves are put together from "
                f"{', '.join(curve.files)}{again if curve.replaced else ''}."
            )
        if curve is not None and not curve.metrics:
            remarks.append(f"{record.name} was trained without validation, so it has a loss only.")
    return remarks
