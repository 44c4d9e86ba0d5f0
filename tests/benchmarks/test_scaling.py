"""The scaling benchmark runs, its formula is the paper's, its fit is right. Speed is no test's matter."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scaling.__main__ import SYSTEMS, main
from benchmarks.scaling.cost import Tokens, count_tokens, fit_exponent, joint_cost, pointwise_cost
from benchmarks.scaling.lists import pooled_lists, words_of
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import CrossJEM
from tests import tiny_models


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_models.write_bert(tmp_path_factory.mktemp("scaling") / "bert", positions=512))


def test_the_program_writes_json_page_and_plot(encoder: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sizes = ["--items", "5", "20", "120", "--pools", "10", "40", "--union-items", "30"]
    assert main(["--smoke", "--encoder", encoder, *sizes, "--out", str(out)]) == 0
    found = json.loads((out / "scaling.json").read_text())
    assert [(row["size"], row["name"]) for row in found["by_items"]] == [
        (items, name) for items in (5, 20, 120) for name in SYSTEMS
    ]
    assert {row["size"] for row in found["by_union"]} == {10, 40}
    for row in [*found["by_items"], *found["by_union"]]:
        assert min(row["milliseconds"], row["gflop"], row["paper_cost"]) > 0
    by_pool = {(row["name"], row["size"]): row for row in found["by_union"]}
    assert by_pool["crossjem", 40]["gflop"] > by_pool["crossjem", 10]["gflop"]
    assert by_pool["monobert", 40]["gflop"] == by_pool["monobert", 10]["gflop"]
    for over in ("items", "tail", "union"):
        assert set(found["exponents"][over]) == set(SYSTEMS)
    assert found["exponents"]["items"]["monobert"]["flops"]["value"] == pytest.approx(1, abs=0.15)
    assert found["exponents"]["items"]["crossjem"]["flops"]["value"] < 0.9
    assert found["exponents"]["union"]["monobert"]["flops"]["value"] == pytest.approx(0, abs=1e-9)
    assert found["tail"] == 20
    assert "paper's formula" in (out / "scaling.md").read_text()
    assert (out / "scaling.png").stat().st_size > 1000


def test_the_formula_gives_the_papers_example() -> None:
    """Section 5.2: L_q = L_k = 24, N = 100, a union of 220: 400 L_q^2 L against 101.8 L_q^2 L, 3.9 times."""
    tokens = Tokens(items=100, query=24, item=24, union=220)
    assert tokens.compression == pytest.approx(10.9, abs=0.01)
    assert pointwise_cost(tokens, 6) / (24**2 * 6) == pytest.approx(400)
    with_their_rounding = (24 + 24 * 100 / 11) ** 2 / 24**2
    assert with_their_rounding == pytest.approx(101.8, abs=0.05)
    assert joint_cost(tokens, 6) / (24**2 * 6) == pytest.approx(103.4, abs=0.05)
    assert pointwise_cost(tokens, 6) / joint_cost(tokens, 6) == pytest.approx(3.9, abs=0.05)


def test_the_fit_finds_the_exponent() -> None:
    sizes = np.array([10.0, 30, 100, 300])
    exact = fit_exponent(list(sizes), list(3 * sizes**1.7))
    assert exact.value == pytest.approx(1.7)
    assert exact.error == pytest.approx(0, abs=1e-6)
    noisy = fit_exponent(list(sizes), list(sizes * np.exp([0.1, -0.1, 0.1, -0.1])))
    x, y = np.log(sizes), np.log(sizes) + np.array([0.1, -0.1, 0.1, -0.1])
    covariance = np.polyfit(x, y, 1, cov=True)[1]
    assert noisy.error == pytest.approx(np.sqrt(covariance[0, 0]))
    assert str(fit_exponent([1, 2], [1, 4])) == "2.00"
    assert str(fit_exponent([1, 2, 4], [5, 5, 5])) == "0.00 ± 0.00"
    for sizes_, costs in (([1, 1], [1, 2]), ([1, 2], [0, 1]), ([1, 2], [1])):
        with pytest.raises(ValueError, match="at least two"):
            fit_exponent(sizes_, costs)


def test_pools_set_the_union_and_nothing_else(encoder: str) -> None:
    ranker = CrossJEM(encoder)
    found = {pool: count_tokens(ranker, pooled_lists(ranker.tokenizer, 2, 30, pool)) for pool in (8, 20, 50)}
    assert {(tokens.items, tokens.query, tokens.item) for tokens in found.values()} == {(30, 3.0, 4.0)}
    assert found[8].union == 8
    assert found[8].union < found[20].union < found[50].union <= 50
    words = words_of(ranker.tokenizer)
    assert len(words) == len(set(words)) > 50
    with pytest.raises(ValueError, match="the tokenizer has"):
        pooled_lists(ranker.tokenizer, 1, 5, 10_000)
    with pytest.raises(ValueError, match="too small"):
        pooled_lists(ranker.tokenizer, 1, 500, 5)


def test_tokens_are_counted_with_the_rankers_limits(encoder: str) -> None:
    ranker = CrossJEM(encoder, max_item_tokens=2)
    one = RankingList.from_texts("cheap shoes", ["red shoes online", "red boots", "sofa"])
    assert count_tokens(ranker, [one]) == Tokens(3, 2.0, float(np.mean([2, 2, 1])), 4.0)


def test_mistakes_in_the_options_end_in_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--items", "10"]) == 2
    assert "--items" in capsys.readouterr().err
    assert main(["--rounds", "-1"]) == 2
    assert "--rounds" in capsys.readouterr().err
