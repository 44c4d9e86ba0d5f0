"""Reports of small run folders: the sections and their numbers, what is written, and what is missing."""

from __future__ import annotations

import json
import random
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from crossjem_pl.data.formats import read_qrels, read_run, write_lists, write_qrels, write_run
from crossjem_pl.evaluation import drawing, evaluate_run
from crossjem_pl.evaluation.report import STEPS, Report, build_report, write_report
from crossjem_pl.evaluation.report.contents import Block, Folded, HardLists, Missing, Paragraph, Table
from crossjem_pl.lists import RankingList
from tests.evaluation.html_pages import parse

EVIL = "<script>alert('x')</script> & | *bold* $x$"
SECTIONS = [
    "Results",
    "Learning curves",
    "On which lists",
    "Calibration",
    "Latency and accuracy",
    "Where the rankings differ most",
    "Hardest lists of monobert",
    "Reproduction",
]


def lists() -> list[RankingList]:
    """60 lists: queries of 6 to 10 words, 6 or 9 items of growing overlap, 1 to 3 relevant items."""
    made = []
    for q in range(60):
        count = 6 if q % 2 else 9
        ids = tuple(f"d{q}_{i}" for i in range(count))
        items = tuple(f"common {'shared ' * (q % 4)}{EVIL} {i}" for i in ids)
        labels = tuple(float(i <= q % 3) for i in range(count))
        made.append(RankingList(f"q{q}", f"{EVIL} {'word ' * (q % 5)}{q}", ids, items, labels))
    return made


def write_run_folder(path: Path, noise: float, loss: str | None, steps: int = 40, **summary: Any) -> Path:
    """A folder as training leaves it; without a loss as an evaluation does."""
    path.mkdir(parents=True)
    rng = random.Random(0)
    run = {
        one.query_id: {
            i: 3 * label - 2 + rng.gauss(0, noise)
            for i, label in zip(one.item_ids, one.labels or (), strict=True)
        }
        for one in lists()
    }
    write_run(run, path / "val.trec")
    write_qrels(lists(), path / "val.qrels")
    write_lists(lists(), path / "val_lists.parquet")
    config: dict[str, Any] = {"seed_everything": 7, "data": {"train": "train.parquet", "batch_size": 8}}
    if loss is not None:
        config["model"] = {"loss": {"class_path": f"crossjem_pl.losses.{loss}"}, "targets": "labels"}
        lines = ["epoch,step,train/loss,val/AP@10,val/RR@10"]
        lines += [f"0,{step},{2 / (step + 1)},," for step in range(steps)]
        lines += [f"0,{steps // 2},,0.4,0.5", f"0,{steps},,0.6,0.7"]
        (path / "metrics.csv").write_text("\n".join(lines) + "\n")
        summary = {"train_seconds": 90.0, "trained_lists": 320, "machine": "a machine, 2 threads"} | summary
    text = "# lightning.pytorch==2.6.6\n" + yaml.safe_dump(config)
    (path / "config.yaml").write_text(text)
    (path / "summary.json").write_text(json.dumps({"seed": 7, "parameters": 1000} | summary))
    return path


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [
        write_run_folder(tmp_path / "mono", 1.5, "BinaryCrossEntropy", ranker="monobert"),
        write_run_folder(tmp_path / "joint", 0.8, "RankingProbabilityLoss", ranker="crossjem"),
        write_run_folder(tmp_path / "words", 4.0, None, ranker="bm25", parameters=0),
    ]


@pytest.fixture
def latency(tmp_path: Path) -> Path:
    path = tmp_path / "latency.json"
    times = {
        "8": {"crossjem": [9.0, 10.0, 30.0], "monobert": [40.0, 50.0, 60.0], "colbert": [5.0]},
        "100": {"crossjem": [80.0], "monobert": [500.0], "colbert": [50.0]},
    }
    content = {"machine": "a machine", "precision": "float32", "warm": False, "milliseconds": times}
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plots, as without matplotlib: what is looked at is in the tables."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def blocks(report: Report, title: str) -> tuple[Block, ...]:
    (section,) = (one for one in report.sections if one.title == title)
    return section.blocks


def tables(report: Report, title: str) -> list[Table]:
    return [block for block in blocks(report, title) if isinstance(block, Table)]


def missing(report: Report, title: str) -> str:
    return " ".join(block.text for block in blocks(report, title) if isinstance(block, Missing))


def prose(report: Report, title: str) -> str:
    return " ".join(block.text for block in blocks(report, title) if isinstance(block, Paragraph))


def values_of(folder: Path, metric: str) -> dict[str, float]:
    found = evaluate_run(read_run(folder / "val.trec"), read_qrels(folder / "val.qrels"), [metric])
    return {str(query): float(value) for query, value in found.per_query[metric].items()}


def test_every_section_is_there_with_the_numbers_of_its_parts(folders: list[Path], latency: Path) -> None:
    steps: list[str] = []
    report = build_report(folders, latency=latency, progress=steps.append)
    assert [section.title for section in report.sections] == SECTIONS
    assert tuple(steps) == STEPS
    assert report.comparison is not None
    assert report.comparison.metrics == ("RR@10", "AP@10", "nDCG@10")
    means = [system.metrics["RR@10"].mean for system in report.comparison.systems]
    assert means == pytest.approx([np.mean(list(values_of(f, "RR@10").values())) for f in folders])
    names = [figure.name for figure in report.figures()]
    assert len(names) == len(set(names))
    for name in ("training-loss-1", "training-loss-2", "validation", "by-query-words", "by-item-overlap"):
        assert name in names
    for name in ("by-items", "by-relevant-items", "calibration", "latency", "results-1"):
        assert name in names

    (learning,) = tables(report, "Learning curves")
    assert learning.columns[4:] == ("Best RR@10 (step)", "Best AP@10 (step)")
    assert learning.rows[0] == ("monobert", "BinaryCrossEntropy", "41", "2", "0.7000 (41)", "0.6000 (41)")
    assert "words/metrics.csv is missing" in missing(report, "Learning curves")
    assert "different scales" in prose(report, "Learning curves")


@pytest.mark.usefixtures("plain")
def test_breakdowns_hold_the_means_of_their_lists(folders: list[Path]) -> None:
    report = build_report(folders)
    words, overlap, items, relevant = tables(report, "On which lists")
    assert words.columns == ("Words of the query", "Lists", "monobert", "crossjem", "bm25")
    assert [row[0] for row in words.rows] == ["6", "7", "8", "9", "10"]
    assert [row[0] for row in items.rows] == ["6", "9"]
    assert [row[0] for row in relevant.rows] == ["1", "2", "3"]
    for table in (words, overlap, items, relevant):
        assert sum(int(row[1]) for row in table.rows) == 60
    values = values_of(folders[2], "RR@10")
    expected = float(np.mean([values[f"q{q}"] for q in range(60) if q % 2]))
    mean, low, high = map(float, re.findall(r"[\d.]+", items.rows[0][4]))
    assert mean == pytest.approx(expected, abs=5e-5)
    assert low < mean < high
    # "common", `q % 4` times "shared", and the words of EVIL and an id in each of the items
    ratios = [float(row[0].split("–")[0]) for row in overlap.rows]
    assert ratios == sorted(ratios)
    assert ratios[0] > 1


@pytest.mark.usefixtures("plain")
def test_only_a_pointwise_loss_is_said_to_give_probabilities(folders: list[Path]) -> None:
    report = build_report(folders)
    (table,) = tables(report, "Calibration")
    assert [row[:2] for row in table.rows] == [("monobert", "yes"), ("crossjem", "no")]
    assert {row[4] for row in table.rows} == {"0.2667"}  # 120 relevant of 450 items
    assert {row[5] for row in table.rows} == {"450"}
    (folded,) = (block for block in blocks(report, "Calibration") if isinstance(block, Folded))
    (bins,) = (block for block in folded.blocks if isinstance(block, Table))
    assert len(bins.rows) == 20
    error = sum(abs(float(p) - float(o)) * int(n) / 450 for _, _, p, o, n in bins.rows[:10])
    assert float(table.rows[0][2]) == pytest.approx(error, abs=2e-4)
    assert "crossjem: trained with RankingProbabilityLoss" in prose(report, "Calibration")
    assert "bm25 has no parameters" in missing(report, "Calibration")


@pytest.mark.usefixtures("plain")
def test_what_moves_a_pointwise_loss_away_from_the_labels_is_said(tmp_path: Path) -> None:
    folder = write_run_folder(tmp_path / "a", 1.0, "BinaryCrossEntropy", ranker="monobert")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"]["n_items"] = 12
    config["model"]["targets"] = "scores"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    text = prose(build_report([folder]), "Calibration")
    assert "12 items were drawn per list" in text
    assert "a teacher's scores" in text
    (folder / "config.yaml").unlink()
    assert "no config.yaml" in prose(build_report([folder]), "Calibration")


@pytest.mark.usefixtures("plain")
def test_latency_is_matched_by_name_and_the_rest_is_named(folders: list[Path], latency: Path) -> None:
    report = build_report(folders, latency=latency)
    (table,) = tables(report, "Latency and accuracy")
    assert [(row[0], row[1], row[3], row[4], row[5]) for row in table.rows] == [
        ("monobert", "monobert", "no", "50.0", "500.0"),
        ("crossjem", "crossjem", "yes", "10.0", "80.0"),
    ]
    text = missing(report, "Latency and accuracy")
    assert "Not timed, by neither name, folder nor ranker: bm25." in text
    assert "Timed, but none of the runs: colbert." in text
    assert "Drawn at 8 items" in prose(report, "Latency and accuracy")

    twin = write_run_folder(folders[0].parent / "colbert", 0.5, "RankNet", ranker="crossjem")
    other = write_run_folder(folders[0].parent / "other", 0.5, "RankNet", ranker="crossjem")
    report = build_report([folders[1], twin, other], latency=latency)
    (table,) = tables(report, "Latency and accuracy")
    assert [row[1] for row in table.rows] == ["crossjem", "colbert", "crossjem"], (
        "the folder's name goes first"
    )
    assert "share the times of 'crossjem'" in missing(report, "Latency and accuracy")

    latency.write_text('{"milliseconds": {"8": {"t5": [1.0]}}}')
    report = build_report(folders[:1], latency=latency)
    assert not tables(report, "Latency and accuracy")
    assert "Not timed" in missing(report, "Latency and accuracy")


@pytest.mark.usefixtures("plain")
def test_hardest_lists_are_those_with_the_lowest_metric(folders: list[Path]) -> None:
    report = build_report(folders[2:], "AP@10", examples=4)
    (hard,) = (b for b in blocks(report, "Hardest lists of bm25") if isinstance(b, HardLists))
    values = values_of(folders[2], "AP@10")
    assert [one.value for one in hard.lists] == pytest.approx(sorted(values.values())[:4])
    run = read_run(folders[2] / "val.trec")
    for one in hard.lists:
        rank, item = one.found
        order = sorted(run[one.query_id], key=lambda i: -run[one.query_id][i])
        assert item.relevant
        assert order[rank - 1] == item.item_id
        assert [shown.item_id for shown in one.top] == order[:5]
        assert not any(shown.relevant for shown in one.top[: rank - 1])


def test_written_files(folders: list[Path], latency: Path, tmp_path: Path) -> None:
    report = build_report(folders, latency=latency)
    out = tmp_path / "out"
    written = write_report(report, out)
    assert sorted(written) == sorted(path for path in out.rglob("*") if path.is_file())
    page = parse(out / "report.html")
    tags = [tag for tag, _ in page.seen]
    assert not {"script", "link", "iframe", "object", "embed"} & set(tags)
    for _, attrs in page.seen:
        for name in ("src", "srcset", "data", "poster"):
            assert (attrs.get(name) or "data:").startswith("data:")
        assert not [name for name in attrs if name.startswith("on")]
    html = (out / "report.html").read_text(encoding="utf-8")
    style = html[html.index("<style>") : html.index("</style>")]
    assert "@import" not in style
    assert "url(" not in style
    assert tags.count("img") == len(report.figures()) > 12
    assert all(attrs.get("alt") for tag, attrs in page.seen if tag == "img")
    (hard,) = (b for b in blocks(report, "Hardest lists of monobert") if isinstance(b, HardLists))
    for one in hard.lists:
        assert one.query is not None
        assert one.query.startswith(EVIL)
        assert one.query in page.text, "texts stand there as they are, and are escaped"
    anchors = {attrs["id"] for _, attrs in page.seen if attrs.get("id")}
    links = [attrs["href"] or "" for tag, attrs in page.seen if tag == "a"]
    assert {link[1:] for link in links if link.startswith("#")} == anchors
    assert len(anchors) == len(SECTIONS)
    assert tags.count("details") == 1 + 1 + 3  # bins, settings, three configurations
    assert "seed_everything: 7" in html

    markdown = (out / "report.md").read_text(encoding="utf-8")
    assert "<script>" not in markdown
    for name in re.findall(r"\]\((figures/[^)]+)\)", markdown):
        assert ET.fromstring((out / name).read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert markdown.count("](figures/") == len(report.figures())
    assert [line[3:] for line in markdown.splitlines() if line.startswith("## ")] == SECTIONS
    assert markdown.count("<details>") == markdown.count("</details>") == 5


def test_the_page_is_made_for_phones_dark_screens_and_paper(folders: list[Path], tmp_path: Path) -> None:
    write_report(build_report(folders[:1]), tmp_path / "out")
    html = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    page = parse(tmp_path / "out/report.html")
    viewport = [attrs for tag, attrs in page.seen if tag == "meta" and attrs.get("name") == "viewport"]
    assert viewport[0]["content"] == "width=device-width, initial-scale=1"
    style = html[html.index("<style>") : html.index("</style>")]
    assert "font: 16px/" in style
    assert "font-size: 15px" not in style
    assert "@media (max-width:" in style
    assert "@media screen and (prefers-color-scheme: dark)" in style, "paper stays white whatever the screen"
    paper = style[style.index("@media print") :]
    assert "break-inside: avoid" in paper
    assert "attr(href)" in paper
    assert "details-content" in paper
    tables_at = [i for i, (tag, _) in enumerate(page.seen) if tag == "table"]
    assert tables_at
    assert all(page.seen[i - 1][1].get("class") == "scroll" for i in tables_at), "wide tables scroll"


def test_one_run_has_no_comparison(folders: list[Path], tmp_path: Path) -> None:
    report = build_report(folders[:1], "nDCG@10", examples=2)
    titles = [section.title for section in report.sections]
    assert titles == [title for title in SECTIONS if title != "Where the rankings differ most"]
    assert report.title == "Report on monobert"
    assert "results-1" not in [figure.name for figure in report.figures()]
    assert tables(report, "On which lists")[0].columns == ("Words of the query", "Lists", "nDCG@10")
    assert "--latency" in missing(report, "Latency and accuracy")
    write_report(report, tmp_path / "out")
    parse(tmp_path / "out/report.html")
    assert "win/tie/loss" not in (tmp_path / "out/report.md").read_text()


@pytest.mark.usefixtures("plain")
def test_no_examples_are_shown_where_none_are_wanted(folders: list[Path]) -> None:
    titles = [section.title for section in build_report(folders, examples=0).sections]
    assert titles == SECTIONS[:5] + SECTIONS[-1:]


@pytest.mark.usefixtures("plain")
def test_what_is_missing_is_said_where_it_would_stand(folders: list[Path], tmp_path: Path) -> None:
    joint = folders[1]
    (joint / "val.trec").unlink()
    report = build_report(folders)
    assert "crossjem" not in [system.name for system in report.comparison.systems]  # type: ignore[union-attr]
    assert "joint is not in the table" in missing(report, "Results")
    assert "joint" in [row[0] for row in tables(report, "Learning curves")[0].rows]

    report = build_report([joint])
    assert [section.title for section in report.sections] == ["Results", "Learning curves", "Reproduction"]
    assert f"{joint / 'val.trec'} is missing" in missing(report, "Results")
    assert report.comparison is None
    assert "compare.csv" not in [path.name for path in write_report(report, tmp_path / "out")]

    mono = folders[0]
    for name in ("val_lists.parquet", "config.yaml", "summary.json", "metrics.csv"):
        (mono / name).unlink()
    report = build_report([mono])
    assert "val_lists.parquet is missing" in missing(report, "On which lists")
    assert len(tables(report, "On which lists")) == 2, "items and relevant items are counted without texts"
    assert "metrics.csv is missing" in missing(report, "Learning curves")
    assert "config.yaml and summary.json missing" in missing(report, "Reproduction")
    (hard,) = (b for b in blocks(report, "Hardest lists of mono") if isinstance(b, HardLists))
    assert hard.lists[0].query is None
    write_report(report, tmp_path / "bare")
    assert f"query {hard.lists[0].query_id}" in parse(tmp_path / "bare/report.html").text

    (mono / "val.qrels").unlink()
    assert "no judgements" in missing(build_report([mono]), "Results")
    assert build_report([mono], qrels=folders[2] / "val.qrels").comparison is not None
    (mono / "val.trec").unlink()
    with pytest.raises(ValueError, match=r"mono: there is nothing to report on"):
        build_report([mono])


@pytest.mark.usefixtures("plain")
def test_a_bare_run_file_beside_a_folder(folders: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "other.trec"
    write_run(read_run(folders[2] / "val.trec"), file)
    report = build_report([folders[0], file])
    assert report.title == "Report on monobert, other"
    assert "bare run file" in missing(report, "Reproduction")
    assert "bare run file" in missing(report, "Learning curves")


@pytest.mark.usefixtures("plain")
def test_overlap_in_tokens(folders: list[Path], tiny_bert: str) -> None:
    from crossjem_pl.rankers.encoders import load_tokenizer
    from crossjem_pl.text import ShortTextTokenizer

    tokenizer = ShortTextTokenizer(load_tokenizer(tiny_bert))
    table = tables(build_report(folders[:1], tokenizer=tokenizer), "On which lists")[1]
    assert table.columns[0] == "Overlap of the items in tokens"
    items = lists()[0].items
    values = tokenizer.encode(items, 10_000).tokens.values
    ratio = len(values) / len(set(values.tolist()))
    bounds = [tuple(map(float, row[0].split("–"))) for row in table.rows]
    assert any(one[0] - 0.005 <= ratio <= one[-1] + 0.005 for one in bounds)


@pytest.mark.usefixtures("plain")
def test_the_report_says_how_to_make_the_run_again(folders: list[Path]) -> None:
    report = build_report(folders)
    settings, *configurations = (b for b in blocks(report, "Reproduction") if isinstance(b, Folded))
    (table,) = (block for block in settings.blocks if isinstance(block, Table))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["seed"] == ("7", "7", "7")
    assert rows["machine"] == ("a machine, 2 threads", "a machine, 2 threads", "–")
    assert rows["data.train"] == ("train.parquet",) * 3
    assert rows["lightning"] == ("2.6.6",) * 3
    assert len(configurations) == 3
    assert "lightning fit -c" in str(configurations[0])
    text = (folders[0] / "config.yaml").read_text()
    (folders[0] / "config.yaml").write_text(text + "verbose: true\n")
    again = [b for b in blocks(build_report(folders), "Reproduction") if isinstance(b, Folded)][1]
    assert "lightning validate -c" in str(again)
    assert "written by a later evaluation" in str(again)


@pytest.mark.usefixtures("plain")
def test_without_matplotlib_there_are_tables_and_a_note(folders: list[Path], tmp_path: Path) -> None:
    report = build_report(folders)
    assert report.figures() == ()
    assert "crossjem_pl[plots]" in report.notes[-1]
    assert [section.title for section in report.sections] == SECTIONS
    write_report(report, tmp_path / "out")
    assert "img" not in [tag for tag, _ in parse(tmp_path / "out/report.html").seen]
    with pytest.raises(ModuleNotFoundError, match=r"crossjem_pl\[plots\]"):
        drawing.plot(lambda axes: None, "title", 2.0, "description")


@pytest.mark.usefixtures("plain")
def test_bad_arguments_and_files_are_refused(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run"):
        build_report([])
    with pytest.raises(ValueError, match="examples"):
        build_report(folders, examples=-1)
    with pytest.raises(ValueError, match="speed"):
        build_report(folders, "speed@3")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        build_report([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="given twice"):
        build_report([folders[0], folders[0]])
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        build_report(folders, latency=tmp_path / "none.json")
    for name, text, message in (
        ("config.yaml", "a: [", "config.yaml: not YAML"),
        ("config.yaml", "- 1", "expected an object, got list"),
        ("summary.json", "{", "summary.json: not JSON"),
        ("metrics.csv", "epoch,train/loss\n0,1\n", "has no column 'step'"),
        ("metrics.csv", "step,train/loss\n0,1\n1,much\n", r"line 3, column 'train/loss': no number: 'much'"),
    ):
        kept = (folders[0] / name).read_text()
        (folders[0] / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            build_report(folders)
        (folders[0] / name).write_text(kept)


@pytest.mark.usefixtures("plain")
def test_the_names_of_one_metric_are_one(folders: list[Path]) -> None:
    report = build_report(folders[:1], "MRR@10")
    assert report.comparison is not None
    assert report.comparison.metrics == ("MRR@10", "AP@10", "nDCG@10")


@pytest.mark.usefixtures("plain")
def test_the_documentation_runs(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
    for source, name in ((folders[0], "quickstart"), (folders[2], "bm25")):
        (tmp_path / "runs").mkdir(exist_ok=True)
        source.rename(tmp_path / "runs" / name)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "docs/reports.md", "exec"), {})
    assert (tmp_path / "runs/report/report.html").is_file()
