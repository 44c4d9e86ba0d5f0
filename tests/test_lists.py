"""RankingList: what it accepts, what it refuses and how it says so."""

from __future__ import annotations

import dataclasses
import math
import pickle
from typing import Any

import pytest

from crossjem_pl.hashing import content_id
from crossjem_pl.lists import RankingList


def make(**changes: Any) -> RankingList:
    values: dict[str, Any] = {
        "query_id": "q7",
        "query": "red shoes",
        "item_ids": ("a", "b", "c"),
        "items": ("red shoe", "blue shoe", "red hat"),
        "labels": (2, 1, 0),
        "scores": (0.9, 0.5, 0.1),
    }
    return RankingList(**(values | changes))


def test_fields_become_tuples_of_floats() -> None:
    one = make(item_ids=["a", "b", "c"], items=["x", "y", "z"], labels=[True, 1, 0.5], scores=[-3, 0, 2.5])
    assert one.item_ids == ("a", "b", "c")
    assert one.items == ("x", "y", "z")
    assert one.labels == (1.0, 1.0, 0.5)
    assert one.scores == (-3.0, 0.0, 2.5)
    assert [type(v) for v in (*one.labels, *one.scores)] == [float] * 6
    assert len(one) == 3


def test_is_a_frozen_value() -> None:
    one = make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.query = "other"  # type: ignore[misc]
    assert one == make(item_ids=["a", "b", "c"])
    assert hash(one) == hash(make())
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("text", ["日本語", "a\tb", "café ☕", "x\u2028y", " padded "])
def test_any_text_that_is_not_blank_is_kept_as_it_stands(text: str) -> None:
    one = make(query=text, items=(text, "b", "c"))
    assert one.query == text
    assert one.items[0] == text


BAD = [
    ("query_id", "", "non-empty string"),
    ("query_id", 7, "non-empty string, got 7"),
    ("query", "\t\n", "non-empty string"),
    ("items", (), "no items"),
    ("items", ("x", "", "z"), "position 1: expected a non-empty string, got ''"),
    ("items", ("x", None, "z"), "position 1: expected a non-empty string, got None"),
    ("items", "xyz", "expected a sequence, got str"),
    ("item_ids", ("a", "b"), "2 ids for 3 items"),
    ("item_ids", ("a", "b", "a"), "id 'a' occurs more than once"),
    ("item_ids", (1, 2, 3), "position 0: expected a non-empty string, got 1"),
    ("item_ids", "abc", "expected a sequence, got str"),
    ("labels", (1, 0), "2 values for 3 items"),
    ("labels", (1, 0, math.nan), "position 2: expected a finite number, got nan"),
    ("labels", (1, None, 0), "position 1: expected a finite number, got None"),
    ("labels", (1, "0", 0), "position 1: expected a finite number, got '0'"),
    ("labels", 1.0, "expected a sequence, got float"),
    ("labels", (1, 1e300, 0), "position 1: expected a finite number, got 1e+300, too large for float32"),
    ("items", ("x", "half \ud83d", "z"), "position 1: half a surrogate pair"),
    ("query", ["x" * 10_000], "x" * 70 + "..."),
    ("scores", (0.1,), "1 values for 3 items"),
    ("scores", (0.1, -math.inf, 0.2), "position 1: expected a finite number, got -inf"),
]


@pytest.mark.parametrize(("field", "value", "problem"), BAD)
def test_bad_input_names_list_field_and_problem(field: str, value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match="field") as caught:
        make(**{field: value})
    message = str(caught.value)
    shown = value if field == "query_id" else "q7"
    assert message.startswith(f"list {shown!r}, field {field!r}: ")
    assert problem in message


def test_from_texts_numbers_the_items() -> None:
    one = RankingList.from_texts("red", ["a", "b"])
    assert one == RankingList("query", "red", ("0", "1"), ("a", "b"))
    assert RankingList.from_texts("red", ["a"], query_id="q").query_id == "q"
    with pytest.raises(ValueError, match="no items"):
        RankingList.from_texts("red", [])


def test_select_reorders_every_field_together() -> None:
    picked = make().select([2, 0])
    assert picked == RankingList("q7", "red shoes", ("c", "a"), ("red hat", "red shoe"), (0, 2), (0.1, 0.9))
    bare = make(labels=None, scores=None).select(range(1))
    assert bare == RankingList("q7", "red shoes", ("a",), ("red shoe",))


def test_select_refuses_what_makes_no_list() -> None:
    with pytest.raises(ValueError, match="no items"):
        make().select([])
    with pytest.raises(ValueError, match="more than once"):
        make().select([0, 0])
    with pytest.raises(IndexError):
        make().select([3])


def test_pairs_and_frames_are_grouped_by_query() -> None:
    import pandas as pd

    pairs = [
        ("red", "shoe", 1, 0.9),
        ("blue", "sea", 0, 0.5),
        ("red", "hat", 0, 0.25),
        ("red", "shoe", 1, 0.9),
    ]
    red, blue = RankingList.from_pairs(pairs)
    assert (red.query, red.items, red.labels, red.scores) == ("red", ("shoe", "hat"), (1, 0), (0.9, 0.25))
    assert (blue.query_id, blue.item_ids) == (content_id("blue"), (content_id("sea"),))
    frame = pd.DataFrame(pairs, columns=["keyword", "item", "label", "score"])
    assert RankingList.from_pandas(frame, query="keyword") == [red, blue]
    frame = frame.assign(query_id=[1, 2, 1, 1], item_id=["a", "c", "b", "a"])
    first = RankingList.from_pandas(frame, query="keyword", score="none")[0]
    assert first == RankingList("1", "red", ("a", "b"), ("shoe", "hat"), (1, 0))


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ([("red", "shoe", 1), ("red", "shoe", 0)], "pair 2, field 'label': .* has 0 here and 1 in pair 1"),
        ([("red", "shoe", 1), ("red", "hat")], "pair 2, field 'label': is missing, but other pairs"),
        ([("red", "shoe", 1, 0.5, "more")], "pair 1: expected query, item, label and score, got"),
        ([("red",)], "pair 1: expected query, item, label and score, got"),
        ([("red", " ")], "pair 1, field 'item': expected a non-empty string"),
        (
            [("red", "shoe", math.nan)],
            "pair 1: list .*, field 'labels': position 0: expected a finite number",
        ),
    ],
)
def test_pairs_that_make_no_list_are_named(pairs: list[tuple[Any, ...]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RankingList.from_pairs(pairs)


def test_a_frame_without_the_columns_or_with_two_texts_of_one_id_is_named() -> None:
    import pandas as pd

    with pytest.raises(ValueError, match="no column 'query'; the frame has a"):
        RankingList.from_pandas(pd.DataFrame({"a": [1]}))
    frame = pd.DataFrame({"query_id": [1, 1], "query": ["red", "blue"], "item": ["a", "b"]})
    with pytest.raises(ValueError, match=r"row 1, field 'query_id': .* got 1\.0"):
        RankingList.from_pandas(frame.assign(query_id=[1.0, math.nan]))
    with pytest.raises(
        ValueError, match="row 2, field 'query': query '1' has the text 'blue' here and 'red' in row 1"
    ):
        RankingList.from_pandas(frame)


def test_the_content_differs_wherever_a_field_does() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"query_id": "q8"}, {"query": "red"}, {"items": ("red shoe", "blue shoe", "red cap")}, {"labels": None},
        {"item_ids": ("a", "b", "d")}, {"labels": (2, 1, 1)}, {"scores": None}, {"scores": (0.9, 0.5, 0.2)},
        {"labels": None, "scores": (2, 1, 0)}, {"labels": (2, 1, 0), "scores": None}, {"labels": None, "scores": None},
    ]  # fmt: skip
    contents = [make(**change).content() for change in changes]
    assert len(set(contents)) == len(changes) - 1, "one of the changes is made twice"
    assert make().content() == contents[0]
