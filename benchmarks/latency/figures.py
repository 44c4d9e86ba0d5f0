"""From times to the figures of the tables: percentiles, throughput, ratios, operations, share of the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.latency.contenders import Contender
from crossjem_pl.lists import RankingList

__all__ = ["Row", "rows_of"]


_COUNTED = 5
"""Lists of a size whose operations are counted."""


@dataclass(frozen=True)
class Row:
    """One contender at one size.

    Args:
        items: of every list.
        name, precision: of the contender.
        p50, p95, p99: milliseconds, texts in to sorted items out, over the rounds.
        pairs_per_second: items / p50, one query at a time.
        ratios: baseline -> median over the lists of (its time / this one's): how many times as long it takes.
        gflop: 10^9 operations of the model a list, median; None where they are not known.
        megabytes: estimated traffic of the model a list, median; likewise.
        tokens: positions through the encoder a list, padding included, median; likewise.
        share_of_peak: operations / p50 / the machine's measured peak in this precision; likewise.
    """

    items: int
    name: str
    precision: str
    p50: float
    p95: float
    p99: float
    pairs_per_second: float
    ratios: dict[str, float]
    gflop: float | None = None
    megabytes: float | None = None
    tokens: int | None = None
    share_of_peak: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rows_of(
    contenders: Sequence[Contender],
    times: Mapping[str, Sequence[float]],
    lists: Sequence[RankingList],
    baselines: Sequence[str],
    peaks: Mapping[str, float],
) -> list[Row]:
    """The rows of one size.

    Args:
        contenders: all of them.
        times: of each, one value per list.
        lists: the counted ones.
        baselines: names whose ratios are wanted, of the same precision where they were measured in it.
        peaks: precision -> operations a second.
    """
    out = []
    for one in contenders:
        own = np.array(times[one.name])
        p50, p95, p99 = np.percentile(own, [50, 95, 99])
        ratios = {}
        for name in baselines:
            same = f"{name} {one.precision}"
            against = same if same in times else name
            if against != one.name and against in times:
                ratios[name] = float(np.median(np.array(times[against]) / own))
        row = Row(
            items=len(lists[0]),
            name=one.name,
            precision=one.precision,
            p50=float(p50),
            p95=float(p95),
            p99=float(p99),
            pairs_per_second=1000 * len(lists[0]) / float(p50),
            ratios=ratios,
        )
        works = [work for ranking_list in lists[:_COUNTED] if (work := one.work([ranking_list])) is not None]
        if works:
            flops = float(np.median([work.flops for work in works]))
            row = Row(
                **{
                    **row.as_dict(),
                    "gflop": flops / 1e9,
                    "megabytes": float(np.median([work.bytes(one.precision) for work in works])) / 1e6,
                    "tokens": int(np.median([work.tokens for work in works])),
                    "share_of_peak": flops / (float(p50) / 1000) / peaks[one.precision],
                }
            )
        out.append(row)
    return out
