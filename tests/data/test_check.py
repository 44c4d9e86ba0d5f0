"""Every kind of problem is found, counted and graded; sound lists have none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossjem_pl.data.checks import KINDS, CheckReport, Problem, check, normalise
from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.text import ShortTextTokenizer
from tests import tiny_models
from tests.conftest import root
from tests.data.test_formats import jsonl


@pytest.fixture(scope="module")
def tokenizer() -> ShortTextTokenizer:
    return ShortTextTokenizer(tiny_models.tokenizer())


def row(number: int, **values: Any) -> dict[str, Any]:
    """A sound row; every number has other texts."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    name = letters[number // 26] + " " + letters[number % 26]
    return {
        "query_id": f"q{number}",
        "query": f"shoe {name}",
        "item_ids": [f"d{number}-{i}" for i in range(3)],
        "items": [f"red {name}", f"blue {name}", f"green {name}"],
        "labels": [[0, 1, 0], [1, 0, 0], [0, 0, 1]][number % 3],
        "scores": [[0.2, 0.9, 0.1], [0.8, 0.3, 0.1], [0.1, 0.3, 0.7]][number % 3],
        **values,
    }


def problems(report: CheckReport, file: int = 0) -> dict[str, Problem]:
    return {problem.code: problem for problem in report.files[file].problems}


SOUND = [row(n) for n in range(5)]
ENOUGH = [row(n) for n in range(12)]


def test_sound_lists_have_no_problems(tmp_path: Path, tokenizer: ShortTextTokenizer) -> None:
    lists = jsonl(tmp_path / "lists.jsonl", *SOUND)
    test = jsonl(tmp_path / "test.jsonl", *[row(n) for n in range(20, 24)])
    report = check(lists, tokenizer, tests=[test])
    assert report.counts() == {"error": 0, "warning": 0, "note": 0}
    assert [file.role for file in report.files] == ["train", "test"]
    figures = report.files[0].figures
    assert (figures["lists"], figures["items"], figures["rows"], figures["refused_rows"]) == (5, 15, 5, 0)
    assert figures["items_per_list"].largest == 3
    assert (figures["distinct_queries"], figures["distinct_items"]) == (5, 15)
    assert figures["queries"]["words"].p50 == 3
    assert figures["label_counts"] == [(0.0, 10), (1.0, 5)]
    assert figures["first_positive"] == pytest.approx((2 + 1 + 3 + 2 + 1) / 5)
    assert figures["first_positive_random"] == 2
    assert figures["agreement"] == 1
    assert (figures["scores"].smallest, figures["scores"].largest) == (0.1, 0.9)
    assert "seen_items" not in figures
    assert (report.files[1].figures["seen_items"], report.files[1].figures["distinct_items"]) == (0, 12)


NAN = float("nan")
CASES: list[tuple[str, int, str, list[dict[str, Any]]]] = [
    ("malformed-row", 2, "line 6", [*SOUND, row(5, query=7), row(6, items="red")]),
    ("repeated-query-id", 1, "line 6: q1, first in line 2", [*SOUND, row(5, query_id="q1")]),
    ("no-tokens", 2, "item d5-0", [*SOUND, row(5, items=["\u200b", "red", "\u200c"])]),
    ("repeated-query", 1, "line 6: q5, SHOE a B, first in line 2", [*SOUND, row(5, query="SHOE  a B")]),
    ("conflicting-labels", 1, "labels 0 and 1", [*SOUND, row(5, items=["car", "pet", "Car"])]),
    ("repeated-item", 1, "items d5-0 and d5-1", [*SOUND, row(5, items=["car", "Car", "pet"])]),
    ("item-id-texts", 1, "item d0-0: red a f", [*SOUND, row(5, item_ids=["d0-0", "m", "n"])]),
    ("no-positive", 1, "q5", [*SOUND, row(5, labels=[0, 0, -1])]),
    ("all-positive", 1, "q5", [*SOUND, row(5, labels=[1, 2, 1])]),
    ("labels-missing", 2, "line 6: q5", [*SOUND, row(5, labels=None), row(6, labels=None)]),
    ("scores-missing", 1, "line 6: q5", [*SOUND, row(5, scores=None)]),
    ("constant-scores", 1, "all 0.5", [*SOUND, row(5, scores=[0.5, 0.5, 0.5])]),
    ("scores-outside", 1, "-1.5 to 3", [*SOUND, row(5, scores=[-1.5, 0.5, 3])]),
    ("scores-reversed", 12, "line 1: q0", [{**one, "scores": [1 - x for x in one["scores"]]} for one in ENOUGH]),
    ("positives-first", 12, "line 1: q0", [{**one, "labels": [1, 0, 0]} for one in ENOUGH]),
    ("cut-queries", 1, "11 tokens, limit 10", [*SOUND, row(5, query="red " * 11)]),
    ("cut-items", 2, "d5-1: 9 tokens, limit 8", [*SOUND, row(5, items=["car", "red " * 9, "pet " * 12])]),
    ("unknown-tokens", 1, "日", [*SOUND, row(5, items=["car", "日", "pet"])]),
    ("columns-not-read", 2, "first_stage", [{**one, "first_stage": 1, "more": 2} for one in SOUND]),
    ("no-targets", 5, "line 1: q0", [{**one, "labels": None, "scores": None} for one in SOUND]),
    ("single-item", 1, "line 6: q5", [*SOUND, row(5, item_ids=["d"], items=["car"], labels=[1], scores=[0.5])]),
    ("numbered-items", 33, "item 0", [{**one, "item_ids": ["0", "1", "2"]} for one in ENOUGH]),
    ("merged-repeats", 2, "lists.jsonl",
     [{"query": one["query"], "docs": one["items"][:2] * 2, "labels": [0, 1, 0, 1]} for one in SOUND[:1]]),
]  # fmt: skip


@pytest.mark.parametrize(("code", "count", "example", "rows"), CASES, ids=[case[0] for case in CASES])
def test_each_problem_is_found(
    code: str, count: int, example: str, rows: list[Any], tmp_path: Path, tokenizer: ShortTextTokenizer
) -> None:
    lists = jsonl(tmp_path / "lists.jsonl", *rows)
    found = problems(check(lists, tokenizer, max_query_tokens=10, max_item_tokens=8))
    assert code in found
    assert found[code].count == count
    assert example in found[code].examples[0]
    assert len(found[code].examples) <= 3
    together = {"conflicting-labels": {"repeated-item"}, "positives-first": {"scores-reversed"}}
    assert set(found) - {code} <= together.get(code, set())


def test_every_kind_has_a_case_and_a_paragraph() -> None:
    cases = {code for code, *_ in CASES} | {"unreadable-file", "leaked-query", "leaked-positive"}
    assert cases == set(KINDS)
    page = (root() / "docs" / "checking.md").read_text(encoding="utf-8")
    missing = [code for code in KINDS if f"`{code}`" not in page]
    assert not missing


def test_rows_with_mistakes_are_counted_and_left_out(tmp_path: Path, tokenizer: ShortTextTokenizer) -> None:
    rows = [row(0), row(1, labels=[1, NAN, 0]), row(2, items=["a", " ", "c"]), row(3, query_id=None), row(4)]
    report = check(jsonl(tmp_path / "lists.jsonl", *rows), tokenizer)
    figures = report.files[0].figures
    assert (figures["rows"], figures["refused_rows"], figures["lists"]) == (5, 3, 2)
    (problem,) = problems(report).values()
    for example, words in zip(problem.examples, ("2.*labels.*1", "3.*items.*1", "4.*query_id"), strict=True):
        assert re.search(f"^line {words}", example)


def test_pairs_of_a_query_that_make_no_list_do_not_hide_the_others(
    tmp_path: Path, tokenizer: ShortTextTokenizer
) -> None:
    pairs = [{"query": f"q {n}", "item": item, "label": 1} for n in range(3) for item in ("car", "pet")]
    del pairs[1]["label"]
    report = check(jsonl(tmp_path / "pairs.jsonl", *pairs), tokenizer)
    assert report.files[0].figures["lists"] == 2
    assert problems(report)["malformed-row"].count == 1


def test_a_broken_line_ends_its_file_but_not_the_folder(
    tmp_path: Path, tokenizer: ShortTextTokenizer
) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "0.jsonl").touch()  # a shard may be empty
    jsonl(folder / "a.jsonl", row(0), row(1))
    with (folder / "a.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"query_id": \n' + json.dumps(row(2)) + "\n")
    jsonl(folder / "b.jsonl", row(3), row(4, query_id="q0"))
    report = check(folder, tokenizer)
    assert report.files[0].figures["lists"] == 4
    found = problems(report)
    assert set(found) == {"unreadable-file", "repeated-query-id"}
    assert "a.jsonl, line 3" in found["unreadable-file"].examples[0]
    assert found["repeated-query-id"].examples[0] == "b.jsonl, line 2: q0, first in a.jsonl, line 1"


def test_leakage_is_found_whatever_the_writing(tmp_path: Path, tokenizer: ShortTextTokenizer) -> None:
    train = jsonl(tmp_path / "train.jsonl", row(0), row(1, query="shoe\u00a0A  b", labels=[1, 1, 0]), row(2))
    leaking = [
        row(30, query="Shoe a B", items=["RED a b", "new", "blue  A B"], labels=[1, 0, 0]),
        row(31, query="SHOE A A", items=["cat", "dog", "red a a"], labels=[1, 0, 0]),
        row(32),
    ]
    report = check(train, tokenizer, tests=[jsonl(tmp_path / "test.jsonl", *leaking)])
    assert not problems(report), "the training lists are sound"
    found = problems(report, 1)
    assert set(found) == {"leaked-query", "leaked-positive"}
    assert (found["leaked-query"].count, found["leaked-query"].of) == (2, 3)
    assert (found["leaked-positive"].count, found["leaked-positive"].of) == (1, 3)
    assert found["leaked-positive"].grade == "error"
    assert "line 1: q30" in found["leaked-positive"].examples[0]
    assert (report.files[1].figures["seen_items"], report.files[1].figures["distinct_items"]) == (3, 9)


def test_many_cut_texts_are_a_warning(tmp_path: Path, tokenizer: ShortTextTokenizer) -> None:
    lists = tmp_path / "lists.jsonl"
    write_lists(simulate(40, 10), lists)
    report = check(lists, tokenizer, max_item_tokens=3)
    cut = problems(report)["cut-items"]
    assert cut.grade == "warning"
    assert cut.of == 400
    texts = report.files[0].figures["item_texts"]
    items = [item for line in lists.read_text().splitlines() for item in json.loads(line)["items"]]
    lengths = [len(tokenizer.hf.tokenize(item)) for item in items]
    assert cut.count == texts["cut_texts"] == sum(n > 3 for n in lengths)
    assert texts["cut_tokens"] == sum(max(n - 3, 0) for n in lengths)
    assert (texts["tokens"].mean, texts["tokens"].largest) == (pytest.approx(np.mean(lengths)), max(lengths))


def test_positives_first_needs_more_than_chance(tmp_path: Path, tokenizer: ShortTextTokenizer) -> None:
    # two items, one of them positive, first in 9 of 10 lists: chance alone leads in half of them
    rows = [row(n, item_ids=["a", "b"], items=["car", "pet"], scores=None, labels=[1, 0]) for n in range(12)]
    found = problems(check(jsonl(tmp_path / "lists.jsonl", *rows), tokenizer))
    assert "positives-first" not in found


def test_other_fields_and_layouts(tmp_path: Path, tokenizer: ShortTextTokenizer) -> None:
    rows = [{**row(n), "first_stage": [7.0, 6.0, 5.0]} for n in range(4)]
    found = problems(check(jsonl(tmp_path / "lists.jsonl", *rows), tokenizer, score_column="first_stage"))
    assert found["scores-outside"].count == 4
    assert found["columns-not-read"].examples == ("scores",)
    rows = [{"query": "red shoe", "positive": ["shoe red"], "negative": ["blue boots", "lamp"]},
            {"query": "lamp", "positive": [" "], "negative": ["phone"]}]  # fmt: skip
    report = check(jsonl(tmp_path / "mteb.jsonl", *rows), tokenizer)
    assert report.files[0].figures["lists"] == 1
    assert "line 2, field 'positive'" in problems(report)["malformed-row"].examples[0]


def test_mistakes_in_the_arguments(tmp_path: Path, tokenizer: ShortTextTokenizer) -> None:
    lists = jsonl(tmp_path / "lists.jsonl", *SOUND)
    with pytest.raises(ValueError, match="max_item_tokens must be at least 1"):
        check(lists, tokenizer, max_item_tokens=0)
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        check(lists, tokenizer, tests=[tmp_path / "none.jsonl"])


def test_texts_are_compared_normalised() -> None:
    assert normalise("  Ｒｅｄ\u00a0 SHOE\n") == "red shoe"
    assert normalise("STRASSE") == normalise("straße")
    assert normalise("Cafe\u0301") == normalise("CAFÉ")
    assert normalise("red shoe") != normalise("redshoe")
