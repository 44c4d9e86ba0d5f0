"""The benchmark of a GPU runs on a CPU, and says what it could not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu
from tests.rankers.cases import CASES


def test_every_part_runs_on_a_cpu(encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = {name: CASES[name] for name in ("crossjem-best", "monot5", "dpr", "bm25")}
    monkeypatch.setattr("tests.rankers.cases.CASES", some)
    monkeypatch.setattr(gpu, "_TUNED", ("crossjem",))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(gpu, "ddp", lambda _, own=gpu.ddp: own(torch.device("cuda")))
    small = ["--encoder", encoder, "--items", "5", "--rankers", "crossjem", "dpr", "--peers"]
    assert gpu.main(["--device", "cpu", "--smoke", *small, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["not_run"] == {"DDP": "this machine has one GPU"}
    parts = found["parts"]
    assert [row["ranker"] for row in parts["parity"]] == list(some)
    assert all(row["float32"] == 0 and row["equal"] for row in parts["parity"])
    assert any(row["bfloat16"] > 0 for row in parts["parity"])
    latency = {(row["name"], row["items"]): row for row in parts["latency, MiniLM-L6"]}
    assert set(latency) == {(n, i) for n in ("crossjem", "crossjem by id", "dpr") for i in (5,)}
    assert latency["crossjem", 5]["saturated"] > 0
    assert [row["name"] for row in parts["tune, crossjem"]] == ["crossjem"]
    assert [row["name"] for row in parts["training, MiniLM-L6"]] == ["crossjem"]
    text = (tmp_path / "gpu.md").read_text()
    assert "**Not run: DDP**: this machine has one GPU." in text
    assert "says nothing of speed" in text


def test_without_a_gpu_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "gpu.json").read_text())["parts"] == {}
    assert "**Not run: everything**: torch sees no GPU here" in (tmp_path / "gpu.md").read_text()


def test_what_fails_or_finds_no_time_is_told_and_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = {"ranker": "dpr", "float32": 0.1, "bfloat16": 0.2, "tau": 0.5, "equal": False}

    def broken() -> None:
        raise RuntimeError("out of memory")

    command = ["--device", "cpu", "--smoke", "--out", str(tmp_path)]
    monkeypatch.setattr(gpu, "parts", lambda *_: {"tune": broken, "parity": lambda: [row]})
    assert gpu.main([*command, "--minutes", "1e-9"]) == 0
    assert "minutes were over" in (tmp_path / "gpu.md").read_text()
    assert gpu.main(command) == 2
    error = capsys.readouterr().err
    assert "tune: RuntimeError: out of memory; parity: float32 scores differ from the CPU's: dpr" in error
    text = (tmp_path / "gpu.md").read_text()
    assert "**Failed: tune**: RuntimeError: out of memory" in text
    assert "**Failed: parity**: float32 scores differ" in text
    assert "| dpr | 1.0e-01 | 2.0e-01 | 0.500 | **no** |" in text
