from __future__ import annotations

import time

import pytest

from crossjem_pl.inference.timing import Timings, milliseconds, take_turns


def test_candidates_take_turns_and_the_first_rounds_are_not_counted() -> None:
    order: list[str] = []

    def measured(name: str, number: int) -> float:
        order.append(f"{name}{number}")
        return {"a": 1.0, "b": 2.0}[name] * number

    times = take_turns({"first": "a", "second": "b"}, [1, 2, 3], 1, measured)
    assert order == ["a1", "b1", "b2", "a2", "a3", "b3"], "each round begins with another one"
    assert times == {"first": Timings((2.0, 3.0)), "second": Timings((4.0, 6.0))}
    assert times["second"].ratio(times["first"]) == 2.0


def test_calls_are_timed() -> None:
    times = take_turns({"slow": lambda seconds: time.sleep(seconds), "quick": lambda _: None}, [0.01] * 3)
    assert len(times["slow"].rounds) == 2
    assert times["slow"].median >= 10 > times["quick"].median
    assert milliseconds(time.sleep, 0.01) >= 10


def test_percentiles() -> None:
    times = Timings(tuple(map(float, range(101))))
    assert (times.median, times.p95, times.p99) == (50.0, 95.0, 99.0)


@pytest.mark.parametrize(("candidates", "inputs"), [({}, [1, 2]), ({"a": 1}, [1]), ({"a": 1}, [])])
def test_nothing_to_time_is_an_error(candidates: dict[str, int], inputs: list[int]) -> None:
    with pytest.raises(ValueError, match="nothing to time"):
        take_turns(candidates, inputs, 1, lambda candidate, given: 1.0)
