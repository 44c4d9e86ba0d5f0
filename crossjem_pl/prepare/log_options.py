"""How the rows of a click log become lists."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from crossjem_pl.prepare.clicks import Columns, GoodClick

__all__ = ["LogOptions"]


@dataclass(frozen=True)
class LogOptions:
    """How rows become lists.

    Args:
        columns: names of the columns.
        good: when a click is a good one.
        min_good_clicks: good clicks that a (query, keyword) needs for label 1.
        scores: "agree": the teacher scores of a (query, keyword) must be equal; "mean": their mean counts.
        min_items: queries with fewer keywords are left out.
        require_click: queries without a good click are left out.
        dev_fraction: share of the queries for dev.
        test_fraction: share of the queries for test.
        seed: another one draws other splits.
        lists_per_shard: lists in a shard.
        buckets: buckets on disk; None: from the size of the log.
    """

    columns: Columns = field(default_factory=Columns)
    good: GoodClick = field(default_factory=GoodClick)
    min_good_clicks: int = 1
    scores: Literal["agree", "mean"] = "agree"
    min_items: int = 2
    require_click: bool = False
    dev_fraction: float = 0.01
    test_fraction: float = 0.01
    seed: int = 0
    lists_per_shard: int = 10_000
    buckets: int | None = None

    def __post_init__(self) -> None:
        for name in ("min_good_clicks", "min_items", "lists_per_shard"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not (
            self.dev_fraction >= 0 and self.test_fraction >= 0 and self.dev_fraction + self.test_fraction < 1
        ):
            raise ValueError(
                "dev_fraction and test_fraction must be at least 0 and leave something for training, got "
                f"{self.dev_fraction:g} and {self.test_fraction:g}"
            )
        if self.good.min_dwell < 0 or not math.isfinite(self.good.min_dwell):
            raise ValueError(f"min_dwell must be a number of seconds, got {self.good.min_dwell:g}")
