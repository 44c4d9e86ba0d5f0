"""The training, scaling and streaming benchmarks run; the paper's formula and the fit are right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import scaling, streaming_memory, training
from benchmarks.program import fresh
from crossjem_pl.data.simulator import simulate
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM

FIGURES = {"step_ms", "tokenise_ms", "pairs_per_second", "peak_mib"}


def in_this_process(monkeypatch: pytest.MonkeyPatch, program: Any, measure: Any) -> None:
    def here(module: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        assert module == program.__name__
        return dict(measure(json.loads(json.dumps(spec, default=str))))

    monkeypatch.setattr(program, "fresh", here)


def test_training_writes_json_page_and_plot(
    encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch, training, training.measure_steps)
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
        assert set(row) > FIGURES
        assert 0 < row["tokenise_ms"] < row["step_ms"]
        assert row["pairs_per_second"] == pytest.approx(1000 * 2 * row["items"] / row["step_ms"])
    first, other = found["rows"][:2]
    assert first["faster"]["monobert"] == pytest.approx(first["pairs_per_second"] / other["pairs_per_second"])
    assert "| sentence-transformers | 6 | 2 | bfloat16 |" in (tmp_path / "training.md").read_text()
    assert (tmp_path / "training.png").stat().st_size > 1000


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


@pytest.mark.parametrize("name", ["crossjem", "monobert", "sentence-transformers"])
def test_a_step_changes_the_weights(name: str, encoder: str) -> None:
    learner = training.Learner(name, encoder, torch.device("cpu"), "float32")
    before = [weight.detach().clone() for weight in learner.module.parameters()]
    whole, tokenising = learner.step(list(simulate(2, 5)))
    assert whole > tokenising > 0
    after = list(learner.module.parameters())
    changed = [not torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert sum(changed) > len(changed) / 2
    assert all(weight.grad is None for weight in after)


def test_a_measurement_from_the_command_line(encoder: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"name": "crossjem", "encoder": encoder, "items": 5, "batch_size": 2, "precision": "float32"}
    assert training.main(["--measure", json.dumps({**spec, "device": "cpu", "threads": 1, "steps": 2})]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(found) == FIGURES
    assert found["peak_mib"] >= 0


def test_a_fresh_process_answers_on_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echo.py").write_text("import sys; print('noise'); print(sys.argv[-1])")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert fresh("echo", {"items": 5, "out": Path("x")}) == {"items": 5, "out": "x"}
    with pytest.raises(RuntimeError, match="No module named"):
        fresh("nothing_here", {})


def test_scaling_writes_json_page_and_plot(encoder: str, tmp_path: Path) -> None:
    sizes = ["--items", "5", "20", "120", "--pools", "10", "40", "--union-items", "30"]
    assert scaling.main(["--smoke", "--encoder", encoder, *sizes, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "scaling.json").read_text())
    order = [(items, name) for items in (5, 20, 120) for name in scaling.SYSTEMS]
    assert [(row["size"], row["name"]) for row in found["by_items"]] == order
    assert {row["size"] for row in found["by_union"]} == {10, 40}
    for row in [*found["by_items"], *found["by_union"]]:
        assert min(row["ms"], row["gflop"], row["paper_cost"]) > 0
    by_pool = {(row["name"], row["size"]): row for row in found["by_union"]}
    assert by_pool["crossjem", 40]["gflop"] > by_pool["crossjem", 10]["gflop"]
    assert by_pool["monobert", 40]["gflop"] == by_pool["monobert", 10]["gflop"]
    assert found["exponents"]["items"]["monobert"]["gflop"][0] == pytest.approx(1, abs=0.15)
    assert found["exponents"]["items"]["crossjem"]["gflop"][0] < 0.9
    assert found["exponents"]["union"]["monobert"]["gflop"][0] == pytest.approx(0, abs=1e-9)
    assert "paper's formula" in (tmp_path / "scaling.md").read_text()
    assert (tmp_path / "scaling.png").stat().st_size > 1000


def test_the_formula_gives_the_papers_example() -> None:
    """Section 5.2: L_q = L_k = 24, N = 100, a union of 220: 400 L_q^2 L against 101.8 L_q^2 L, 3.9 times."""
    tokens = {"items": 100, "query": 24.0, "item": 24.0, "union": 220.0}
    pointwise, joint = (scaling.paper_cost(tokens, 6, joint) / (24**2 * 6) for joint in (False, True))
    assert pointwise == pytest.approx(400)
    assert joint == pytest.approx(103.4, abs=0.05)  # the paper rounds the compression: 101.8
    assert pointwise / joint == pytest.approx(3.9, abs=0.05)


def test_the_fit_finds_the_exponent() -> None:
    sizes = np.array([10.0, 30, 100, 300])
    assert scaling.fit_exponent(sizes, 3 * sizes**1.7) == pytest.approx((1.7, 0), abs=1e-6)
    noise = np.array([0.1, -0.1, 0.1, -0.1])
    covariance = np.polyfit(np.log(sizes), np.log(sizes) + noise, 1, cov=True)[1]
    assert scaling.fit_exponent(sizes, sizes * np.exp(noise))[1] == pytest.approx(np.sqrt(covariance[0, 0]))
    assert scaling.fit_exponent([1, 2], [1, 4]) == (pytest.approx(2), None)
    assert scaling.fit_exponent([1, 2, 4], [5, 5, 5]) == (pytest.approx(0), 0.0)
    for sizes_, costs in (([1, 1], [1, 2]), ([1, 2], [0, 1]), ([1, 2], [1])):
        with pytest.raises(ValueError, match="at least two"):
            scaling.fit_exponent(sizes_, costs)


def test_pools_set_the_union_and_nothing_else(encoder: str) -> None:
    ranker = CrossJEM(encoder)

    def count(pool: int) -> dict[str, float]:
        return scaling.count_tokens(ranker, scaling.pooled_lists(ranker.tokenizer, 2, 30, pool))

    found = {pool: count(pool) for pool in (8, 20, 50)}
    assert {(tokens["items"], tokens["query"], tokens["item"]) for tokens in found.values()} == {
        (30, 3.0, 4.0)
    }
    assert found[8]["union"] == 8
    assert found[8]["union"] < found[20]["union"] < found[50]["union"] <= 50
    with pytest.raises(ValueError, match="the tokenizer has"):
        scaling.pooled_lists(ranker.tokenizer, 1, 5, 10_000)
    with pytest.raises(ValueError, match="too small"):
        scaling.pooled_lists(ranker.tokenizer, 1, 500, 5)
    short = CrossJEM(encoder, max_item_tokens=2)
    one = RankingList.from_texts("cheap shoes", ["red shoes online", "red boots", "sofa"])
    counted = {"items": 3, "query": 2.0, "item": pytest.approx(5 / 3), "union": 4.0}
    assert scaling.count_tokens(short, [one]) == counted


def test_streaming_needs_the_same_memory_for_more_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch, streaming_memory, streaming_memory.measure)
    sizes = ["--lists", "20", "40", "--items", "12", "--shard-size", "10", "--workers", "0"]
    assert streaming_memory.main([*sizes, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "streaming_memory.json").read_text())
    assert [row["lists"] for row in found["runs"]] == [20, 40]
    assert "within 10%" in (tmp_path / "streaming_memory.md").read_text()


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        (training, ["--batch-sizes", "0"], "--batch-sizes"),
        (training, ["--precision", "float16", "--device", "cpu"], "bfloat16"),
        (scaling, ["--items", "10"], "--items"),
        (scaling, ["--rounds", "-1"], "--rounds"),
    ],
)
def test_mistakes_in_the_options_end_in_a_message(
    program: Any, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(arguments) == 2
    assert message in capsys.readouterr().err
