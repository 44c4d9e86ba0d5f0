"""`threshold.json` of a model folder: the score from which items are kept, and what it was chosen for."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from crossjem_pl.files import existing, write_json
from crossjem_pl.hashing import weights_sha256
from crossjem_pl.lists import shown
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.encoders import read_json

__all__ = ["THRESHOLD_FILE", "Rule", "StoredThreshold", "pass_limits", "read_threshold", "write_threshold"]

Rule = Literal["keep", "precision"]

THRESHOLD_FILE = "threshold.json"
"""Its name in a model folder."""

_LIMITS = ("max_items_per_pass", "max_union_tokens", "pass_order")


@dataclass(frozen=True, slots=True)
class StoredThreshold:
    """A threshold with what it was chosen for, what it rests on, and how well it does there.

    Args:
        threshold: items with a score (before any activation) of at least this are kept.
        rule: "keep": the highest that keeps `target` of the positives, mean over the lists; "precision": the
            lowest at which `target` of the kept items are positive.
        target: of the rule.
        relevant_from: the lowest label of a positive.
        lists: labelled lists that it was chosen on.
        lists_without_positives: of these; they count in the negative accuracy and the precision only.
        positives: items of these lists with a label of at least `relevant_from`.
        negatives: the other items.
        figures: see `choose_threshold`.
        data: name of the lists.
        data_sha256: of their ids, texts and labels.
        weights_sha256: of the ranker, see the function of that name.
        version: of this package.
        score_precision: in which the scores were computed.
        pass_limits: of the ranker, see `pass_limits`; None in files of version 0.1.
    """

    threshold: float
    rule: Rule
    target: float
    relevant_from: float
    lists: int
    lists_without_positives: int
    positives: int
    negatives: int
    figures: dict[str, float | None]
    data: str
    data_sha256: str
    weights_sha256: str
    version: str
    score_precision: str = "float32"
    pass_limits: dict[str, Any] | None = None

    @property
    def meaning(self) -> str:
        """What it was chosen for, in words."""
        if self.rule == "keep":
            return f"keeps {self.target:.4g} of a query's relevant items on average"
        return f"has a precision of {self.target:.4g}"

    def of_folder(self, ranker: Ranker) -> StoredThreshold:
        """This threshold as it was read with the ranker of its folder: a file of version 0.1 gets its pass limits."""
        return self if self.pass_limits is not None else replace(self, pass_limits=pass_limits(ranker))

    def misfit(self, ranker: Ranker, precision: str) -> str | None:
        """What the threshold was chosen for, if it is not the ranker's scores in this precision; None if it is."""
        if self.weights_sha256 != weights_sha256(ranker):
            return "other weights than the model has now"
        if precision != self.score_precision:
            return f"scores in {self.score_precision}, and they are computed in {precision} now"
        now = pass_limits(ranker)
        if self.pass_limits not in (None, now):
            return f"scores with the pass limits {self.pass_limits}, and they are {now} now"
        return None


def pass_limits(ranker: Ranker) -> dict[str, Any]:
    """The limits by which a joint ranker splits long lists into passes: other passes give other scores."""
    values = {name: getattr(ranker, name, ranker.init_args.get(name)) for name in _LIMITS}
    return {name: value for name, value in values.items() if value is not None}


def write_threshold(stored: StoredThreshold, folder: str | Path) -> Path:
    """Writes `threshold.json` into a model folder, over an earlier one; returns its path.

    Raises:
        FileNotFoundError: if there is no such folder.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"no model folder {folder}")
    path = Path(folder) / THRESHOLD_FILE
    write_json(path, asdict(stored), allow_nan=False)
    return path


def read_threshold(path: str | Path) -> StoredThreshold:
    """Reads a `threshold.json`. Whether it is the right one for a ranker, `StoredThreshold.misfit` tells.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file and field, for one that is not of this form.
    """
    content = read_json(existing(path))
    content = {"score_precision": "float32", "pass_limits": None, **content}  # version 0.1 did not write them
    kinds: dict[str, Any] = {"float": (int, float), "int": int, "str": str, "Rule": str}
    for field in fields(StoredThreshold):
        value = content.get(field.name)
        valid = field.name in content and isinstance(value, kinds.get(str(field.type), (dict, type(None))))
        numbers = value.values() if isinstance(value, dict) and field.name == "figures" else [value]
        if (
            not valid
            or any(isinstance(x, bool) or (isinstance(x, float) and not math.isfinite(x)) for x in numbers)
            or (isinstance(value, int) and field.type == "int" and value < 0)
            or (field.name == "rule" and value not in get_args(Rule))
            or (field.name == "figures" and not all(isinstance(x, int | float | None) for x in numbers))
        ):
            raise ValueError(f"{path}, field {field.name!r}: {shown(value)} is not what belongs there")
    return StoredThreshold(**{field.name: content[field.name] for field in fields(StoredThreshold)})
