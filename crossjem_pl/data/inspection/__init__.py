"""What `crossjem check` looks at, one file per subject. Each inspector sees the lists one by one, in flat memory."""

from crossjem_pl.data.inspection.hashes import HashMap, normalise, text_key
from crossjem_pl.data.inspection.labels import LabelFigures, LabelInspector
from crossjem_pl.data.inspection.leakage import LeakageFigures, LeakageInspector, TrainingTexts
from crossjem_pl.data.inspection.lengths import LengthFigures, LengthInspector
from crossjem_pl.data.inspection.problems import KINDS, Findings, Grade, Kind, Problem
from crossjem_pl.data.inspection.repeats import RepeatFigures, RepeatInspector
from crossjem_pl.data.inspection.rows import RowReader
from crossjem_pl.data.inspection.scores import ScoreFigures, ScoreInspector

__all__ = [
    "KINDS",
    "Findings",
    "Grade",
    "HashMap",
    "Kind",
    "LabelFigures",
    "LabelInspector",
    "LeakageFigures",
    "LeakageInspector",
    "LengthFigures",
    "LengthInspector",
    "Problem",
    "RepeatFigures",
    "RepeatInspector",
    "RowReader",
    "ScoreFigures",
    "ScoreInspector",
    "TrainingTexts",
    "normalise",
    "text_key",
]
