"""Reports of small run folders: the sections and their numbers, what is written, and what is missing."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from crossjem_pl.data.trec import read_qrels, read_run
from crossjem_pl.evaluation import build_report, charts, compare, compare_runs, evaluate_run, write_report
from crossjem_pl.evaluation.metrics import rank_items
from crossjem_pl.evaluation.page import escape_markdown, p_value, parameters, render, training_time
from crossjem_pl.evaluation.report import Report
from crossjem_pl.evaluation.runs import read_learning_curve
from crossjem_pl.evaluation.sections import break_down, calibrate
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import ShortTextTokenizer
from tests.evaluation.run_folders import lists, parse, write_run_folder

TABLE = ["RR@10", "AP@10", "nDCG@10"]
SECTIONS = [
    "Results",
    "Learning curves",
    "On which lists",
    "Calibration",
    "Where the rankings differ most",
    "Hardest lists of monobert",
    "Reproduction",
]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [
        write_run_folder(tmp_path / "mono", 1.5, "BinaryCrossEntropy", ranker="monobert"),
        write_run_folder(tmp_path / "joint", 0.8, "RankingProbabilityLoss", ranker="crossjem"),
        write_run_folder(tmp_path / "words", 4.0, None, ranker="bm25", parameters=0),
    ]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plots, as without matplotlib: what is looked at is in the tables."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def data_of(report: Report, kind: str) -> dict[str, Any]:
    (section,) = (section for section in report.sections if section.kind == kind)
    return section.data


def text_of(report: Report) -> str:
    return " ".join(render(report, "md").split())


def values_of(folder: Path, metric: str) -> dict[str, float]:
    found = evaluate_run(read_run(folder / "val.trec"), read_qrels(folder / "val.qrels"), [metric])
    return {str(query): float(value) for query, value in found.per_query[metric].items()}


def test_every_section_is_written(folders: list[Path], tmp_path: Path) -> None:
    report, out = build_report(folders), tmp_path / "out"
    written = write_report(report, out)
    assert [section.title for section in report.sections] == SECTIONS
    assert sorted(written) == sorted(path for path in out.rglob("*") if path.is_file())
    assert set(report.plots) > {"training-loss-2", "validation", "by-words-of-the-query", "calibration"}
    again = charts.draw_groups("Mean and 95% interval", "metric", compare_runs(folders, names=TABLE).results)
    assert report.plots["results"] == again, "repeatable"
    table = pd.read_csv(out / "compare.csv")
    expected = [np.mean(list(values_of(folder, "RR@10").values())) for folder in folders]
    assert table["RR@10"].tolist() == pytest.approx(expected)
    assert {"AP@10", "nDCG@10"} < set(table.columns)

    page = parse(out / "report.html")
    tags = [tag for tag, _ in page.seen]
    assert not {"script", "link", "iframe", "object", "embed"} & set(tags)
    for tag, attrs in page.seen:
        assert (attrs.get("src") or "data:").startswith("data:"), "nothing is loaded"
        assert not [name for name in attrs if name.startswith("on")]
        assert tag != "img" or attrs["alt"]
    hard = data_of(report, "hardest")["examples"]
    assert {one["title"] for one in hard} <= set(page.text), "texts of the runs are escaped"

    markdown = (out / "report.md").read_text(encoding="utf-8")
    assert "<script>" not in markdown
    linked = re.findall(r"\]\((figures/[^)]+)\)", markdown)
    assert sorted(linked) == sorted(f"figures/{name}.svg" for name in report.plots)
    assert [line[3:] for line in markdown.splitlines() if line.startswith("## ")] == SECTIONS
    assert markdown.count("<details>") == markdown.count("</details>") == 5  # bins, settings, configurations
    assert f"```yaml\n{(folders[0] / 'config.yaml').read_text()}```" in markdown


@pytest.mark.usefixtures("plain")
def test_breakdowns_hold_the_means_of_their_lists(folders: list[Path], tiny_bert: str) -> None:
    words, overlap, items, relevant = data_of(build_report(folders), "groups")["tables"].values()
    assert list(words.columns) == ["Words of the query", "Lists", "monobert", "crossjem", "bm25"]
    assert words["Words of the query"].tolist() == ["8", "9", "10", "11", "12"]
    assert relevant.iloc[:, 0].tolist() == ["1", "2", "3"]
    for table in (words, overlap, items, relevant):
        assert table["Lists"].astype(int).sum() == 60
    values = values_of(folders[2], "RR@10")
    expected = float(np.mean([values[f"q{q}"] for q in range(60) if q % 2]))
    mean, low, high = map(float, re.findall(r"[\d.]+", items.set_index("Items of the list").loc["6", "bm25"]))
    assert mean == pytest.approx(expected, abs=5e-5)
    assert low < mean < high
    tokenizer = ShortTextTokenizer(load_tokenizer(tiny_bert))
    tables = data_of(build_report(folders[:1], tokenizer=tokenizer), "groups")["tables"]
    tokens = tokenizer.encode(lists()[0].items, 10_000).tokens.values.tolist()
    ratio = len(tokens) / len(set(tokens))
    groups = [tuple(map(float, g.split("–"))) for g in tables["overlap of the items in tokens"].iloc[:, 0]]
    assert any(one[0] - 0.005 <= ratio <= one[-1] + 0.005 for one in groups)


@pytest.mark.usefixtures("plain")
def test_only_a_pointwise_loss_is_said_to_give_probabilities(folders: list[Path]) -> None:
    config = yaml.safe_load((folders[0] / "config.yaml").read_text())
    config["data"]["n_items"] = 12
    config["model"]["targets"] = "scores"
    (folders[0] / "config.yaml").write_text(yaml.safe_dump(config))
    report = build_report(folders)
    table, bins = (data_of(report, "calibration")[name] for name in ("table", "bins"))
    assert table.iloc[:, :2].to_numpy().tolist() == [["monobert", "yes"], ["crossjem", "no"]]
    assert table["Share relevant"].tolist() == ["0.2667"] * 2  # 120 relevant of 450 items
    error = sum(abs(float(p) - float(o)) * int(n) / 450 for p, o, n in bins.iloc[:10, 2:].to_numpy())
    assert float(table["ECE"][0]) == pytest.approx(error, abs=2e-4)
    text = text_of(report)
    for part in ("crossjem: trained with RankingProbabilityLoss", "bm25 has no parameters"):
        assert part in text
    assert "a teacher's scores, so the teacher's own miscalibration is in it; 12 items were drawn" in text


@pytest.mark.usefixtures("plain")
def test_hardest_lists_are_those_with_the_lowest_metric(folders: list[Path]) -> None:
    hard = data_of(build_report(folders[2:], "AP@10", examples=4), "hardest")["examples"]
    values = [one["sides"][0]["value"] for one in hard]
    assert values == pytest.approx(sorted(values_of(folders[2], "AP@10").values())[:4])
    run = read_run(folders[2] / "val.trec")
    for one in hard:
        order, ranking = rank_items(run[one["query"]]), one["sides"][0]["ranking"]
        assert [order[rank - 1] for rank in ranking] == [item["item"] for item in ranking.values()]
        assert list(ranking)[:5] == [1, 2, 3, 4, 5]
        assert any(item["relevant"] for item in ranking.values()), "the first relevant one, however far down"


@pytest.mark.usefixtures("plain")
def test_what_is_missing_is_said_where_it_would_stand(folders: list[Path], tmp_path: Path) -> None:
    mono, joint, _ = folders
    titles = [section.title for section in build_report([mono]).sections]
    assert titles == [title for title in SECTIONS if "differ" not in title]
    (joint / "val.trec").unlink()
    report = build_report(folders)
    assert f"Not in the table: {escape_markdown(joint / 'val.trec')} is missing." in text_of(report)
    assert "crossjem" in data_of(report, "learning")["table"]["Run"].tolist()
    report = build_report([joint])
    assert [section.title for section in report.sections] == ["Results", "Learning curves", "Reproduction"]
    assert "No metrics, breakdowns and examples" in text_of(report)
    assert "compare.csv" not in [path.name for path in write_report(report, tmp_path / "out")]

    for name in ("val_lists.parquet", "config.yaml", "summary.json", "metrics.csv"):
        (mono / name).unlink()
    report = build_report([mono])
    assert len(data_of(report, "groups")["tables"]) == 2, "items and relevant items need no texts"
    text = text_of(report)
    for part in ("no run holds the lists' texts", "metrics.csv is missing", "config.yaml and summary.json"):
        assert part in text
    write_report(report, tmp_path / "bare")
    title = f"query {data_of(report, 'hardest')['examples'][0]['query']}"
    assert title in parse(tmp_path / "bare/report.html").text
    report = build_report([folders[2], mono / "val.trec"])
    assert report.title == "Report on bm25, val"
    assert "bare run file: nothing is known" in text_of(report)

    (mono / "val.qrels").unlink()
    assert "there are no judgements" in text_of(build_report([mono]))
    assert build_report([mono], qrels=folders[2] / "val.qrels").results is not None
    (mono / "val.trec").unlink()
    with pytest.raises(ValueError, match="mono: there is nothing to report on"):
        build_report([mono])


@pytest.mark.usefixtures("plain")
def test_a_run_has_one_name_in_all_sections(tmp_path: Path) -> None:
    paths = [write_run_folder(tmp_path / name, 1.5, "ListNet", ranker="crossjem") for name in ("v0", "v1")]
    (paths[0] / "val.trec").unlink()
    report = build_report(paths)
    assert data_of(report, "results")["table"]["System"].tolist() == ["crossjem (v1)"]
    assert data_of(report, "learning")["table"]["Run"].tolist() == ["crossjem (v0)", "crossjem (v1)"]


@pytest.mark.usefixtures("plain")
def test_the_report_says_how_to_make_the_run_again(folders: list[Path]) -> None:
    text = (folders[2] / "config.yaml").read_text()
    (folders[2] / "config.yaml").write_text(text + "verbose: true\n")  # as validate writes it
    data = data_of(build_report(folders), "reproduction")
    settings = data["settings"].set_index("")
    assert settings.loc["seed"].tolist() == ["7"] * 3
    assert settings.loc["machine"].tolist() == ["a machine, 2 threads", "a machine, 2 threads", "–"]
    assert [command.split()[1] for command in data["commands"].values()] == ["fit", "fit", "validate"]


@pytest.mark.usefixtures("plain")
def test_without_matplotlib_there_are_tables_and_a_note(folders: list[Path], tmp_path: Path) -> None:
    report = build_report(folders)
    assert report.plots == {}
    assert "crossjem_pl[plots]" in report.notes[-1]
    compare(folders, None, out=tmp_path / "out")
    page = parse(tmp_path / "out/compare.html")
    assert "img" not in [tag for tag, _ in page.seen]
    assert "crossjem_pl[plots]" in " ".join(page.text)
    with pytest.raises(ModuleNotFoundError, match=r"crossjem_pl\[plots\]"):
        charts.plot("title", 2.0, lambda axes: "")


@pytest.mark.usefixtures("plain")
def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="no run"):
        build_report([])
    with pytest.raises(ValueError, match="examples"):
        build_report(["anything"], examples=-1)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        *(("summary.json", text, r"summary\.json") for text in ("{", "[]")),
        *(
            ("summary.json", f'{{"parameters": {value}}}', "'parameters'")
            for value in ('"many"', "-1", "true")
        ),
        ("config.yaml", "a: [", r"config\.yaml"),
        ("config.yaml", "- 1", "expected an object, got list"),
        ("metrics.csv", "epoch,train/loss\n0,1\n", "has no column 'step'"),
        (
            "metrics.csv",
            "step,train/loss\n0,1\n1,much\n",
            "line 3, field 'train/loss': expected a finite number, got 'much'",
        ),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    folder = write_run_folder(tmp_path / "mono", 1.5, "BinaryCrossEntropy", ranker="monobert")
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        build_report([folder])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2, 1, 2], [("1", 1), ("2", 2)]),
        ([1.001, 1.0, 1.25], [("1.00", 2), ("1.25", 1)]),
        ([1.0] * 90 + list(range(90, 100)), [("1", 90), ("90–99", 10)]),
    ],
)
def test_lists_of_one_value_stay_together(values: list[float], expected: list[tuple[str, int]]) -> None:
    ids = [f"q{i}" for i in range(len(values))]
    per_query = pd.DataFrame({"a": 1.0, "b": 0.5}, index=ids)
    found: Any = break_down(dict(zip(ids, values, strict=True)), per_query).xs("b", level="system")
    assert list(found["queries"].items()) == expected
    assert found.iloc[0, :3].tolist() == [0.5] * 3


def test_calibration() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=200_000)
    found = calibrate(p, rng.uniform(size=p.size) < p)
    assert found["items"].tolist() == [20_000] * 10
    assert (found["predicted"] - found["observed"]).abs().max() < 0.02
    found = calibrate(np.array([0.2] * 7 + [0.9] * 3), np.array([1] + [0] * 6 + [1, 1, 0]))
    assert found["items"].tolist() == [7, 3], "equal probabilities share a bin"
    assert found["observed"].tolist() == pytest.approx([1 / 7, 2 / 3])


def test_curves_of_a_resumed_run_are_put_together(tmp_path: Path) -> None:
    assert read_learning_curve(tmp_path) is None
    header = "epoch,lr,step,train/loss,val/RR@10\n"
    first = header + "0,,9,1.0,\n0,,19,0.9,\n0,,19,,0.3\n0,,29,9.0,\n0,,39,9.0,\n"
    (tmp_path / "metrics-1.csv").write_text(first)
    (tmp_path / "metrics-2.csv").write_text(header + "0,,29,0.8,\n0,,39,7.0,\n")
    (tmp_path / "metrics-10.csv").write_text(header)  # killed before it logged anything
    (tmp_path / "metrics.csv").write_text(header + ",0.1,30,,\n0,,39,0.7,\n0,,49,0.6,\n0,,49,,0.5\n")
    (tmp_path / "metrics-old.csv").write_text("notes")
    found = read_learning_curve(tmp_path)
    assert found is not None
    assert found.loss is not None
    assert found.files == ("metrics-1.csv", "metrics-2.csv", "metrics.csv")
    assert found.loss.to_dict() == {9: 1.0, 19: 0.9, 29: 0.8, 39: 0.7, 49: 0.6}
    assert found.metrics["RR@10"].to_dict() == {19: 0.3, 49: 0.5}


def test_figures_in_words() -> None:
    assert [parameters(count) for count in (22_713_216, 1_234, 999.9e6, 7e9, None)] == [
        *("22.7M", "0.00123M", "1B", "7B", "–")
    ]
    assert [p_value(p) for p in (0.00009, 0.0312, 0.99995)] == ["<.0001", ".0312", "1.0"]
    assert [training_time(seconds) for seconds in (3725.4, 9, None)] == ["1:02:05", "0:00:09", "–"]
