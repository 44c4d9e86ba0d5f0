"""Many calls of one `Reranker`: from several threads, and one after the other in memory that stays flat.

`THREAD_CALLS` and `SOAK_CALLS` are how many; the full counts are 10000 and 50000.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.measuring import resident
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers import CrossJEM, MonoBERT, QueryHead, Ranker
from tests.tiny_models import WORDS

THREADS = 8
THREAD_CALLS = int(os.environ.get("THREAD_CALLS", "15"))
SOAK_CALLS = int(os.environ.get("SOAK_CALLS", "300"))


def request(chance: random.Random, most_items: int) -> tuple[str, list[str]]:
    """A query and items from a few thousand texts, of random sizes."""

    def text() -> str:
        return f"{chance.choice(WORDS)} {chance.choice(WORDS)}"

    return text(), [text() for _ in range(chance.randint(1, most_items))]


@pytest.fixture(scope="module", params=["crossjem", "monobert"])
def reranker(tiny_bert: str, request: pytest.FixtureRequest) -> Reranker:
    ranker: Ranker = MonoBERT(tiny_bert)
    if request.param == "crossjem":
        ranker = CrossJEM(tiny_bert, QueryHead(), form="best", max_items_per_pass=7)
    ranker.tokenizer.cache_size = 500  # type: ignore[attr-defined]  # it overflows all the time
    return Reranker(ranker, "cpu")


def test_threads_get_what_one_thread_gets(reranker: Reranker) -> None:
    requests = [request(random.Random(number), 12) for number in range(min(THREADS * THREAD_CALLS, 2000))]
    expected = [reranker.rank(*each) for each in requests]

    def call(number: int) -> None:
        query, items = requests[number % len(requests)]
        want = expected[number % len(requests)]
        what = number % 20
        if what == 7:
            scores = [row.score for row in reranker.explain(query, items)] if explains else []
            assert not scores or sorted(scores, reverse=True) == pytest.approx(
                [row.score for row in want], abs=1e-4
            )
        elif what == 13:
            kept = reranker.rank(query, items, min_score=want[0].score - 1e-4)
            assert [row.index for row in kept] == [row.index for row in want[: len(kept)]]
        elif number % 1000 == 500:
            reranker.tune(passes=False, precisions=(), rounds=1)
        else:
            found = reranker.rank(query, items)
            assert [row.index for row in found] == [row.index for row in want]
            assert [row.score for row in found] == pytest.approx([row.score for row in want], abs=1e-5)

    try:
        reranker.explain("red", ["shoe"])
        explains = True
    except ValueError:
        explains = False
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(call, range(THREADS * THREAD_CALLS), chunksize=50))
    reranker.tune(passes=False, precisions=(), rounds=1)
    call(0)


def test_memory_stays_flat(reranker: Reranker) -> None:
    chance, warm = random.Random(0), min(2000, SOAK_CALLS // 2)
    for number in range(SOAK_CALLS):
        if number == warm:
            start = resident("VmRSS")
        reranker.rank(*request(chance, 40))
    assert resident("VmRSS") < 1.05 * start
