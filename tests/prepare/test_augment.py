"""New queries for the items of lists: what they are made of, what is left out, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossjem_pl.cli import main
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.simulator import simulate
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.augment import read_templates, template_queries, write_augmented
from tests import tiny_models

ITEMS = ("red running shoes", "shoes for trail running", "red wine", "lamp")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    lists = [RankingList("q1", "red shoes", tuple("abcd"), ITEMS, (2, 1, 0, 0), (0.9, 0.8, 0.1, 0.2))]
    lists.append(RankingList("q2", "light", ("d", "e"), ("lamp", "desk lamp with a lamp"), None))
    lists.append(RankingList("q3", "alone", ("x",), ("nothing else",), (1,)))
    write_lists(lists, tmp_path / "lists.jsonl")
    return tmp_path / "lists.jsonl"


def augmented(source: Path, out: Path, **options: Any) -> list[RankingList]:
    write_augmented(source, out, **options)
    return list(read_lists(out / "augmented.parquet"))


def test_the_drawn_item_is_relevant_and_other_positives_are_left_out(source: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("query for {item}\n")
    options: dict[str, Any] = {"templates": tmp_path / "t.txt", "per_list": 9}
    written = {one.query: one for one in augmented(source, tmp_path / "out", **options)}
    assert len(written) == 5, "lamp is in two lists, one query text is written once; q3 has no other item"
    for query, one in written.items():
        (relevant,) = (i for i, label in enumerate(one.labels or ()) if label)
        assert query == f"query for {one.items[relevant]}"
        assert one.scores is None
    assert written["query for red running shoes"].items == ("red running shoes", "red wine", "lamp")
    assert written["query for red wine"].items == ("red wine", "lamp")
    report = str(write_augmented(source, tmp_path / "out", **options))
    assert "was complete" in report
    assert "1 drawn items left out" in report
    assert "1 queries left out, their text" in report


def test_words_are_a_run_of_the_items_words() -> None:
    write = template_queries(("{words}",))
    draw = np.random.default_rng(0)
    for words in (["a"], ["a", "b"], list("abcdefg")):
        found = {write([" ".join(words)], draw)[0] for _ in range(300)}
        runs = {" ".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
        long = {run for run in runs if (len(words) + 1) // 2 <= len(run.split()) < max(len(words), 2)}
        assert found == long


def test_known_and_held_out_queries_are_not_written(tmp_path: Path) -> None:
    lists = list(simulate(40, 6))
    write_lists(lists, tmp_path / "lists.parquet")
    free = augmented(tmp_path / "lists.parquet", tmp_path / "a", seed=3)
    assert free == augmented(tmp_path / "lists.parquet", tmp_path / "b", seed=3), "a function of the seed"
    assert free != augmented(tmp_path / "lists.parquet", tmp_path / "c", seed=4)
    dev = [RankingList.from_texts(f" {one.query.upper()} ", ["x"], one.query_id) for one in free[:20]]
    write_lists(dev, tmp_path / "dev.parquet")
    held_out = [tmp_path / "dev.parquet"]
    assert augmented(tmp_path / "lists.parquet", tmp_path / "d", seed=3, held_out=held_out) == free[20:]


def test_a_model_writes_the_queries(source: Path, tmp_path: Path) -> None:
    model = str(tiny_models.write_t5(tmp_path / "t5"))
    options: dict[str, Any] = {"model": model, "prompt": "ask: {item}", "per_list": 4, "max_query_tokens": 5}
    lists = augmented(source, tmp_path / "a", **options)
    assert lists
    assert lists == augmented(source, tmp_path / "b", **options)
    assert all(sum(one.labels or ()) == 1 for one in lists)
    assert not {one.query for one in lists} & {"red shoes", "light", "alone"}


def test_mistakes_are_named(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, problem in (
        ("{item}\nno field\n", "line 2: not a template with {item} and {words} .*no field"),
        ("{price} of {item}\n", "line 1: not a template"),
        ("{item\n", "line 1: not a template"),
        ("", "no templates"),
    ):
        (tmp_path / "t.txt").write_text(text)
        with pytest.raises(ValueError, match=problem):
            read_templates(tmp_path / "t.txt")
    with pytest.raises(ValueError, match="give one of them"):
        write_augmented(source, tmp_path, templates=tmp_path / "t.txt", model="t5")
    with pytest.raises(ValueError, match="at least 1"):
        write_augmented(source, tmp_path, per_list=0)
    with pytest.raises(ValueError, match="prompt: not a template"):
        write_augmented(source, tmp_path, prompt="{words}", model="t5")
    command = ["prepare", "augment", str(source), "--out", str(tmp_path / "out")]
    assert main([*command, "--held-out", str(tmp_path / "gone")]) == 2
    assert "gone" in capsys.readouterr().err
    assert main(command) == 0
    assert "augmented.parquet: 2 lists" in capsys.readouterr().out
