"""The section on calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crossjem_pl.evaluation.report.calibration import calibrate, observations, what_scores_are, why_not
from crossjem_pl.evaluation.report.contents import Block, Figure, Folded, Missing, Paragraph, Section, Table
from crossjem_pl.evaluation.report.figures import draw_calibration
from crossjem_pl.evaluation.report.folders import RunRecord

__all__ = ["calibration_section"]

_SOURCE = ("Nguyen and O'Connor, EMNLP 2015", "https://aclanthology.org/D15-1182/")
_ANSWER = {True: "yes", False: "no", None: "not known"}


def calibration_section(
    records: Sequence[RunRecord], qrels: Mapping[str, Mapping[str, int]], draw: bool
) -> Section:
    """sigmoid(score) against the share of relevant items, and whether that was what training aimed at."""
    blocks: list[Block] = []
    found, rows, bins, reasons = {}, [], [], []
    for record in records:
        if record.stored is None:
            continue
        refusal = why_not(record)
        if refusal is not None:
            blocks.append(Missing(f"{refusal}."))
            continue
        probable, reason = what_scores_are(record)
        one = calibrate(*observations(record.stored.scores, qrels))
        found[record.name] = one
        reasons.append(f"{record.name}: {reason}.")
        rows.append(
            (
                record.name,
                _ANSWER[probable],
                f"{one.error:.4f}",
                f"{one.mean_predicted:.4f}",
                f"{one.share_relevant:.4f}",
                f"{int(one.items.sum()):,}",
            )
        )
        bins += [
            (record.name, f"{number}", f"{predicted:.4f}", f"{observed:.4f}", f"{items:,}")
            for number, (predicted, observed, items) in enumerate(
                zip(one.predicted, one.observed, one.items, strict=True), 1
            )
        ]
    if found:
        if draw:
            blocks.append(Figure("calibration", draw_calibration(found)))
        columns = ("Run", "Trained as a probability", "ECE", "Mean predicted", "Share relevant", "Items")
        blocks.append(Table(columns, tuple(rows)))
        blocks += [Paragraph(reason) for reason in reasons]
        blocks.append(
            Paragraph(
                "Predicted: sigmoid of the score. Observed: the share of items with a grade of 1 or more; items that "
                "are not judged count as not relevant. ECE: |predicted - observed|, averaged over ten bins of equal "
                "numbers of items (equal scores share a bin).",
                _SOURCE,
            )
        )
        blocks.append(
            Folded("The bins", (Table(("Run", "Bin", "Predicted", "Observed", "Items"), tuple(bins)),))
        )
    return Section("Calibration", tuple(blocks))
