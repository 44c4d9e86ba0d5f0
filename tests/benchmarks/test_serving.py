from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import serving
from tests import tiny_models


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--systems", *serving.SYSTEMS], ["--soak", "0.05", "--overload", "1"]])
def test_the_server_is_measured(tmp_path: Path, options: list[str]) -> None:
    encoder = tiny_models.write_bert(tmp_path / "encoder", positions=512)
    small = ["--encoder", str(encoder), "--clients", "2", "--items", "5", "--seconds", "1", "--device", "cpu"]
    assert serving.main([*small, *options, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "serving.json").read_text())
    if "--soak" in options:
        assert set(found["long"]["soak"]["statuses"]) <= {"200", "429"}
        assert found["long"]["soak"]["rss_growth"] < 1
        assert set(found["long"]["overload"]["statuses"]) <= {"200", "429"}
        return
    assert (tmp_path / "serving.png").exists()
    assert {row["name"] for row in found["rows"]} == set(serving.SYSTEMS)
    for row in found["rows"]:
        assert set(row["statuses"]) == {"200"}
        assert row["p50"] <= row["p99"]
