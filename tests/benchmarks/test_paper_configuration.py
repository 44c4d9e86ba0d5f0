"""Every row of the papers' tables is configured as the papers say, held against a table of the papers' values.

The papers' Table 5 has N and L_u; appendix C the encoders (students on DistilBERT, teachers on BERT-base) and that
baselines learn from the teacher's scores like CROSS-JEM; appendix E the learning rate of CROSS-JEM and monoBERT;
Table 2 the sizes. Everything else is not stated.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from benchmarks.tables.runs import Runner
from benchmarks.tables.spec import TABLES, Part, System, Targets, read_table
from tests.benchmarks.test_tables import runner

DATASETS = {"msmarco": (10, 360), "sodq": (30, 265), "sponsored": (100, 262)}
"""Dataset -> N, L_u (Table 5)."""

DISTILBERT, BERT = "distilbert/distilbert-base-uncased", "google-bert/bert-base-uncased"
T5, INSTRUCTOR = "google-t5/t5-base", "hkunlp/instructor-base"
CROSS_ENCODER = {"encoder": DISTILBERT, "lr": 1e-4}
JOINT = {"class": "CrossJEM", **CROSS_ENCODER, "scores": "RankingProbabilityLoss"}
POINTWISE = {"class": "MonoBERT", **CROSS_ENCODER}
BINARY = {"scores": "BinaryCrossEntropy", "labels": "BinaryCrossEntropy"}
PAPERS: dict[str, dict[str, Any]] = {
    "BM25": {"class": "BM25"},
    "monoBERT": POINTWISE | BINARY,
    "ColBERT": {"class": "ColBERT", "encoder": BERT, "lr": 3e-6, "dimension": 128, "query_length": 32},
    "DPR": {"class": "DPR", "encoder": DISTILBERT},
    # mined negatives have no teacher's scores
    "ANCE": {"class": "ANCE", "encoder": DISTILBERT, "targets": "labels"},
    "INSTRUCTOR*": {"class": "Instructor", "encoder": INSTRUCTOR, "weights": INSTRUCTOR},
    "RankT5-6L": {"class": "RankT5", "encoder": T5, "layers": 3, "scores": "SoftmaxCrossEntropy"},
    "monoT5-base*": {"class": "MonoT5", "weights": "castorini/monot5-base-msmarco"},
    "monoT5-base, fine-tuned": {"class": "MonoT5", "encoder": "castorini/monot5-base-msmarco"},
    "RankingGPT*": {"class": "RankingGPT", "weights": "zyznull/RankingGPT-llama2-7b"},
    "TwinBERT, residual MLP": {"class": "TwinBERT", "encoder": DISTILBERT, "crossing": "residual"},
    "TwinBERT, cosine": {"class": "TwinBERT", "encoder": DISTILBERT, "crossing": "cosine"},
    "MEB": {"class": "MEB"},
    "CROSS-JEM": JOINT | {"form": "paper"},
    "CROSS-JEM, recommended form": JOINT | {"form": "best"},
    "BCE": JOINT | {"form": "paper", "scores": "BinaryCrossEntropy"},
    "CE": JOINT | {"form": "paper", "scores": "SoftmaxCrossEntropy"},
    "ListNet": JOINT | {"form": "paper", "scores": "ListNet"},
    "RPL": JOINT | {"form": "paper"},
    "monoBERT, CE": POINTWISE | {"scores": "SoftmaxCrossEntropy"},
    "monoBERT, ListNet": POINTWISE | {"scores": "ListNet"},
    "monoBERT, RPL": POINTWISE | {"scores": "RankingProbabilityLoss"},
    "with positions": JOINT | {"form": "paper-positional"},
    "alphabetical": POINTWISE | {"item_order": "alphabetical"},
    **{f"N = {n}": JOINT | {"form": "paper", "max_items_per_pass": n} for n in (10, 20, 50, 80)},
    "2 layers": JOINT | {"encoder": "google/bert_uncased_L-2_H-128_A-2"},
}
PAPERS["INSTRUCTOR* (duplicates)"] = PAPERS["INSTRUCTOR*"]

PARTS = [
    part for number in TABLES if number.isdigit() for part in read_table(number)[1] if part.kind != "overlap"
]
ROWS = {
    f"{part.dataset}-{row.name}": (part, row)
    for part in sorted(PARTS, key=lambda part: part.labels_too)
    for row in part.rows
}
"""Each row of each dataset once; of those with labels the part that has them."""


@cache
def of_dataset(name: str) -> Runner:
    return runner(name)


@pytest.mark.parametrize(("part", "row"), ROWS.values(), ids=ROWS)
def test_a_row_has_the_papers_configuration(part: Part, row: System) -> None:
    expected, (n, union) = PAPERS[row.name], DATASETS[part.dataset]
    wanted: tuple[Targets, ...] = ("scores", "labels") if part.labels_too and row.learns else ("scores",)
    for targets in wanted:
        config = of_dataset(part.dataset).config(row, targets)
        ranker = config.model.ranker
        given = ranker.init_args
        assert ranker.class_path.rsplit(".", 1)[1] == expected["class"]
        assert config.data.n_items == n
        if expected["class"] == "CrossJEM":
            assert given.max_union_tokens == union
            assert given.max_items_per_pass == expected.get("max_items_per_pass", n)
        for key in ("encoder", "layers", "form", "crossing", "dimension", "query_length", "item_order"):
            if key in expected:
                assert given[key] == expected[key], key
        assert config.model.weights == expected.get("weights")
        if row.learns:
            targets = expected.get("targets", targets)
            assert config.model.targets == targets
            loss = config.model.loss.class_path.rsplit(".", 1)[1]
            assert loss == expected.get(targets, loss)
            assert config.model.lr == expected.get("lr", config.model.lr)
            taught = part.dataset != "sponsored" and targets == "scores"
            assert (config.data.teacher_scores is not None) == taught  # the simulator brings its own scores


@pytest.mark.parametrize("dataset", ["msmarco", "sodq"])
@pytest.mark.parametrize("encoder", [None, DISTILBERT])
def test_the_teacher_is_monobert_on_bert_base_trained_on_the_labels(
    dataset: str, encoder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    found = runner(dataset, encoder=encoder)
    monkeypatch.setattr(found, "command", lambda *words: commands.append(" ".join(words)))
    monkeypatch.setattr("pathlib.Path.touch", lambda *_: None)
    found.teach()
    fit, teach = commands
    assert f"model.ranker.init_args.encoder {BERT} " in fit
    assert "rankers/monobert.yaml" in fit
    assert "--model.targets labels" in fit
    assert "data.teacher_scores" not in fit
    assert teach.startswith("teach ")
    assert f"monoBERT on {BERT}" in found.describe()


def test_sponsored_lists_have_the_papers_length() -> None:
    """Appendix C: 100 items a query."""
    config = of_dataset("sponsored").config(read_table("7")[1][0].rows[-2])
    assert {config.data[stage].init_args["items"] for stage in ("train", "val", "test")} == {100}
