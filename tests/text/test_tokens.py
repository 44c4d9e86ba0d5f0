from __future__ import annotations

import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import ShortTextTokenizer
from tests import tiny_models

WITHOUT_TOKENS = "\u200b\u200d"  # not white space to Python, nothing to a tokenizer


def random_texts(seed: int, count: int) -> list[str]:
    source = random.Random(seed)
    return [" ".join(source.choices(tiny_models.WORDS, k=source.randint(1, 9))) for _ in range(count)]


def one_by_one(texts: list[str]) -> list[list[int]]:
    hf = tiny_models.tokenizer()
    return [[hf.get_vocab()[token] for token in hf.tokenize(text)] for text in texts]


def rows(tokenizer: ShortTextTokenizer, texts: list[str], limit: int = 100) -> list[list[int]]:
    tokens = tokenizer.encode(texts, limit).tokens
    return [tokens.row(i).tolist() for i in range(len(texts))]


@pytest.mark.parametrize("cache_size", [0, 1, 7, 1000])
def test_ids_are_those_of_each_text_alone(cache_size: int) -> None:
    tokenizer = ShortTextTokenizer(tiny_models.tokenizer(), cache_size)
    for seed in range(6):
        texts = random_texts(seed % 3, 25) * 2  # repeats inside and across calls
        random.Random(seed).shuffle(texts)
        assert rows(tokenizer, texts) == one_by_one(texts)
        assert len(tokenizer._cache) <= cache_size


def test_any_text_has_the_ids_of_its_words() -> None:
    source, hf = random.Random(0), tiny_models.tokenizer()
    pieces = [
        *"    \t\u00a0\u2003\u3000\u0301\u0130\u00df\u03a3\u1f88\u200d-.'/\u6771\u4eac\ud55c",
        "e\u0301",
        "[SEP]",
        "[MASK]",
    ]
    pieces += [*tiny_models.WORDS, "RED", "x" * 120]
    texts = ["red" + "".join(source.choices(pieces, k=source.randint(1, 12))) for _ in range(500)]
    expected = [hf(text, add_special_tokens=False).input_ids for text in texts]
    assert ShortTextTokenizer(hf)._by_word
    assert rows(ShortTextTokenizer(hf), texts, 1000) == expected


def test_words_joined_by_an_added_token_are_read_together() -> None:
    hf = tiny_models.tokenizer()
    hf.add_tokens(["near me"])
    made = ShortTextTokenizer(hf)
    assert rows(made, ["shoes near me"]) == [[*rows(made, ["shoes"])[0], hf.get_vocab()["near me"]]]


@pytest.mark.parametrize("limit", [1, 3, 5, 8])
def test_cut_texts_are_counted_and_the_cache_keeps_them_whole(limit: int) -> None:
    tokenizer = ShortTextTokenizer(tiny_models.tokenizer())
    texts = random_texts(4, 40)
    whole = one_by_one(texts)
    encoded = tokenizer.encode(texts, limit)
    assert [encoded.tokens.row(i).tolist() for i in range(len(texts))] == [row[:limit] for row in whole]
    assert encoded.truncated == sum(len(row) > limit for row in whole)
    assert tokenizer.encode(texts, 100).truncated == 0
    assert rows(tokenizer, texts) == whole


def test_a_text_without_tokens_is_an_error_every_time() -> None:
    tokenizer = ShortTextTokenizer(tiny_models.tokenizer())
    for _ in range(2):
        with pytest.raises(ValueError, match=r"'\\u200b\\u200d' has no tokens"):
            tokenizer.encode(["red shoes", WITHOUT_TOKENS], 8)


def test_padding_and_truncation_of_the_backend_are_ignored() -> None:
    hf = tiny_models.tokenizer()
    hf.backend_tokenizer.enable_padding(length=16)
    hf.backend_tokenizer.enable_truncation(2)
    texts = ["red", "cheap running shoes near paris"]
    assert rows(ShortTextTokenizer(hf), texts) == one_by_one(texts)


def test_the_cache_stays_behind_when_pickled() -> None:
    tokenizer = ShortTextTokenizer(tiny_models.tokenizer(), 50)
    texts = random_texts(0, 20)
    expected = rows(tokenizer, texts)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert (copy.cache_size, copy._cache) == (50, {})
    assert rows(copy, texts) == expected


def test_needs_a_fast_tokenizer() -> None:
    class Slow(PreTrainedTokenizerFast):
        is_fast = False

    slow = tiny_models.tokenizer()
    slow.__class__ = Slow
    with pytest.raises(ValueError, match="Slow is not a fast tokenizer"):
        ShortTextTokenizer(slow)


def test_threads_share_a_full_cache() -> None:
    tokenizer = ShortTextTokenizer(tiny_models.tokenizer(), cache_size=50)
    words = tiny_models.WORDS

    def encode(number: int) -> list[int]:
        texts = [f"{words[(i + 13 * number) % len(words)]} {words[i % len(words)]}" for i in range(200)]
        for first in range(0, 200, 10):
            tokenizer.encode(texts[first : first + 40], 8)
        return tokenizer.encode(texts, 8).tokens.values.tolist()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(encode, range(24)))
    finally:
        sys.setswitchinterval(interval)
    assert found == [encode(number) for number in range(24)]
    assert len(tokenizer._cache) == 50


@pytest.mark.parametrize("family", ["bert", "t5", "gpt"])
def test_special_tokens_in_a_text_are_text(family: str, tiny_models_folder: Path) -> None:
    hf = load_tokenizer(str(tiny_models_folder / family), cls_and_sep=False)
    special = [token for token in hf.all_special_tokens if token != hf.unk_token]
    texts = [f"red {token} shoes" for token in special] + [" ".join([token] * 3) for token in special]
    made = ShortTextTokenizer(hf, cache_size=0)
    unknown = {hf.unk_token_id} - {hf.bos_token_id, hf.eos_token_id}
    assert not (set(hf.all_special_ids) - unknown) & set(made.encode(texts, 99).tokens.values.tolist())
    hf.split_special_tokens = False
    assert set(hf.convert_tokens_to_ids(special)) <= set(made.encode(texts, 99).tokens.values.tolist())
