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


def scores_of(folder: Path) -> dict[str, dict[str, float]]:
    return read_run(folder / "val.trec")


def test_numbers_are_those_of_the_parts(folders: list[Path]) -> None:
    found = compare_runs(folders, "monobert", METRICS)
    names = ["monobert", "crossjem", EVIL, "same"]
    assert [system.name for system in found.systems] == names
    assert [system.parameters for system in found.systems] == [22_700_000, None, 0, None]
    tables = [evaluate_run(scores_of(folder), found.qrels, METRICS).per_query for folder in folders]
    for metric in METRICS:
        values = np.stack([table[metric].to_numpy() for table in tables], axis=1)
        differences = values[:, 1:] - values[:, :1]
        results = [system.metrics[metric] for system in found.systems]
        assert [result.mean for result in results] == pytest.approx(values.mean(axis=0))
        assert all(result.low < result.mean < result.high for result in results)
        tests = [result.difference for result in results[1:] if result.difference is not None]
        assert results[0].difference is None
        assert [one.mean for one in tests] == pytest.approx(differences.mean(axis=0))
        for field, p in (
            ("p_randomisation", randomisation_test(differences)),
            ("p_t", t_test(differences)),
            ("p_level", equivalence_test(differences, 0.01)),
        ):
            assert [getattr(one, field) for one in tests] == pytest.approx(p.tolist())
            assert [getattr(one, f"{field}_holm") for one in tests] == pytest.approx(holm(p).tolist())
        assert [one.significant for one in tests] == [True, True, False]
        assert [one.level for one in tests] == [False, False, True]
        assert tests[0].low > 0 > tests[1].high
        assert tests[2].counts == (0, 60, 0)
        assert tests[0].counts.wins == (differences[:, 0] > 0).sum()


def test_a_system_alone_changes_nothing_but_the_correction(folders: list[Path]) -> None:
    alone = compare_runs(folders[:2], None, METRICS).systems[1].metrics["AP@10"].difference
    together = compare_runs(folders, None, METRICS).systems[1].metrics["AP@10"].difference
    assert alone is not None
    assert together is not None
    for field in ("counts", "mean", "low", "high", "p_randomisation", "p_t"):
        assert getattr(together, field) == pytest.approx(getattr(alone, field), abs=1e-12)
    assert alone.p_t_holm == alone.p_t < together.p_t_holm


def test_examples_are_the_largest_differences(folders: list[Path]) -> None:
    found = compare_runs(folders, "monobert", METRICS, examples=2)
    values = found.values("RR@10")
    gains = [side.value - base.value for side, base in (one.sides for one in found.examples["crossjem"])]
    expected = (values["crossjem"] - values["monobert"]).nlargest(2).tolist()
    assert [gain for gain in gains if gain > 0] == pytest.approx(expected)
    assert "same" not in found.examples
    first = found.examples["crossjem"][0]
    run = scores_of(folders[1])[first.query_id]
    (expected_list,) = (one for one in lists() if one.query_id == first.query_id)
    assert first.query == expected_list.query
    assert first.candidates == len(expected_list)
    best, base = first.sides
    assert [item.item_id for item in best.items] == sorted(run, key=lambda item: -run[item])[:5]
    assert (best.items[0].relevant, base.items[0].relevant) == (True, False)
    assert best.items[0].text in expected_list.items


def test_written_files(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = compare(folders, "mono", METRICS, "out")
    out = tmp_path / "out"
    assert sorted(file.name for file in out.iterdir()) == ["compare.csv", "compare.html", "compare.md"]
    table = pd.read_csv(out / "compare.csv")
    assert table["system"].tolist() == ["monobert", "crossjem", f"'{EVIL}", "same"], "no cell is a formula"
    assert table["path"].tolist() == ["mono", "joint", "sparse", "same"], "from the working folder"
    assert table["RR@10"].tolist() == pytest.approx([s.metrics["RR@10"].mean for s in found.systems])
    assert table.loc[1, ["AP@10 wins", "AP@10 ties", "AP@10 losses"]].sum() == 60
    assert table.loc[3, "RR@10 p randomisation holm"] == 1.0
    assert not np.isnan(table.loc[1:, "RR@10 p level"]).any()

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
    assert tags.count("img") == 1 + 3  # means, systems against the baseline
    examples = [one for shown in found.examples.values() for one in shown]
    assert tags.count("section") == len(examples) > 5
    relevant = sum(item.relevant for one in examples for side in one.sides for item in side.items)
    assert [attrs.get("class") for tag, attrs in page.seen if tag == "li"].count("relevant") == relevant > 0


def test_bare_run_files_need_qrels_and_show_ids(folders: list[Path], tmp_path: Path) -> None:
    files = [tmp_path / "one.trec", tmp_path / "two.run"]
    for folder, file in zip(folders, files, strict=False):
        write_run(scores_of(folder), file)
    with pytest.raises(ValueError, match="no qrels"):
        compare_runs(files)
    found = compare(files, None, METRICS, tmp_path / "out", folders[0] / "val.qrels")
    assert [system.name for system in found.systems] == ["one", "two"]
    assert found.split is None
    first = found.examples["two"][0]
    assert first.query is None
    assert first.sides[0].items[0].item_id in " ".join(parse(tmp_path / "out/compare.html").text)
    mixed = compare_runs([folders[1], files[0]], None, METRICS)
    assert mixed.systems[1].metrics["RR@10"].mean == found.systems[0].metrics["RR@10"].mean


def test_one_system_alone(folders: list[Path], tmp_path: Path) -> None:
    found = compare(folders[:1], None, METRICS, tmp_path / "out")
    assert (found.others, found.examples) == ((), {})
    assert "win/tie/loss" not in (tmp_path / "out/compare.md").read_text()
    assert "1 system on 60 queries of the val split" in " ".join(parse(tmp_path / "out/compare.html").text)


def test_different_queries_and_candidates_are_refused(folders: list[Path]) -> None:
    fewer, other = scores_of(folders[1]), scores_of(folders[1])
    del fewer["q7"]
    other["q3"]["new"] = 9.0
    write_run(fewer, folders[1] / "val.trec")
    write_run(other, folders[3] / "val.trec")
    fewer_folder, other_folder = folders[1], folders[3]
    with pytest.raises(ValueError, match=r"same queries.*'q7' is in 'monobert' and not in 'crossjem'"):
        compare_runs([folders[0], fewer_folder])
    with pytest.raises(ValueError, match=r"same candidates for query 'q3'.*'new' is in 'same'"):
        compare_runs([folders[0], other_folder])
    found = compare_runs([folders[0], fewer_folder, other_folder], allow_different=True)
    assert [system.missing for system in found.systems] == [0, 1, 0]
    assert found.values("RR@10").loc["q7", "crossjem"] == 0
    assert found.notes[0] == "crossjem lacks 1 of the 60 judged queries; they count as 0."
    assert "q7" not in [one.query_id for one in found.examples["crossjem"]]


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
        return [system.metrics["RR@10"].mean for system in found.systems]

    told(0, 2)
    found = compare_runs(folders[:2])
    assert means(found) == means(compare_runs(folders[:2], names=["RR(rel=2)@10", "RR@10"], relevant_from=2))
    assert means(found) != means(compare_runs(folders[:2], relevant_from=1))
    assert "Relevant are grades of at least 2." in found.notes
    items = [i for one in found.examples["crossjem"] for side in one.sides for i in side.items]
    assert {i.grade for i in items if i.relevant} == {2}
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
    names = [system.name for system in compare_runs(paths, "v0").systems]
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
        ({"examples": -1}, "examples"),
        ({"margin": 0.0}, "margin"),
        ({"split": "test"}, r"test\.trec is missing; runs of this folder: val\.trec"),
        ({"runs": ["nowhere"]}, "nowhere"),
    ],
)
def test_bad_arguments_are_refused(folders: list[Path], options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        compare_runs(**{"runs": folders} | options)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"parameters": "many"}', '{"train_seconds": -1}', '{"parameters": true}']
)
def test_a_malformed_summary_is_named(folders: list[Path], text: str) -> None:
    (folders[0] / "summary.json").write_text(text)
    with pytest.raises(ValueError, match=r"summary\.json"):
        compare_runs(folders)
