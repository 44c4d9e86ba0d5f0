"""The training benchmark runs and measures all systems on the same lists. Speed is no test's matter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.measuring.fresh import fresh
from benchmarks.training import __main__ as program
from benchmarks.training.learners import OwnLearner, SentenceTransformersLearner, learner_of
from benchmarks.training.one import measure_steps
from benchmarks.training.page import with_ratios
from crossjem_pl.data.simulator import simulate
from tests import tiny_models

CPU = torch.device("cpu")
FIGURES = {"step_ms", "tokenise_ms", "pairs_per_second", "peak_mib", "peak_mib_all"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_models.write_bert(tmp_path_factory.mktemp("training") / "bert", positions=512))


def specification(encoder: str, **changes: Any) -> dict[str, Any]:
    spec = {"name": "crossjem", "encoder": encoder, "items": 5, "batch_size": 2, "precision": "float32"}
    return {
        **spec,
        "device": "cpu",
        "threads": 1,
        "steps": 2,
        "processes": 1,
        "random_init": False,
        **changes,
    }


def test_the_program_writes_json_page_and_plot(
    encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured in this process; see below for processes of their own."""

    def here(module: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        assert module == "benchmarks.training.one"
        return dict(measure_steps(spec))

    monkeypatch.setattr(program, "fresh", here)
    out = tmp_path / "out"
    sizes = ["--items", "3", "6", "--batch-sizes", "2", "--steps", "1", "--precision", "float32", "bfloat16"]
    assert program.main(["--smoke", "--encoder", encoder, *sizes, "--out", str(out)]) == 0
    found = json.loads((out / "training.json").read_text())
    names = ["crossjem", "monobert", "sentence-transformers"]
    assert [(row["precision"], row["items"], row["name"]) for row in found["rows"]] == [
        (precision, items, name)
        for precision in ("float32", "bfloat16")
        for items in (3, 6)
        for name in names
    ]
    for row in found["rows"]:
        assert set(row) > FIGURES
        assert 0 < row["tokenise_ms"] < row["step_ms"]
        assert row["pairs_per_second"] == pytest.approx(1000 * 2 * row["items"] / row["step_ms"])
    first = found["rows"][0]
    assert first["faster"]["monobert"] == pytest.approx(
        first["pairs_per_second"] / found["rows"][1]["pairs_per_second"]
    )
    text = (out / "training.md").read_text()
    assert "| sentence-transformers | 6 | 2 | bfloat16 | 1 |" in text
    assert (out / "training.png").stat().st_size > 1000


def test_ratios_are_taken_within_a_setting() -> None:
    base = {"items": 3, "batch_size": 1, "precision": "float32", "processes": 1}
    rows = [
        {**base, "name": "a", "pairs_per_second": 30.0, "peak_mib": 10.0},
        {**base, "name": "monobert", "pairs_per_second": 10.0, "peak_mib": 40.0},
        {**base, "items": 9, "name": "a", "pairs_per_second": 99.0, "peak_mib": 1.0},
    ]
    found = with_ratios(rows, ["monobert"])
    assert found[0]["faster"] == {"monobert": 3.0}
    assert found[0]["leaner"] == {"monobert": 4.0}
    assert found[1]["faster"] == found[2]["faster"] == {}


@pytest.mark.parametrize("name", ["crossjem", "monobert", "sentence-transformers"])
def test_a_step_changes_the_weights(name: str, encoder: str) -> None:
    lists = list(simulate(2, 5))
    learner = learner_of(name, encoder, CPU, "float32", {})
    assert isinstance(learner, SentenceTransformersLearner if "-" in name else OwnLearner)
    assert learner.module.training
    before = [weight.detach().clone() for weight in learner.module.parameters()]
    whole, tokenising = learner.step(lists)
    assert whole > tokenising > 0
    changed = [
        not torch.equal(old, new) for old, new in zip(before, learner.module.parameters(), strict=True)
    ]
    assert sum(changed) > len(changed) / 2
    assert all(weight.grad is None for weight in learner.module.parameters())


def test_mistakes_in_the_options_end_in_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--batch-sizes", "0"]) == 2
    assert "--batch-sizes" in capsys.readouterr().err
    assert program.main(["--precision", "float16", "--device", "cpu"]) == 2
    assert "bfloat16" in capsys.readouterr().err


@pytest.mark.slow
def test_a_measurement_in_a_process_of_its_own(encoder: str) -> None:
    found = fresh("benchmarks.training.one", specification(encoder))
    assert set(found) == FIGURES
    assert found["peak_mib"] == found["peak_mib_all"] > 0


@pytest.mark.slow
def test_two_processes_average_their_gradients(encoder: str) -> None:
    found = fresh("benchmarks.training.one", specification(encoder, processes=2))
    assert found["peak_mib_all"] > found["peak_mib"] > 0
    assert found["pairs_per_second"] == pytest.approx(1000 * 2 * 2 * 5 / found["step_ms"])
    with pytest.raises(RuntimeError, match="one process only"):
        fresh(
            "benchmarks.training.one",
            specification(encoder, processes=2, name="sentence-transformers"),
        )
