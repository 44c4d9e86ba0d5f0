"""Comparisons of run folders and run files: the numbers, the refusals, and what is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from crossjem_pl.data.trec import read_run, write_run
from crossjem_pl.evaluation import Comparison, compare, compare_runs, evaluate_run
from crossjem_pl.evaluation.report import comparison_report
from crossjem_pl.evaluation.sections import results_table
from crossjem_pl.evaluation.significance import equivalence_test, holm, randomisation_test, t_test
from tests.evaluation.run_folders import EVIL, lists, parse, write_run_folder

METRICS = ["RR@10", "AP@10"]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """A baseline and three systems; the last one ranks as the baseline does."""
    return [
        write_run_folder(tmp_path / "mono", 8.0, None, ranker="monobert", parameters=22_700_000),
        write_run_folder(tmp_path / "joint", 1.5, None, ranker="crossjem", parameters=None, train_seconds=90),
        write_run_folder(tmp_path / "sparse", 30.0, None, ranker=EVIL, parameters=0),
        write_run_folder(tmp_path / "same", 8.0, None, parameters=None),
    ]


def examples_of(comparison: Comparison, count: int) -> dict[str, Any]:
    (section,) = comparison_report(comparison, count).sections[1:]
    return dict(section.data["examples"])


def scores_of(folder: Path) -> dict[str, dict[str, float]]:
    return read_run(folder / "val.trec")


def test_numbers_are_those_of_the_parts(folders: list[Path]) -> None:
    found = compare_runs(folders, "monobert", METRICS)
    assert list(found.runs) == ["monobert", "crossjem", EVIL, "same"]
    tables = [evaluate_run(scores_of(folder), found.qrels, METRICS).per_query for folder in folders]
    for metric in METRICS:
        values = np.stack([table[metric].to_numpy() for table in tables], axis=1)
        differences = values[:, 1:] - values[:, :1]
        results = found.results.loc[metric]
        assert results["mean"].tolist() == pytest.approx(values.mean(axis=0))
        assert ((results["low"] < results["mean"]) & (results["mean"] < results["high"])).all()
        assert results.loc["monobert", "difference":].isna().all()
        tests = results.iloc[1:]
        assert tests["difference"].tolist() == pytest.approx(differences.mean(axis=0))
        for column, p in (
            ("p randomisation", randomisation_test(differences)),
            ("p t", t_test(differences)),
            ("p level", equivalence_test(differences, 0.01)),
        ):
            assert tests[column].tolist() == pytest.approx(p.tolist())
            assert tests[f"{column} holm"].tolist() == pytest.approx(holm(p).tolist())
        assert (tests["p randomisation holm"] < 0.05).tolist() == [True, True, False]
        assert tests["difference low"].iloc[0] > 0 > tests["difference high"].iloc[1]
        assert tests[["wins", "ties", "losses"]].iloc[2].tolist() == [0, 60, 0]
        assert tests["wins"].iloc[0] == (differences[:, 0] > 0).sum()


def test_examples_are_the_largest_differences(folders: list[Path]) -> None:
    comparison = compare_runs(folders, "monobert", METRICS)
    values, found = comparison.values("RR@10"), examples_of(comparison, 2)
    gains = [one["sides"][0]["value"] - one["sides"][1]["value"] for one in found["crossjem"]]
    expected = (values["crossjem"] - values["monobert"]).nlargest(2).tolist()
    assert [gain for gain in gains if gain > 0] == pytest.approx(expected)
    assert "same" not in found
    first = found["crossjem"][0]
    run = scores_of(folders[1])[first["query"]]
    (expected_list,) = (one for one in lists() if one.query_id == first["query"])
    assert (first["title"], first["candidates"]) == (expected_list.query, len(expected_list))
    best, base = (side["ranking"] for side in first["sides"])
    assert [item["item"] for item in best.values()] == sorted(run, key=lambda item: -run[item])[:5]
    assert (best[1]["relevant"], base[1]["relevant"]) == (True, False)
    assert best[1]["label"] in expected_list.items


def test_written_files(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = compare(folders, "mono", METRICS, "out")
    out = tmp_path / "out"
    assert sorted(file.name for file in out.iterdir()) == ["compare.csv", "compare.html", "compare.md"]
    table = pd.read_csv(out / "compare.csv")
    assert table["system"].tolist() == ["monobert", "crossjem", f"'{EVIL}", "same"], "no cell is a formula"
    assert table["path"].tolist() == ["mono", "joint", "sparse", "same"], "from the working folder"
    assert table["RR@10"].tolist() == pytest.approx(found.results.loc["RR@10", "mean"].tolist())
    assert table.loc[1, ["AP@10 wins", "AP@10 ties", "AP@10 losses"]].sum() == 60
    assert table.loc[3, "RR@10 p randomisation holm"] == 1.0

    markdown = (out / "compare.md").read_text()
    assert "<script>" not in markdown
    assert "[a](b)" not in markdown
    assert "monobert (baseline)" in markdown
    rows = [line.replace(r"\|", "") for line in markdown.splitlines() if line.startswith("|")][:6]
    assert {row.count("|") for row in rows} == {12}
    assert "✓ **" in markdown
    assert "+0.0000≈" in markdown

    page = parse(out / "compare.html")
    tags = [tag for tag, _ in page.seen]
    assert EVIL in " ".join(page.text)
    assert tags.count("img") == 1
    assert tags.count("section") == sum(map(len, examples_of(found, 3).values())) > 5
    assert [attrs.get("class") for tag, attrs in page.seen if tag == "li"].count("relevant") > 0


def test_bare_run_files_need_qrels_and_show_ids(folders: list[Path], tmp_path: Path) -> None:
    files = [tmp_path / "one.trec", tmp_path / "two.run"]
    for folder, file in zip(folders, files, strict=False):
        write_run(scores_of(folder), file)
    with pytest.raises(ValueError, match="no qrels"):
        compare_runs(files)
    found = compare(files, None, METRICS, tmp_path / "out", folders[0] / "val.qrels")
    assert (list(found.runs), found.split) == (["one", "two"], None)
    first = examples_of(found, 1)["two"][0]
    assert first["title"] == f"query {first['query']}"
    assert first["sides"][0]["ranking"][1]["item"] in " ".join(parse(tmp_path / "out/compare.html").text)
    mixed = compare_runs([folders[1], files[0]], None, METRICS)
    assert mixed.results.loc[("RR@10", "one"), "mean"] == found.results.loc[("RR@10", "one"), "mean"]


def test_one_system_alone(folders: list[Path], tmp_path: Path) -> None:
    assert compare(folders[:1], None, METRICS, tmp_path / "out").others == []
    text = (tmp_path / "out/compare.md").read_text()
    assert "1 system on 60 queries of the val split" in text
    assert "win/tie/loss" not in text


def test_different_queries_and_candidates_are_refused(folders: list[Path]) -> None:
    fewer, other = scores_of(folders[1]), scores_of(folders[1])
    del fewer["q7"]
    other["q3"]["new"] = 9.0
    write_run(fewer, folders[1] / "val.trec")
    write_run(other, folders[3] / "val.trec")
    fewer_folder, other_folder = folders[1], folders[3]
    with pytest.raises(ValueError, match="query 'q7' is in 'monobert' and not in 'crossjem'"):
        compare_runs([folders[0], fewer_folder])
    with pytest.raises(ValueError, match="item 'new' of query 'q3' is in 'same'"):
        compare_runs([folders[0], other_folder])
    found = compare_runs([folders[0], fewer_folder, other_folder], allow_different=True)
    assert list(found.missing.values()) == [0, 1, 0]
    assert found.values("RR@10").loc["q7", "crossjem"] == 0
    assert found.notes[0] == "crossjem lacks 1 of the 60 judged queries; they count as 0."
    assert "q7" not in [one["query"] for one in examples_of(found, 60)["crossjem"]]


def test_different_judgements_are_refused(folders: list[Path]) -> None:
    qrels = folders[1] / "val.qrels"
    qrels.write_text(re.sub(r"q5 0 d5_0 \d", "q5 0 d5_0 3", qrels.read_text()))
    with pytest.raises(ValueError, match="different judgements, first of query 'q5'"):
        compare_runs(folders[:2])
    assert compare_runs(folders[:2], None, METRICS, qrels).qrels["q5"]["d5_0"] == 3


def test_the_lowest_relevant_grade_is_that_of_the_runs(folders: list[Path]) -> None:
    def told(number: int, grade: float) -> None:
        path = folders[number] / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"relevant_from": grade}))

    def means(found: Comparison) -> list[float]:
        return list(found.results.loc["RR@10", "mean"])

    told(0, 2)
    found = compare_runs(folders[:2])
    assert means(found) == means(compare_runs(folders[:2], names=["RR(rel=2)@10", "RR@10"], relevant_from=2))
    assert means(found) != means(compare_runs(folders[:2], relevant_from=1))
    assert "Relevant are grades of at least 2." in found.notes
    sides = [side["ranking"] for one in examples_of(found, 3)["crossjem"] for side in one["sides"]]
    assert {item["grade"] for side in sides for item in side.values() if item["relevant"]} == {2}
    told(1, 1)
    with pytest.raises(ValueError, match=r"lowest relevant grade \(monobert 2, crossjem 1\)"):
        compare_runs(folders[:2])


def test_notes_tell_what_dilutes_the_means(folders: list[Path], tmp_path: Path) -> None:
    qrels = tmp_path / "more.qrels"
    judged = re.sub(r"^q1 0 (\S+) \d", r"q1 0 \1 1", (folders[0] / "val.qrels").read_text(), flags=re.M)
    qrels.write_text(judged + "q0 0 elsewhere 1\nunseen 0 x 0\n")
    for i in (0, 1):
        (folders[i] / "summary.json").write_text(json.dumps({"machine": f"machine {i}"}))
        write_run(scores_of(folders[i]) | {"unjudged": {"a": 1.0}}, folders[i] / "val.trec")
    notes = " ".join(compare_runs(folders[:2], None, [*METRICS, "AUC"], qrels).notes)
    assert "mono lacks 1 of the 61 judged queries" in notes
    assert "ranks 1 queries without judgements" in notes
    assert re.search(r"\b1 of the \d+ relevant items are in no run's lists", notes)
    assert "judged queries have no relevant item" in notes
    assert "different machines: machine 0; machine 1" in notes
    assert re.search(r"AUC is not defined for 1 of the queries", notes)


def test_runs_of_one_ranker_get_names_of_their_own(tmp_path: Path) -> None:
    paths = [
        write_run_folder(tmp_path / folder, 0.2, None, ranker="crossjem")
        for folder in ("a/v0", "a/v1", "b/v1")
    ]
    names = list(compare_runs(paths, "v0").runs)
    assert names == ["crossjem (v0)", f"crossjem ({paths[1]})", f"crossjem ({paths[2]})"]
    assert compare_runs(paths, str(paths[2])).baseline == names[2]
    with pytest.raises(ValueError, match="names several systems"):
        compare_runs(paths, "v1")
    with pytest.raises(ValueError, match="given twice"):
        compare_runs([paths[0], paths[0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "nobody"}, "baseline 'nobody' is none of the systems: monobert, crossjem"),
        ({"runs": []}, "no run"),
        ({"names": ["speed@3"]}, "speed"),
        ({"margin": 0.0}, "margin"),
        ({"split": "test"}, r"test\.trec is missing; runs of this folder: val\.trec"),
        ({"runs": ["nowhere"]}, "nowhere"),
    ],
)
def test_bad_arguments_are_refused(folders: list[Path], options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        compare_runs(**{"runs": folders} | options)


def test_seeds_of_one_method_are_one_system(tmp_path: Path) -> None:
    baseline = write_run_folder(tmp_path / "mono", 8.0, None, ranker="monobert")
    folders = [tmp_path / f"seed{seed}" for seed in range(3)]
    for seed, folder in enumerate(folders):
        write_run_folder(folder, 1.5 + seed, None, ranker="crossjem", seed=seed)
        config = folder / "config.yaml"
        config.write_text(config.read_text().replace("seed_everything: 7", f"seed_everything: {seed}"))
    alone = compare_runs([baseline, *folders], names=METRICS)
    assert len(alone.runs) == 4
    assert alone.results["sd"].isna().all()
    found = compare_runs([baseline, *folders], names=METRICS, group_seeds=True)
    assert list(found.runs) == ["monobert", "crossjem"]
    assert found.seeds == {"monobert": [7], "crossjem": [0, 1, 2]}
    means = alone.results.loc["RR@10", "mean"].iloc[1:]
    result: Any = found.results.loc[("RR@10", "crossjem")]
    assert (result["mean"], result["sd"]) == (pytest.approx(means.mean()), pytest.approx(means.std()))
    values = alone.values("RR@10").iloc[:, 1:].mean(axis=1)
    assert found.values("RR@10")["crossjem"].tolist() == pytest.approx(values.tolist())
    assert f" ± {means.std():.4f}" in results_table(found)["RR@10 [95% CI]"][1]
    assert "crossjem: 3 runs that differ in the seed alone (0, 1, 2)" in found.notes[0]
    assert compare_runs([baseline, *folders], "seed2", group_seeds=True).baseline == "crossjem"
    write_run({"q0": {"d0_0": 1.0}}, folders[1] / "val.trec")
    assert compare_runs([*folders], group_seeds=True, allow_different=True).missing == {"crossjem": 59}
    config.write_text(config.read_text() + "model: {lr: 1}\n")
    assert len(compare_runs([baseline, *folders], group_seeds=True, allow_different=True).runs) == 3


def test_runs_tell_which_model_wrote_them(folders: list[Path]) -> None:
    for folder, digits in zip(folders, ("0" * 12, "1" * 12, "1" * 12), strict=False):
        write_run(scores_of(folder), folder / "val.trec", tag=f"a-{digits}")
    found = compare_runs(folders)
    assert [run.model for run in found.runs.values()] == ["0" * 12, "1" * 12, "1" * 12, None]
    assert found.to_frame()["model"].tolist()[:2] == ["0" * 12, "1" * 12]
    assert f"crossjem and {EVIL} were written by the same model ({'1' * 12})." in found.notes
