"""The memory of a streamed epoch does not grow with the number of lists."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossjem_pl.data.shards import write_shards
from crossjem_pl.lists import RankingList
from tests.conftest import root

EPOCH = """
import sys
from pathlib import Path
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.data.streaming import StreamingLoader
from crossjem_pl.rankers import BM25

folder = Path(sys.argv[1])
stream = ShardSource(folder.name, buffer=1024).stream(folder.parent)
lists = sum(len(batch.query_ids) for batch in StreamingLoader(stream, BM25(), 64, shuffle=True))
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(lists, peak.split()[1])
"""


def lists(count: int) -> Iterator[RankingList]:
    for i in range(count):
        items = tuple(f"keyword {i * 7 + j} of an advertiser in the town of list {i}" * 4 for j in range(4))
        yield RankingList(f"q{i}", f"query number {i}", tuple(f"{i}-{j}" for j in range(4)), items)


@pytest.mark.slow
def test_ten_times_the_lists_need_no_more_memory(tmp_path: Path) -> None:
    peaks = []
    for count in (4000, 40_000):
        write_shards(lists(count), tmp_path / str(count), lists_per_shard=4000)
        done = subprocess.run(
            [sys.executable, "-c", EPOCH, str(tmp_path / str(count))],
            check=True,
            capture_output=True,
            text=True,
            cwd=root(),
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        seen, peak = map(int, done.stdout.split())
        assert seen == count
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 20 * 1024, f"{peaks} KiB; held in memory, the lists take 70 MiB more"
