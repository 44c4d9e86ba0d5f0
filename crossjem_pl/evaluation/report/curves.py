"""Learning curves from the metrics files of a run folder, those of interrupted starts included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["Curve", "LearningCurve", "read_learning_curve", "smoothed"]

_LOSS = "train/loss"
_VALIDATION = "val/"
_EARLIER = re.compile(r"metrics-(\d+)\.csv")


@dataclass(frozen=True)
class Curve:
    """Values against training steps: int64 [points], ascending, and float64 [points]."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class LearningCurve:
    """The course of a training.

    Args:
        loss: of the training steps that were logged; None where none was.
        metrics: monitored metric -> its validations; the names are without "val/".
        files: the files that it was put together from, oldest first.
        replaced: logged rows of earlier files that a later start went over again.
    """

    loss: Curve | None
    metrics: dict[str, Curve]
    files: tuple[str, ...]
    replaced: int


def read_learning_curve(folder: Path) -> LearningCurve | None:
    """Reads `metrics-1.csv`, `metrics-2.csv`, ... and `metrics.csv`; None where there is none of them.

    A resumed run starts from a checkpoint, so its file may go over steps that the file before has too: the
    later file counts from its first step on.

    Raises:
        ValueError: naming the file and the column, for a file without steps or with a value that is no number.
    """
    numbers = {int(m.group(1)): p for p in folder.glob("metrics-*.csv") if (m := _EARLIER.fullmatch(p.name))}
    paths = [numbers[number] for number in sorted(numbers)]
    if (folder / "metrics.csv").is_file():
        paths.append(folder / "metrics.csv")
    frames = [(path, _read(path)) for path in paths]
    frames = [(path, frame) for path, frame in frames if not frame.empty]
    if not frames:
        return None
    replaced = 0
    whole = frames[0][1]
    for _, frame in frames[1:]:
        kept = whole[whole["step"] < frame["step"].min()]
        replaced += len(whole) - len(kept)
        whole = pd.concat([kept, frame], ignore_index=True)
    columns = [column for column in whole.columns if column.startswith(_VALIDATION)]
    curves = {column.removeprefix(_VALIDATION): _curve(whole, column) for column in columns}
    metrics = {name: curve for name, curve in curves.items() if curve is not None}
    loss = _curve(whole, _LOSS) if _LOSS in whole.columns else None
    return LearningCurve(loss, metrics, tuple(path.name for path, _ in frames), replaced)


def smoothed(curve: Curve) -> Curve:
    """Means over a moving window of a twentieth of the points (5 at least), cut off at both ends."""
    half = max(2, len(curve.values) // 40)
    sums = np.concatenate([[0.0], np.cumsum(curve.values)])
    positions = np.arange(len(curve.values))
    low, high = np.maximum(positions - half, 0), np.minimum(positions + half + 1, len(positions))
    return Curve(curve.steps, (sums[high] - sums[low]) / (high - low))


def _read(path: Path) -> pd.DataFrame:
    """The rows with a training loss or a validation metric: `step` and those columns."""
    try:
        frame = pd.read_csv(path)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except pd.errors.ParserError as error:
        raise ValueError(f"{path}: not CSV: {error}") from error
    if "step" not in frame.columns:
        raise ValueError(f"{path} has no column 'step'")
    wanted = [column for column in frame.columns if column == _LOSS or column.startswith(_VALIDATION)]
    frame = frame[["step", *wanted]]
    for column in frame.columns:
        numbers = pd.to_numeric(frame[column], errors="coerce")
        odd = frame.index[numbers.isna() & frame[column].notna()]
        if len(odd):
            raise ValueError(
                f"{path}, line {odd[0] + 2}, column {column!r}: no number: {frame[column][odd[0]]!r}"
            )
        frame = frame.assign(**{column: numbers})
    return frame.dropna(subset=["step"]).dropna(subset=wanted, how="all")


def _curve(frame: pd.DataFrame, column: str) -> Curve | None:
    rows = frame.dropna(subset=[column]).sort_values("step", kind="stable")
    if rows.empty:
        return None
    return Curve(rows["step"].to_numpy(dtype=np.int64), rows[column].to_numpy(dtype=np.float64))
