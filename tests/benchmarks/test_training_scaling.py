"""The training and scaling benchmarks run, and the fit is right."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import scale_simulation, scaling, training
from benchmarks.latency import __main__ as latency
from benchmarks.latency.stages import has_stages
from benchmarks.program import fresh
from benchmarks.tables import __main__ as tables
from crossjem_pl.data.simulator import simulate


def test_training_writes_json_and_page(encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "fresh", lambda work, spec: work(spec))
    sizes = ["--items", "3", "6", "--batch-sizes", "2", "--steps", "1", "--precision", "float32", "bfloat16"]
    assert training.main(["--smoke", "--encoder", encoder, *sizes, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "training.json").read_text())
    names = ["crossjem", "monobert", "sentence-transformers"]
    settings = [
        (precision, items, name)
        for precision in ("float32", "bfloat16")
        for items in (3, 6)
        for name in names
    ]
    assert [(row["precision"], row["items"], row["name"]) for row in found["rows"]] == settings
    for row in found["rows"]:
        assert row["peak_mib"] >= 0
        assert row["pairs_per_second"] == pytest.approx(1000 * 2 * row["items"] / row["step_ms"])
    first, other = found["rows"][:2]
    assert first["faster"]["monobert"] == pytest.approx(first["pairs_per_second"] / other["pairs_per_second"])
    assert "| sentence-transformers | 6 | 2 | bfloat16 |" in (tmp_path / "training.md").read_text()


def test_ratios_are_taken_within_a_setting() -> None:
    base = {"items": 3, "batch_size": 1, "precision": "float32"}
    rows = [
        {**base, "name": "a", "pairs_per_second": 30.0, "peak_mib": 10.0},
        {**base, "name": "monobert", "pairs_per_second": 10.0, "peak_mib": 40.0},
        {**base, "items": 9, "name": "a", "pairs_per_second": 99.0, "peak_mib": 1.0},
    ]
    found = training.with_ratios(rows, ["monobert"])
    assert (found[0]["faster"], found[0]["leaner"]) == ({"monobert": 3.0}, {"monobert": 4.0})
    assert found[1]["faster"] == found[2]["faster"] == {}


@pytest.mark.parametrize("name", ["crossjem", "sentence-transformers"])
def test_a_step_changes_the_weights(name: str, encoder: str) -> None:
    learner = training.Learner(name, encoder, torch.device("cpu"), "float32")
    before = [weight.detach().clone() for weight in learner.module.parameters()]
    learner.step(list(simulate(2, 5)))
    after = list(learner.module.parameters())
    changed = [not torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert sum(changed) > len(changed) / 2
    assert all(weight.grad is None for weight in after)


def test_a_fresh_process_finds_the_functions_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `python -m benchmarks.latency` are of the module `__main__`, which another process does not have."""
    program = ModuleType("__main__")
    program.__spec__ = ModuleSpec("benchmarks.latency.__main__", None)
    monkeypatch.setitem(sys.modules, "__main__", program)
    monkeypatch.setattr(has_stages, "__module__", "__main__")
    assert fresh(has_stages, {}) is False  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not JSON serializable"):
        fresh(json.dumps, {"out": Path("x")})


def test_scaling_writes_json_page_and_plot(encoder: str, tmp_path: Path) -> None:
    sizes = ["--items", "5", "20", "120", "--pools", "10", "40", "--union-items", "30"]
    assert scaling.main(["--smoke", "--encoder", encoder, *sizes, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "scaling.json").read_text())
    order = [(items, name) for items in (5, 20, 120) for name in scaling.SYSTEMS]
    assert [(row["items"], row["name"]) for row in found["by_items"]] == order
    rows = {
        row["name"]: [other for other in found["by_union"] if other["name"] == row["name"]]
        for row in found["by_union"]
    }
    for small, large in rows.values():
        assert min(small["p50"], small["gflop"]) > 0
        assert small["items"] == large["items"] == 30
        assert (small["union"], 10 < large["union"] <= 40) == (10, True)
    assert rows["crossjem"][1]["gflop"] > rows["crossjem"][0]["gflop"]
    assert rows["monobert"][1]["gflop"] == rows["monobert"][0]["gflop"]
    assert rows["crossjem"][0]["ratios"]["monobert"] > 0
    of = {key: {fit["name"]: fit for fit in fits} for key, fits in found["exponents"].items()}
    assert of["by_items"]["monobert"]["gflop"] == pytest.approx(1, abs=0.15)
    assert of["by_items"]["crossjem"]["gflop"] < 0.9
    assert of["by_union"]["monobert"]["gflop"] == pytest.approx(0, abs=1e-9)
    assert "| k of ms |" in (tmp_path / "scaling.md").read_text()
    assert (tmp_path / "scaling.png").stat().st_size > 1000


def test_the_fit_finds_the_exponent() -> None:
    sizes = np.array([10.0, 30, 100, 300])
    noise = np.exp([0.1, -0.1, 0.1, -0.1])
    rows = [
        {"name": "a", "n": n, "p50": 3 * n**1.7 * e, "gflop": 3 * n**1.7}
        for n, e in zip(sizes, noise, strict=True)
    ]
    (found,) = scaling.exponents(rows, "n")
    assert (found["gflop"], found["gflop error"]) == pytest.approx((1.7, 0), abs=1e-6)
    covariance = np.polyfit(np.log(sizes), np.log([row["p50"] for row in rows]), 1, cov=True)[1]
    assert found["p50 error"] == pytest.approx(np.sqrt(covariance[0, 0]))


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        (latency, ["--items", "0"], "--items"),
        (scale_simulation, ["--lists-per-part", "0"], "--lists-per-part"),
        (scale_simulation, ["--driver-ms", "-1"], "--driver-ms"),
        (scale_simulation, ["--hours-between-failures", "0"], "--hours-between-failures"),
        (tables, ["6", "--parts", "0"], "--parts: table 6 has the parts 1 to 3"),
        (tables, ["6", "--parts", "1", "--only", "monoBERT"], "no row 'monoBERT'; there are 'BCE'"),
        (training, ["--batch-sizes", "0"], "--batch-sizes"),
        (training, ["--precision", "float16", "--device", "cpu"], "bfloat16"),
        (scaling, ["--items", "10"], "--items"),
        (scaling, ["--rounds", "-1"], "--rounds"),
        (scaling, ["--pools", "5", "6"], "--pools"),
    ],
)
def test_mistakes_in_the_options_end_in_a_message(
    program: Any, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(arguments) == 2
    assert message in capsys.readouterr().err
