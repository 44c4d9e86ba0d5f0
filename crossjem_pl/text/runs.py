"""Cutting rows of unequal length into runs of similar length, so that little is padded."""

from __future__ import annotations

import numpy as np

from crossjem_pl.text.ragged import Ints

__all__ = ["length_runs"]


def length_runs(lengths: Ints, cost: int) -> list[Ints]:
    """Row numbers of each run; every row is in one of them. A run pads its rows to its longest.

    Beginning with all rows in one, runs are cut in two where that spares the most padding, as long as a cut
    spares at least `cost` tokens.

    Args:
        lengths: int64 [rows], at least one.
        cost: tokens that could be encoded in the time that one more run takes, at least 1.
    """
    order = np.argsort(lengths, kind="stable")
    ascending = lengths[order]
    runs: list[Ints] = []
    rest = [(0, len(order))]
    while rest:
        begin, end = rest.pop()
        # cutting after the first k rows spares each of them the difference between the longest and the k-th
        spared = np.arange(1, end - begin) * (ascending[end - 1] - ascending[begin : end - 1])
        if spared.max(initial=0) < cost:
            runs.append(order[begin:end])
        else:
            middle = begin + 1 + int(spared.argmax())
            rest += [(begin, middle), (middle, end)]
    return runs
