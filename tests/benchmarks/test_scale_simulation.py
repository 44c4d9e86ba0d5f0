"""The simulation of many devices agrees with what can be reckoned by hand, and is a function of its seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.scale_simulation import OPTIONS, main, simulate

PERFECT = {name: value for name, (value, _) in OPTIONS.items()} | {
    "pairs_per_second": 100.0,
    "scatter": 0.0,
    "slow_share": 0.0,
    "hours_between_failures": 1e12,
    "driver_ms": 0.0,
    "megabytes_per_second": 1e12,
}


@pytest.mark.parametrize(
    ("changed", "parts", "devices", "seconds"),
    [
        ({}, 10, 1, 100.0),
        ({}, 10, 4, 30.0),  # ten parts of ten seconds: three rounds
        ({"slow_share": 0.5, "slow_factor": 3.0}, 8, 2, 60.0),  # while one does two parts, the other does six
        ({"driver_ms": 5000.0}, 10, 1000, 60.0),  # the driver deals for 50 seconds
        ({"megabytes_per_second": 1.0, "bytes_per_pair": 1000.0}, 20, 20, 20.0),  # a second a part and device
    ],
)
def test_times_that_can_be_reckoned(
    changed: dict[str, float], parts: int, devices: int, seconds: float
) -> None:
    assert simulate(PERFECT | changed, parts, 1000, devices, 0).seconds == pytest.approx(seconds)


def test_lost_parts_are_done_again() -> None:
    settings = PERFECT | {"hours_between_failures": 0.05, "minutes_to_return": 1.0}
    found = simulate(settings, 200, 1000, 4, 0)
    assert found == simulate(settings, 200, 1000, 4, 0)
    assert found.redone > 3
    assert found.seconds > 500.0, "200 parts of ten seconds on four devices, without failures"
    assert simulate(settings, 200, 1000, 4, 1) != found


def test_the_page(tmp_path: Path) -> None:
    assert main(["--smoke", "--devices", "1", "8", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "scale_simulation.json").read_text())["rows"]
    assert [row["devices"] for row in rows] == [1, 8]
    assert rows[0]["pairs_per_second"] < rows[1]["pairs_per_second"] < 8 * 17_200
    assert "| 8 |" in (tmp_path / "scale_simulation.md").read_text()
