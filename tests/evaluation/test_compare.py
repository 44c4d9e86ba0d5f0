"""Comparisons of run folders and run files: the numbers, the refusals, and what is written."""

from __future__ import annotations

import json
import random
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from crossjem_pl.data.formats import write_lists, write_qrels, write_run
from crossjem_pl.evaluation import compare, compare_runs, evaluate_run, plots, wording, write_comparison
from crossjem_pl.evaluation.significance import holm, randomisation_test, t_test
from crossjem_pl.lists import RankingList
from tests.evaluation.html_pages import parse

METRICS = ["RR@10", "AP@10"]
EVIL = "<script>alert('x')</script> & | *bold* $x$"


def lists() -> list[RankingList]:
    rng = random.Random(0)
    made = []
    for q in range(40):
        labels = [float(rng.random() < 0.2) for _ in range(8)]
        ids = tuple(f"d{q}_{i}" for i in range(8))
        made.append(
            RankingList(f"q{q}", f"{EVIL} {q}", ids, tuple(f"{EVIL} {i}" for i in ids), tuple(labels))
        )
    return made


def noisy_run(noise: float, seed: int) -> dict[str, dict[str, float]]:
    rng = random.Random(seed)
    return {
        one.query_id: {
            i: label + rng.gauss(0, noise) for i, label in zip(one.item_ids, one.labels or (), strict=True)
        }
        for one in lists()
    }


def write_folder(path: Path, run: dict[str, dict[str, float]], **summary: Any) -> Path:
    path.mkdir(parents=True)
    write_run(run, path / "val.trec")
    write_qrels(lists(), path / "val.qrels")
    if summary:
        (path / "summary.json").write_text(json.dumps(summary))
    return path


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """A baseline and three systems; the first folder holds the texts."""
    made = [
        write_folder(
            tmp_path / "mono",
            noisy_run(1.0, 0),
            ranker="monobert",
            parameters=22_700_000,
            train_seconds=900.0,
        ),
        write_folder(
            tmp_path / "joint", noisy_run(0.1, 1), ranker="crossjem", parameters=22_700_000, train_seconds=90
        ),
        write_folder(
            tmp_path / "sparse", noisy_run(9.0, 2), ranker=EVIL, parameters=0, split_metrics={"val": {}}
        ),
        write_folder(tmp_path / "same", noisy_run(1.0, 0)),
    ]
    write_lists(lists(), made[0] / "val_lists.parquet")
    return made


def test_numbers_are_those_of_the_parts(folders: list[Path]) -> None:
    found = compare_runs(folders, "monobert", METRICS)
    assert [system.name for system in found.systems] == ["monobert", "crossjem", EVIL, "same"]
    qrels = {
        o.query_id: {i: int(v) for i, v in zip(o.item_ids, o.labels or (), strict=True)} for o in lists()
    }
    values = {
        name: evaluate_run(run, qrels, METRICS).per_query
        for name, run in (
            ("monobert", noisy_run(1.0, 0)),
            ("crossjem", noisy_run(0.1, 1)),
            (EVIL, noisy_run(9.0, 2)),
        )
    }
    for metric in METRICS:
        differences = [(values[n] - values["monobert"])[metric].to_numpy() for n in ("crossjem", EVIL)]
        p = [float(randomisation_test(d)) for d in differences] + [1.0]
        p_t = [float(t_test(d)) for d in differences] + [1.0]
        for i, system in enumerate(found.systems[1:3]):
            result = system.metrics[metric]
            assert result.mean == pytest.approx(values[system.name][metric].mean())
            assert result.low < result.mean < result.high
            assert result.difference is not None
            assert result.difference.mean == pytest.approx(differences[i].mean())
            assert result.difference.p_randomisation == pytest.approx(p[i], abs=1e-4)
            assert result.difference.p_randomisation_holm == pytest.approx(holm(p)[i], abs=3e-4)
            assert result.difference.p_t_holm == pytest.approx(holm(p_t)[i])
            counts = result.difference.counts
            assert (counts.wins, counts.losses) == ((differences[i] > 0).sum(), (differences[i] < 0).sum())
    assert found.systems[0].metrics["RR@10"].difference is None
    joint, sparse, same = (system.metrics["RR@10"].difference for system in found.systems[1:])
    assert joint is not None
    assert joint.significant
    assert joint.low > 0
    assert sparse is not None
    assert sparse.significant
    assert sparse.high < 0
    assert same is not None
    assert not same.significant
    assert (same.mean, same.p_randomisation, same.p_t, same.counts.ties) == (0, 1, 1, 40)
    assert found.systems[1].parameters == 22_700_000
    assert found.systems[3].parameters is None
    assert found.per_query.shape == (40, 8)


def test_a_system_alone_changes_nothing_but_the_correction(folders: list[Path]) -> None:
    alone = compare_runs(folders[:2], None, METRICS).systems[1].metrics["AP@10"].difference
    together = compare_runs(folders, None, METRICS).systems[1].metrics["AP@10"].difference
    assert alone is not None
    assert together is not None
    for field in ("mean", "low", "high", "p_randomisation", "p_t"):
        assert getattr(together, field) == pytest.approx(getattr(alone, field), abs=1e-12)
    assert together.counts == alone.counts
    assert alone.p_t_holm == alone.p_t < together.p_t_holm


def test_examples_are_the_largest_differences(folders: list[Path]) -> None:
    found = compare_runs(folders, "monobert", METRICS, examples=2)
    differences = found.per_query["crossjem", "RR@10"] - found.per_query["monobert", "RR@10"]
    mine = [one for one in found.examples if one.system == "crossjem"]
    gains = [one.value - one.baseline_value for one in mine if one.value > one.baseline_value]
    assert gains == pytest.approx(differences.nlargest(2).tolist())
    assert not [one for one in found.examples if one.system == "same"]
    first = mine[0]
    assert first.query == f"{EVIL} {first.query_id[1:]}"
    assert len(first.top) == len(first.baseline_top) == 5
    assert first.candidates == 8
    assert first.top[0].relevant
    assert not first.baseline_top[0].relevant
    assert first.top[0].text == f"{EVIL} {first.top[0].item_id}"
    run = noisy_run(0.1, 1)[first.query_id]
    assert [item.item_id for item in first.top] == sorted(run, key=lambda item: -run[item])[:5]


def test_written_files(folders: list[Path], tmp_path: Path) -> None:
    found = compare(folders, "mono", METRICS, tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "compare.csv",
        "compare.html",
        "compare.md",
    ]

    table = pd.read_csv(tmp_path / "out/compare.csv")
    assert table["system"].tolist() == [system.name for system in found.systems]
    assert table["RR@10"].tolist() == pytest.approx([s.metrics["RR@10"].mean for s in found.systems])
    assert table["baseline"].tolist() == [True, False, False, False]
    row: dict[Any, Any] = table.to_dict(orient="records")[1]
    assert row["AP@10 wins"] + row["AP@10 ties"] + row["AP@10 losses"] == 40
    assert table.loc[3, "RR@10 p randomisation Holm"] == 1.0

    markdown = (tmp_path / "out/compare.md").read_text()
    assert "<script>" not in markdown
    assert "monobert (baseline)" in markdown
    rows = [line.replace(r"\|", "") for line in markdown.splitlines() if line.startswith("|")][:6]
    assert {row.count("|") for row in rows} == {12}
    assert "✓ **" in markdown

    page = parse(tmp_path / "out/compare.html")
    tags = [tag for tag, _ in page.seen]
    assert not {"script", "link", "iframe"} & set(tags)
    assert all(
        (attrs["src"] or "").startswith("data:image/svg+xml;base64,")
        for tag, attrs in page.seen
        if tag == "img"
    )
    assert (
        tags.count("img") == 2 + 1 + 1 + 3
    )  # metrics, parameters, training time, systems against the baseline
    assert EVIL in page.text
    assert tags.count("section") == len(found.examples) > 6
    relevant = sum(item.relevant for one in found.examples for item in one.top + one.baseline_top)
    assert [attrs.get("class") for tag, attrs in page.seen if tag == "li"].count("relevant") == relevant > 0


def test_plots_are_svg_and_repeatable(folders: list[Path]) -> None:
    found = compare_runs(folders, "monobert", METRICS)
    drawn = plots.draw(found)
    assert [ET.fromstring(plot.svg).tag for plot in drawn] == ["{http://www.w3.org/2000/svg}svg"] * 7
    assert drawn == plots.draw(found)
    assert drawn[2].description.startswith("RR@10 against parameters: crossjem")
    assert EVIL not in drawn[2].description  # no place for 0 parameters on a logarithmic axis
    assert "40 equal" in drawn[-1].description


def test_without_matplotlib_the_report_says_so(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    compare(folders[:2], None, METRICS, tmp_path / "out")
    page = parse(tmp_path / "out/compare.html")
    assert "img" not in [tag for tag, _ in page.seen]
    assert "crossjem_pl[plots]" in " ".join(page.text)
    assert "crossjem" in (tmp_path / "out/compare.md").read_text()


def test_bare_run_files_need_qrels_and_show_ids(folders: list[Path], tmp_path: Path) -> None:
    for name, run in (("one.trec", noisy_run(1.0, 0)), ("two.run", noisy_run(0.1, 1))):
        write_run(run, tmp_path / name)
    files = [tmp_path / "one.trec", tmp_path / "two.run"]
    with pytest.raises(ValueError, match="no qrels"):
        compare_runs(files, None, METRICS)
    found = compare_runs(files, None, METRICS, folders[0] / "val.qrels")
    assert [system.name for system in found.systems] == ["one", "two"]
    assert found.split is None
    assert found.examples[0].query is None
    write_comparison(found, tmp_path / "out")
    assert found.examples[0].top[0].item_id in " ".join(parse(tmp_path / "out/compare.html").text)
    mixed = compare_runs([folders[1], files[0]], None, METRICS)
    assert mixed.systems[1].metrics["RR@10"].mean == found.systems[0].metrics["RR@10"].mean


def test_one_system_alone(folders: list[Path], tmp_path: Path) -> None:
    found = compare(folders[:1], None, METRICS, tmp_path / "out")
    assert found.others == found.examples == ()
    text = (tmp_path / "out/compare.md").read_text()
    assert "win/tie/loss" not in text
    assert "monobert" in text
    assert "1 system on 40 queries of the val split" in " ".join(parse(tmp_path / "out/compare.html").text)


def test_different_queries_and_candidates_are_refused(folders: list[Path], tmp_path: Path) -> None:
    fewer = noisy_run(0.1, 1)
    del fewer["q7"]
    folder = write_folder(tmp_path / "fewer", fewer)
    with pytest.raises(ValueError, match=r"same queries.*'q7' is in 'monobert' and not in 'fewer'"):
        compare_runs([folders[0], folder], None, METRICS)
    found = compare_runs([folders[0], folder], None, METRICS, allow_different=True)
    assert found.systems[1].missing == 1
    assert found.per_query.loc["q7", ("fewer", "RR@10")] == 0
    assert found.notes[0] == "fewer lacks 1 of the 40 judged queries; they count as 0."
    assert "q7" not in [one.query_id for one in found.examples]

    other = noisy_run(0.1, 1)
    other["q3"]["new"] = 9.0
    folder = write_folder(tmp_path / "other", other)
    with pytest.raises(ValueError, match=r"same candidates for query 'q3'.*'new' is in 'other'"):
        compare_runs([folders[0], folder], None, METRICS)
    assert compare_runs([folders[0], folder], None, METRICS, allow_different=True).systems[1].missing == 0


def test_different_judgements_are_refused(folders: list[Path]) -> None:
    qrels = folders[1] / "val.qrels"
    qrels.write_text(
        qrels.read_text().replace("q5 0 d5_0 0", "q5 0 d5_0 3").replace("q5 0 d5_0 1", "q5 0 d5_0 3")
    )
    with pytest.raises(ValueError, match="different judgements, first of query 'q5'"):
        compare_runs(folders[:2], None, METRICS)
    assert compare_runs(folders[:2], None, METRICS, qrels).queries == 40


def test_notes_tell_what_dilutes_the_means(folders: list[Path], tmp_path: Path) -> None:
    qrels = tmp_path / "more.qrels"
    qrels.write_text((folders[0] / "val.qrels").read_text() + "q0 0 elsewhere 1\nunseen 0 x 0\n")
    run = noisy_run(0.3, 4)
    run["unjudged"] = {"a": 1.0}
    for i in (0, 1):
        path = folders[i] / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": f"machine {i}"}))
        write_run(noisy_run(0.3, i) | {"unjudged": {"a": 1.0}}, folders[i] / "val.trec")
    notes = " ".join(compare_runs(folders[:2], None, METRICS, qrels).notes)
    assert "monobert lacks 1 of the 41 judged queries" in notes
    assert "ranks 1 queries without judgements" in notes
    assert re.search(r"\b1 of the \d+ relevant items are in no run's lists", notes)
    assert "judged queries have no relevant item" in notes
    assert "different machines: machine 0; machine 1" in notes


def test_runs_of_one_ranker_get_names_of_their_own(tmp_path: Path) -> None:
    paths = [
        write_folder(tmp_path / folder, noisy_run(0.2, seed), ranker="crossjem", seed=seed)
        for seed, folder in enumerate(("a/v0", "a/v1", "b/v1"))
    ]
    names = [system.name for system in compare_runs(paths, "v0", METRICS).systems]
    assert names == ["crossjem (v0)", f"crossjem ({paths[1]})", f"crossjem ({paths[2]})"]
    with pytest.raises(ValueError, match="names several systems"):
        compare_runs(paths, "v1", METRICS)
    assert compare_runs(paths, str(paths[2]), METRICS).baseline == names[2]
    with pytest.raises(ValueError, match="given twice"):
        compare_runs([paths[0], paths[0]], None, METRICS)


def test_bad_arguments_and_files_are_refused(folders: list[Path]) -> None:
    with pytest.raises(ValueError, match="baseline 'nobody' is none of the systems: monobert, crossjem"):
        compare_runs(folders, "nobody", METRICS)
    with pytest.raises(ValueError, match="no run"):
        compare_runs([], None, METRICS)
    with pytest.raises(ValueError, match="speed"):
        compare_runs(folders, None, ["speed@3"])
    with pytest.raises(ValueError, match="examples"):
        compare_runs(folders, None, METRICS, examples=-1)
    with pytest.raises(FileNotFoundError, match=r"test\.trec is missing; runs of this folder: val\.trec"):
        compare_runs(folders, None, METRICS, split="test")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        compare_runs([folders[0] / "nowhere"], None, METRICS)
    summary = folders[0] / "summary.json"
    for text, message in (
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ('{"parameters": "many"}', "field 'parameters': expected int"),
        ('{"train_seconds": -1}', "at least 0"),
        ('{"seed": true}', "field 'seed'"),
    ):
        summary.write_text(text)
        with pytest.raises(ValueError, match=message):
            compare_runs(folders, None, METRICS)


def test_wording() -> None:
    assert [wording.parameters(n) for n in (None, 0, 999, 1000, 22_713_216, 999_900, 4_000_000_000)] == [
        "–", "0", "999", "1K", "22.7M", "1M", "4B",
    ]  # fmt: skip
    assert [wording.training_time(s) for s in (None, 0, 31.24, 59.9, 148, 3599, 3725, 36_000)] == [
        "–", "0 s", "31 s", "1 min", "2 min", "1 h 00 min", "1 h 02 min", "10 h 00 min",
    ]  # fmt: skip
    assert [wording.p_value(p) for p in (0.00001, 0.0123, 0.5, 1.0)] == ["<.0001", ".0123", ".5000", "1.0"]


def test_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    for folder, noise in (("run", 1.0), ("runs/monobert", 1.0), ("runs/crossjem", 0.1)):
        write_folder(tmp_path / folder, noisy_run(noise, 0))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "docs/evaluation.md", "exec"), {})
    assert (tmp_path / "run/metrics.json").is_file()
    assert (tmp_path / "comparison/compare.html").is_file()


def test_queries_without_a_value_are_left_out_of_their_metric(tmp_path: Path) -> None:
    """AUC is not defined for a query whose items are all relevant: the others make a table, a note says so."""
    qrels = {"a": {"x": 1, "y": 0}, "b": {"x": 1, "y": 1}, "c": {"x": 0, "y": 1}}
    paths = []
    for name, scores in (("one", {"x": 2.0, "y": 1.0}), ("two", {"x": 1.0, "y": 2.0})):
        write_run(dict.fromkeys(qrels, scores), tmp_path / f"{name}.trec", tag=name)
        paths.append(tmp_path / f"{name}.trec")
    write_qrels(qrels, tmp_path / "judged.qrels")
    found = compare_runs(paths, names=["AUC", "RR@10"], qrels=tmp_path / "judged.qrels")
    assert found.systems[0].metrics["AUC"].mean == 0.5
    assert found.systems[0].metrics["RR@10"].mean == pytest.approx((1 + 1 + 0.5) / 3)
    assert any("AUC is not defined for 1 of the queries" in note for note in found.notes)
