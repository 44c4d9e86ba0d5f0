from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from crossjem_pl.text import ShortTextTokenizer, token_store
from crossjem_pl.text.token_store import TokenStore, tokenizer_fingerprint
from tests import tiny_models


def texts(count: int, seed: int = 0, longest: int = 9) -> dict[str, str]:
    source = random.Random(seed)
    words = tiny_models.WORDS
    return {f"item-{i}": " ".join(source.choices(words, k=source.randint(1, longest))) for i in range(count)}


@pytest.fixture(scope="module")
def tokenizer() -> ShortTextTokenizer:
    return ShortTextTokenizer(tiny_models.tokenizer())


@pytest.mark.parametrize("count", [1, 2, 700])
@pytest.mark.parametrize("block", [3, 8192])
def test_ids_give_what_their_texts_give(
    count: int, block: int, tokenizer: ShortTextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "_BLOCK", block)
    items = texts(count)
    built = TokenStore.build(tmp_path / "new" / "store", iter(items.items()), tokenizer, 12)
    assert (len(built), built.max_tokens, built.truncated, built.repeated) == (count, 12, 0, 0)
    for store in (built, TokenStore.open(tmp_path / "new" / "store"), pickle.loads(pickle.dumps(built))):
        chosen = random.Random(count).choices(list(items), k=300)
        for limit in (1, 3, 12, 500):
            found = store.encode(chosen, limit)
            expected = tokenizer.encode([items[i] for i in chosen], limit)
            assert found.tokens.values.dtype == np.int64
            assert found.tokens.values.tolist() == expected.tokens.values.tolist()
            assert found.tokens.lengths.tolist() == expected.tokens.lengths.tolist()
            assert found.truncated == expected.truncated
        assert "item-0" in store
        assert "item-9999" not in store


def test_ids_may_be_any_text(tokenizer: ShortTextTokenizer, tmp_path: Path) -> None:
    names = ["a", "a\x00b", "日本", "x" * 500, " y", "y"]
    store = TokenStore.build(
        tmp_path / "store", [(name, "red " * (i + 1)) for i, name in enumerate(names)], tokenizer
    )
    assert store.encode(names, 99).tokens.lengths.tolist() == [1, 2, 3, 4, 5, 6]


def test_long_items_are_kept_up_to_the_limit_and_counted(
    tokenizer: ShortTextTokenizer, tmp_path: Path
) -> None:
    items = texts(200, seed=1)
    store = TokenStore.build(tmp_path / "store", items.items(), tokenizer, 4)
    whole = tokenizer.encode(list(items.values()), 99).tokens
    assert store.truncated == int((whole.lengths > 4).sum()) > 0
    for limit in (2, 4):
        found, expected = store.encode(list(items), limit), tokenizer.encode(list(items.values()), limit)
        assert found.tokens.values.tolist() == expected.tokens.values.tolist()
        assert found.truncated == expected.truncated
    with pytest.raises(ValueError, match=r"keeps 4 tokens of an item, which cuts \d+ .* but 5 are wanted"):
        store.encode(["item-0"], 5)


def test_tokens_take_two_bytes_or_four(
    tokenizer: ShortTextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = texts(50)
    total = len(tokenizer.encode(list(items.values()), 99).tokens.values)
    TokenStore.build(tmp_path / "small", items.items(), tokenizer)
    assert (tmp_path / "small" / "tokens.bin").stat().st_size == 2 * total
    vocabulary = tokenizer.hf.get_vocab() | {"a word far away": 70_000}
    monkeypatch.setattr(type(tokenizer.hf), "get_vocab", lambda self: vocabulary)
    large = TokenStore.build(tmp_path / "large", items.items(), tokenizer)
    assert (tmp_path / "large" / "tokens.bin").stat().st_size == 4 * total
    assert (
        large.encode(list(items), 99).tokens.values.tolist()
        == tokenizer.encode(list(items.values()), 99).tokens.values.tolist()
    )


def test_an_unknown_id_is_named(tokenizer: ShortTextTokenizer, tmp_path: Path) -> None:
    store = TokenStore.build(tmp_path / "store", texts(20).items(), tokenizer)
    with pytest.raises(ValueError, match=r"store has no item 'nothing'$"):
        store.encode(["item-1", "nothing"], 9)
    with pytest.raises(ValueError, match=r"has no item 'zzz' \(and 1 more\)"):
        store.rows(["zzz", "item-2", ""])
    with pytest.raises(ValueError, match="item_ids, position 1: expected a string, got 7"):
        store.rows(["item-1", 7])  # type: ignore[list-item]
    assert store.rows([]).lengths.shape == (0,)


def test_an_item_may_come_again_with_the_same_text_only(
    tokenizer: ShortTextTokenizer, tmp_path: Path
) -> None:
    items = list(texts(30).items())
    store = TokenStore.build(tmp_path / "store", items + items[:7] + items[:2], tokenizer)
    assert (len(store), store.repeated) == (30, 9)
    with pytest.raises(ValueError, match="item 'item-3' comes with two different texts"):
        TokenStore.build(tmp_path / "other", [*items, ("item-3", "a dog")], tokenizer)
    assert not (tmp_path / "other").exists()


def test_two_ids_of_one_hash_are_named(
    tokenizer: ShortTextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = token_store._hashes
    monkeypatch.setattr(token_store, "_hashes", lambda ids: hashes([name.lower() for name in ids]))
    with pytest.raises(ValueError, match="the ids 'Boot' and 'boot' have the same 64-bit hash"):
        TokenStore.build(tmp_path / "store", [("Boot", "red"), ("x", "car"), ("boot", "red")], tokenizer)
    assert list(tmp_path.iterdir()) == []


def test_hashes_stay_the_same(tokenizer: ShortTextTokenizer, tmp_path: Path) -> None:
    """A store that was written elsewhere must stay readable."""
    TokenStore.build(tmp_path / "store", [("item-0", "red"), ("item-1", "blue")], tokenizer)
    stored = np.fromfile(tmp_path / "store" / "hashes.bin", dtype="<u8")
    assert stored.tolist() == [8406168460641299428, 13389778750212198947]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "there are no items to store"),
        ([("a", "red"), ("", "blue")], "item 2, id: expected a non-empty string, got ''"),
        ([("a", "red"), ("b", "blue"), ("c", " ")], "item 3, text: expected a non-empty string, got ' '"),
        ([("a", None)], "item 1, text: expected a non-empty string, got None"),
        ([("a", "red"), ("b", "\u200b\u200d")], "item 'b': the text .* has no tokens"),
    ],
)
def test_mistakes_are_named_and_nothing_is_left(
    pairs: list[tuple[str, str]], message: str, tokenizer: ShortTextTokenizer, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        TokenStore.build(tmp_path / "store", pairs, tokenizer)
    assert list(tmp_path.iterdir()) == []


def test_a_store_appears_whole_or_not_at_all(tokenizer: ShortTextTokenizer, tmp_path: Path) -> None:
    def interrupted() -> Iterator[tuple[str, str]]:
        yield from texts(20).items()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TokenStore.build(tmp_path / "store", interrupted(), tokenizer)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match=r"no token store in .*crossjem tokens"):
        TokenStore.open(tmp_path / "store")
    TokenStore.build(tmp_path / "store", texts(20).items(), tokenizer)
    with pytest.raises(ValueError, match="store exists already"):
        TokenStore.build(tmp_path / "store", texts(20).items(), tokenizer)
    with pytest.raises(ValueError, match="max_tokens must be at least 1, got 0"):
        TokenStore.build(tmp_path / "other", texts(20).items(), tokenizer, 0)


@pytest.mark.parametrize("file", ["store.json", "checksums.bin", "hashes.bin", "offsets.bin", "tokens.bin"])
def test_damaged_folders_are_named(file: str, tokenizer: ShortTextTokenizer, tmp_path: Path) -> None:
    items = texts(3000)
    TokenStore.build(tmp_path / "store", items.items(), tokenizer)
    path = tmp_path / "store" / file
    whole = path.read_bytes()

    def read() -> list[int]:
        return TokenStore.open(tmp_path / "store").rows(list(items)).lengths.tolist()

    path.unlink()
    with pytest.raises((FileNotFoundError, ValueError), match=rf"{file}: the file is missing|no token store"):
        read()
    path.write_bytes(whole[:-2])
    with pytest.raises(ValueError, match=rf"{file}.*(bytes, store.json says|damaged|not JSON)"):
        read()
    for place in random.Random(0).choices(range(len(whole)), k=20):
        bit = whole[place] ^ 1 << random.Random(place).randrange(8)
        path.write_bytes(whole[:place] + bytes([bit]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=rf"{file}|store\.json|has no item"):
            read()
    path.write_bytes(whole)
    assert read() == tokenizer.encode(list(items.values()), 99).tokens.lengths.tolist()
    if file == "store.json":
        path.write_bytes(whole.replace(b'"format": 3', b'"format": 2'))
        with pytest.raises(ValueError, match="not the description of a token store of this version"):
            read()


def test_the_fingerprint_is_that_of_the_token_ids(tokenizer: ShortTextTokenizer, tmp_path: Path) -> None:
    own = tokenizer_fingerprint(tokenizer)
    tokenizer.hf.save_pretrained(tmp_path)
    saved = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer_fingerprint(ShortTextTokenizer(saved)) == own
    saved(["red", "blue shoes"], padding=True, truncation=True, max_length=3)
    assert tokenizer_fingerprint(ShortTextTokenizer(saved)) == own, "padding and cutting are no part of it"
    saved.add_tokens(["sofa bed"])
    assert tokenizer_fingerprint(ShortTextTokenizer(saved)) != own
    store = TokenStore.build(tmp_path / "store", texts(5).items(), tokenizer)
    store.check_tokenizer(ShortTextTokenizer(tiny_models.tokenizer()))
    with pytest.raises(ValueError, match="built with another tokenizer"):
        store.check_tokenizer(ShortTextTokenizer(saved))
