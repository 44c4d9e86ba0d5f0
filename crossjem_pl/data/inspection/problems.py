"""The problems that a check can find, graded, and how their occurrences are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["EXAMPLES", "KINDS", "Findings", "Grade", "Kind", "Problem"]

Grade = Literal["error", "warning", "note"]

EXAMPLES = 3
"""How many occurrences of a problem are shown."""
_EXAMPLE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem.

    Args:
        grade: "error" (cannot be read, or makes a result wrong), "warning" (most likely a mistake) or "note".
        unit: what is counted.
        text: the problem in a few words.
    """

    grade: Grade
    unit: str
    text: str


KINDS: dict[str, Kind] = {
    "unreadable-file": Kind("error", "files", "reading stopped here, the rest of the file was not checked"),
    "malformed-row": Kind("error", "rows", "the row is not a list"),
    "blank-text": Kind("error", "texts", "blank query or item"),
    "repeated-item-id": Kind("error", "items", "item id occurs before in the same list"),
    "not-finite": Kind("error", "numbers", "label or score is NaN, infinite or no number"),
    "unequal-lengths": Kind("error", "fields", "ids, labels or scores in another number than the items"),
    "repeated-query-id": Kind("error", "lists", "query id occurs before"),
    "no-tokens": Kind("error", "texts", "text has no tokens for this encoder"),
    "leaked-positive": Kind("error", "pairs", "query with the same positive item is in the training lists"),
    "repeated-query": Kind("warning", "lists", "query text occurs before under another id"),
    "leaked-query": Kind("warning", "lists", "query text is in the training lists"),
    "conflicting-labels": Kind("warning", "items", "text occurs before in the same list with another label"),
    "item-id-texts": Kind("warning", "items", "item id has another text than before"),
    "no-positive": Kind("warning", "lists", "no item has a label above 0"),
    "all-positive": Kind("warning", "lists", "every item has a label above 0"),
    "labels-missing": Kind("warning", "lists", "no labels, though other lists have them"),
    "scores-missing": Kind("warning", "lists", "no scores, though other lists have them"),
    "constant-scores": Kind("warning", "lists", "all scores of the list are equal"),
    "scores-outside": Kind("warning", "lists", "scores outside 0 to 1, so they are no probabilities"),
    "scores-reversed": Kind("warning", "pairs", "positive scored below negative, in most of the pairs"),
    "positives-first": Kind(
        "warning", "lists", "positives stand before all others: the order tells the labels"
    ),
    "cut-queries": Kind("note", "queries", "longer than the limit, will be cut"),
    "cut-items": Kind("note", "items", "longer than the limit, will be cut"),
    "unknown-tokens": Kind("note", "tokens", "unknown to the encoder"),
    "repeated-item": Kind("note", "items", "text occurs before in the same list under another id"),
    "merged-repeats": Kind("note", "texts", "exact repeats inside one row, merged while reading"),
    "numbered-items": Kind(
        "note", "items", "item ids look like numbers inside their list, not like identifiers"
    ),
    "no-targets": Kind("note", "lists", "neither labels nor scores in any list: nothing to train on"),
    "single-item": Kind("note", "lists", "one item only, nothing to rank"),
    "columns-not-read": Kind("note", "columns", "not read"),
}
"""Every problem by its code. The grade of cut texts and unknown tokens rises to a warning above 1%."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of problem that was found.

    Args:
        code: key of `KINDS`.
        grade: how bad it is.
        text: the problem in a few words.
        count: how often it was found, in `unit`.
        unit: what was counted.
        of: how many there are in all, where that is known.
        examples: the first three occurrences, each with its place.
    """

    code: str
    grade: Grade
    text: str
    count: int
    unit: str
    of: int | None
    examples: tuple[str, ...]


class Findings:
    """Counts of problems with their first examples."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._of: dict[str, int] = {}
        self._grades: dict[str, Grade] = {}

    def add(self, code: str, example: str, count: int = 1) -> None:
        """Counts `count` occurrences; `example` says where, and is kept for the first three calls."""
        examples = self._examples.setdefault(code, [])
        self._counts[code] += count
        if len(examples) < EXAMPLES:
            short = example if len(example) <= _EXAMPLE_LENGTH else example[: _EXAMPLE_LENGTH - 3] + "..."
            examples.append(short)

    def add_all(self, code: str, examples: Sequence[str], count: int) -> None:
        """Counts `count` occurrences at once, of which the first are given as examples."""
        for example in examples if count else ():
            self.add(code, example, 0)
        self._counts[code] += count

    def count(self, code: str) -> int:
        return self._counts[code]

    def of(self, code: str, total: int) -> None:
        """Says how many there are in all."""
        self._of[code] = total

    def grade(self, code: str, grade: Grade) -> None:
        """Grades these occurrences otherwise than `KINDS`."""
        self._grades[code] = grade

    def drop(self, code: str) -> None:
        """Takes back what turned out to be no problem."""
        self._counts.pop(code, None)
        self._examples.pop(code, None)

    def problems(self) -> tuple[Problem, ...]:
        """What was found, in the order of grade, then of `KINDS`."""
        found = []
        for code, kind in KINDS.items():
            if self._counts[code]:
                grade = self._grades.get(code, kind.grade)
                found.append(
                    Problem(
                        code,
                        grade,
                        kind.text,
                        self._counts[code],
                        kind.unit,
                        self._of.get(code),
                        tuple(self._examples[code]),
                    )
                )
        order = ("error", "warning", "note")
        return tuple(sorted(found, key=lambda problem: order.index(problem.grade)))
