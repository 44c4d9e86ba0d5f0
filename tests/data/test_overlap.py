from __future__ import annotations

import pytest

from crossjem_pl.data.overlap import overlap_statistics
from crossjem_pl.lists import RankingList
from crossjem_pl.text import ShortTextTokenizer
from tests import tiny_models
from tests.conftest import example_lists


@pytest.fixture(scope="module")
def tokenizer() -> ShortTextTokenizer:
    return ShortTextTokenizer(tiny_models.tokenizer())


@pytest.mark.parametrize("limit", [1, 2, 32])
def test_agrees_with_python_sets(tokenizer: ShortTextTokenizer, limit: int) -> None:
    lists = example_lists(15, seed=1)
    total, union = [], []
    for one in lists:
        tokens = [tokenizer.hf.tokenize(text)[:limit] for text in one.items]
        total.append(sum(len(row) for row in tokens))
        union.append(len({token for row in tokens for token in row}))
    found = overlap_statistics(lists, tokenizer, limit)
    assert found.lists == 15
    assert found.items == pytest.approx(sum(map(len, lists)) / 15)
    assert found.total_tokens == pytest.approx(sum(total) / 15)
    assert found.union_tokens == pytest.approx(sum(union) / 15)
    assert found.ratio == pytest.approx(sum(total) / sum(union))


def test_a_list_by_hand(tokenizer: ShortTextTokenizer) -> None:
    one = RankingList.from_texts("ignored query", ["red shoe", "red boots red", "shoe"])
    found = overlap_statistics([one], tokenizer)
    assert (found.items, found.total_tokens, found.union_tokens, found.ratio) == (3, 6, 3, 2)
    assert str(found).startswith(
        "token overlap of 1 lists, 3 items each: m = 6.0 item tokens, N_u = 3.0 distinct, ratio 2.00"
    )


def test_no_lists(tokenizer: ShortTextTokenizer) -> None:
    with pytest.raises(ValueError, match="no lists to count"):
        overlap_statistics([], tokenizer)
