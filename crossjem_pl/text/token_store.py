"""Token ids of items on disk, by item id: computed once, memory-mapped, read without a tokenizer."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossjem_pl.files import replacing_folder
from crossjem_pl.hashing import check_regular, content_sha256, text_keys
from crossjem_pl.text.ragged import Ints, Ragged, ranges
from crossjem_pl.text.tokens import Encoded, ItemStates, ShortTextTokenizer, StateRows

__all__ = ["TokenStore", "tokenizer_fingerprint"]

_FORMAT = 3
"""1, of version 0.1, had other hashes; 2 no checksums. A store of another format is built again."""
_DESCRIPTION = "store.json"
_BLOCK = 8192
_UNCUT = 2**62
_PAGE = 1 << 16
_FILES = ("hashes.bin", "offsets.bin", "tokens.bin", "states.bin")


class TokenStore:
    """A folder of token ids by item id, and of states of their tokens where a model has any without the query.

    An item is found by a 64-bit hash of its id in a sorted table; two ids of the same hash cannot be in one
    store (`build` says so). An id that is not in the store is taken for one that is with probability
    items / 2^64. Nothing is loaded but the pages that are read, which processes share; a page is checked when it is
    first read.

    Files: `hashes.bin` uint64 [items], ascending; `offsets.bin` int64 [items + 1]; `tokens.bin` uint16 or
    uint32; `states.bin` float16 [tokens + 2 items, width], if there are any; `checksums.bin` uint32, the CRC-32 of
    every 64 KiB of these, one file after the other;
    `store.json` with a SHA-256 of itself and the checksums. All little-endian.

    Attributes:
        max_tokens: how many tokens of an item are kept.
        truncated: how many items have more than `max_tokens` tokens.
        repeated: how often an id came again, with the same tokens, while the store was built.
    """

    def __init__(self, folder: Path, about: dict[str, Any], checksums: NDArray[np.uint32]) -> None:
        self.folder, self._tokenizer, self._items = folder, about["tokenizer"], about["items"]
        self.max_tokens, self.truncated = about["max_tokens"], about["truncated"]
        self.repeated = about["repeated"]
        self._model, self._width = about["model"], about["width"]
        sizes = [("<u8", self._items), ("<i8", self._items + 1), (about["dtype"], about["tokens"])]
        sizes.append(("<f2", (about["tokens"] + 2 * self._items) * self._width))
        arrays = []
        for name, (dtype, count) in list(zip(_FILES, sizes, strict=True))[: 3 + self.has_states]:
            arrays.append(_Array(folder / name, np.dtype(dtype), count, checksums))
            checksums = checksums[arrays[-1].pages :]
        self._hashes, self._offsets, self._tokens, *self._states = arrays

    def __len__(self) -> int:
        return self._items

    def __contains__(self, item_id: str) -> bool:
        return bool(self._find([item_id])[1][0])

    def __reduce__(self) -> tuple[Callable[..., TokenStore], tuple[Path]]:
        return TokenStore.open, (self.folder,)

    @classmethod
    def build(
        cls,
        folder: str | Path,
        items: Iterable[tuple[str, str]],
        tokenizer: ShortTextTokenizer,
        max_tokens: int = 256,
        states: ItemStates | None = None,
    ) -> TokenStore:
        """Writes a store; the folder appears when it is complete.

        Items are read once, in blocks, and sorted by DuckDB, in at most 1 GB of memory. Its scratch files, deleted at
        the end, take about twice as much space as ids and tokens.

        Args:
            folder: must not exist, or be empty.
            items: (id, text). An id may come again if its tokens are the same; the repeats are counted.
            tokenizer: what makes the tokens; its cache stays as it is.
            max_tokens: longer items keep so many, and are counted. Rankers cut further by themselves, so it
                should be the largest `max_item_tokens` that the store will serve.
            states: what a model makes of the items; 2 bytes for each number, width of them for each token.

        Raises:
            ValueError: if there are no items, the folder holds something, an id or text is blank or no text,
                a text has no tokens, an id comes with two texts, or two ids have the same hash; names the
                item.
        """
        import duckdb

        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} exists already; give another folder, or remove it")
        with replacing_folder(folder) as done:
            try:
                _write(items, done, ShortTextTokenizer(tokenizer.hf, cache_size=0), max_tokens, states)
            except duckdb.OperationalError as error:
                raise OSError(f"{folder}: {' '.join(str(error).split())}") from None
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path) -> TokenStore:
        """The store that `build` wrote.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: naming the file, if it is not as it was written.
        """
        folder = Path(folder)
        path = folder / _DESCRIPTION
        if not path.exists():
            raise FileNotFoundError(
                f"no token store in {folder}; write one with: crossjem tokens ITEMS --model MODEL --out {folder}"
            )
        check_regular(*folder.iterdir())
        return cls(folder, *_read_description(path))

    def check_tokenizer(self, tokenizer: ShortTextTokenizer) -> None:
        """Raises a ValueError if the store was built with another tokenizer."""
        if tokenizer_fingerprint(tokenizer) != self._tokenizer:
            raise ValueError(
                f"{self.folder} was built with another tokenizer than the model's; build it again with: "
                "crossjem tokens ITEMS --model MODEL --out FOLDER"
            )

    def check_limit(self, max_tokens: int) -> None:
        """Raises a ValueError if items of the store have lost tokens that a limit of `max_tokens` keeps."""
        if max_tokens > self.max_tokens and self.truncated:
            raise ValueError(
                f"{self.folder} keeps {self.max_tokens} tokens of an item, which cuts {self.truncated} of its "
                f"items, but {max_tokens} are wanted; build it again with --max-tokens {max_tokens}"
            )

    @property
    def has_states(self) -> bool:
        """Whether the states of a model are in it."""
        return bool(self._model)

    def check_model(self, model: str, max_tokens: int) -> None:
        """Raises a ValueError if the store has states of other weights, or of items cut to another limit."""
        if self.has_states and (self._model, self.max_tokens) != (model, max_tokens):
            raise ValueError(
                f"{self.folder} holds the states of a model with other weights or another limit of items; build it "
                "again with: crossjem tokens ITEMS --model MODEL --states --out FOLDER"
            )

    def states(self, item_ids: Sequence[str]) -> StateRows:
        """The states of the items' tokens, cut to `max_tokens`, and of two more, [CLS] and [SEP].

        Raises:
            ValueError: for an id that is not in the store, naming it.
        """
        place, starts, lengths = self._spans(item_ids)
        lengths = np.minimum(lengths, self.max_tokens) + 2
        index = ranges(starts + 2 * place, lengths)
        flat = (index[:, None] * self._width + np.arange(self._width)).ravel()
        return StateRows(self._states[0].take(flat).reshape(-1, self._width), lengths)

    def rows(self, item_ids: Sequence[str]) -> Ragged:
        """Token ids of the items, one row each; of cut items `max_tokens` + 1, so that a limit counts them.

        Raises:
            ValueError: for an id that is not in the store, naming it.
        """
        _, starts, lengths = self._spans(item_ids)
        return Ragged(self._tokens.take(ranges(starts, lengths)).astype(np.int64), lengths)

    def _spans(self, item_ids: Sequence[str]) -> tuple[Ints, Ints, Ints]:
        """The row, first token and number of tokens of each id; a ValueError that names one without."""
        place, found = self._find(item_ids)
        if not found.all():
            unknown = np.flatnonzero(~found)
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            raise ValueError(f"{self.folder} has no item {item_ids[unknown[0]]!r}{more}")
        starts = self._offsets.take(place)
        return place, starts, self._offsets.take(place + 1) - starts

    def encode(self, item_ids: Sequence[str], max_tokens: int) -> Encoded:
        """Token ids of the items cut to `max_tokens`, as `ShortTextTokenizer.encode` gives them for the texts.

        Raises:
            ValueError: for an id that is not in the store, naming it; and see `check_limit`.
        """
        self.check_limit(max_tokens)
        return Encoded(*self.rows(item_ids).cut(max_tokens))

    def _find(self, item_ids: Sequence[str]) -> tuple[Ints, NDArray[np.bool_]]:
        """The row of each id, and whether it is in the store."""
        hashes = _hashes(item_ids)
        place = np.minimum(np.searchsorted(self._hashes.values, hashes), len(self) - 1)
        return place, self._hashes.take(place) == hashes


class _Array:
    """A memory-mapped array whose pages are checked when `take` first reads them.

    Args:
        path: of the file.
        dtype, count: of its values.
        checksums: of its pages, and of more behind them.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], count: int, checksums: NDArray[np.uint32]) -> None:
        if not path.exists():
            raise ValueError(f"{path}: the file is missing")
        expected = count * dtype.itemsize
        if path.stat().st_size != expected:
            raise ValueError(f"{path}: {path.stat().st_size} bytes, {_DESCRIPTION} says {expected}")
        # a plain array over the map: a memmap's own slicing costs more than what it reads here
        self.values: NDArray[Any] = np.asarray(np.memmap(path, dtype=dtype, mode="r"))
        self.pages = -(-expected // _PAGE)
        self._path, self._checksums = path, checksums
        self._unread = np.ones(self.pages, dtype=bool)

    def take(self, index: Ints) -> NDArray[Any]:
        """The values at `index`; a ValueError that names the file if their page is not as it was written."""
        page = index * self.values.itemsize // _PAGE
        for number in np.unique(page[self._unread[page]]).tolist():
            stored: Any = self.values.view(np.uint8)[number * _PAGE : (number + 1) * _PAGE]
            if zlib.crc32(stored) != self._checksums[number]:
                raise ValueError(
                    f"{self._path} is damaged between bytes {number * _PAGE} and {(number + 1) * _PAGE}"
                )
            self._unread[number] = False
        return self.values[index]


def tokenizer_fingerprint(tokenizer: ShortTextTokenizer) -> str:
    """SHA-256 of all that decides the token ids of a text: normalisation, splitting, model and added tokens."""
    whole = json.loads(tokenizer.hf.backend_tokenizer.to_str())
    parts = {name: whole.get(name) for name in ("normalizer", "pre_tokenizer", "model", "added_tokens")}
    if tokenizer.hf.split_special_tokens:  # stores of earlier versions may hold the special tokens of texts
        parts["special_tokens"] = "text"
    return content_sha256(json.dumps(parts, sort_keys=True))


def _write(
    items: Iterable[tuple[str, str]],
    folder: Path,
    tokenizer: ShortTextTokenizer,
    max_tokens: int,
    states: ItemStates | None,
) -> None:
    """Writes the files of a store; scratch files go beside the folder."""
    import duckdb
    import pyarrow as pa

    dtype = "<u2" if max(tokenizer.hf.get_vocab().values()) < 1 << 16 else "<u4"
    each = np.dtype(dtype).itemsize
    rest, before, offset, count, truncated = iter(items), 0, 0, 0, 0
    limits: dict[str, Any] = {"memory_limit": "1GB", "threads": 2, "preserve_insertion_order": False}
    with duckdb.connect(f"{folder.parent}/items.duckdb", config=limits) as table:
        table.execute("CREATE TABLE items (hash UBIGINT, id BLOB, tokens BLOB)")
        while block := list(islice(rest, _BLOCK)):
            _check(block, before)
            before += len(block)
            rows, _ = _encode(tokenizer, block).cut(max_tokens + 1)
            flat = rows.values.astype(dtype).tobytes()
            ends = (each * np.cumsum(rows.lengths)).tolist()
            tokens = [flat[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
            ids = [item_id for item_id, _ in block]
            columns = {"hash": _hashes(ids), "id": [item_id.encode() for item_id in ids], "tokens": tokens}
            table.register("held", pa.table(columns))
            table.execute("INSERT INTO items SELECT * FROM held")
        found = table.execute("SELECT * FROM items ORDER BY hash")
        last: tuple[int, bytes, bytes] = (-1, b"", b"")
        with (
            (folder / _FILES[0]).open("wb") as hashes,
            (folder / _FILES[1]).open("wb") as offsets,
            (folder / _FILES[2]).open("wb") as values,
            (folder / _FILES[3]).open("wb") as of_items,
        ):
            offsets.write(np.zeros(1, dtype="<i8").tobytes())
            while sorted_rows := found.fetchmany(_BLOCK):
                kept = []
                for row in sorted_rows:
                    if row[0] != last[0]:
                        kept.append(row)
                    elif row != last:
                        raise _clash(last, row)
                    last = row
                hashes.write(np.array([row[0] for row in kept], dtype="<u8").tobytes())
                values.write(b"".join(row[2] for row in kept))
                lengths = np.array([len(row[2]) // each for row in kept], dtype=np.int64)
                offsets.write((offset + np.cumsum(lengths)).astype("<i8").tobytes())
                offset += int(lengths.sum())
                count += len(kept)
                if states is not None and kept:
                    rows = Ragged(
                        np.frombuffer(b"".join(row[2] for row in kept), dtype).astype(np.int64), lengths
                    )
                    of_items.write(_padded_states(states, rows, max_tokens).tobytes())
                truncated += int(np.count_nonzero(lengths > max_tokens))
    if not count:
        raise ValueError("there are no items to store")
    if states is None:
        (folder / _FILES[3]).unlink()
    about = {
        "format": _FORMAT,
        "tokenizer": tokenizer_fingerprint(tokenizer),
        "max_tokens": max_tokens,
        "dtype": dtype,
        "items": count,
        "truncated": truncated,
        "repeated": before - count,
        "tokens": offset,
        "model": "" if states is None else states.model,
        "width": 0 if states is None else states.width,
    }
    checksums = b"".join(_checksums(folder / name) for name in _FILES[: 3 + (states is not None)])
    (folder / "checksums.bin").write_bytes(checksums)
    text = json.dumps({**about, "sha256": _digest(about, checksums)}, indent=2)
    (folder / _DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def _padded_states(states: ItemStates, rows: Ragged, max_tokens: int) -> NDArray[np.float16]:
    """The states of items cut to `max_tokens`; with a row of 0 for the token more that the store keeps of a cut one."""
    own, _ = rows.cut(max_tokens)
    whole = Ragged(np.arange(int(rows.lengths.sum()) + 2 * len(rows.lengths)), rows.lengths + 2)
    out = np.zeros((len(whole.values), states.width), dtype="<f2")
    out[whole.position_of < own.lengths[whole.row_of] + 2] = states.of(own)
    return out


def _checksums(path: Path) -> bytes:
    """The CRC-32 of every page of a file."""
    with path.open("rb") as file:
        sums = [zlib.crc32(page) for page in iter(lambda: file.read(_PAGE), b"")]
    return np.array(sums, dtype="<u4").tobytes()


def _digest(about: dict[str, Any], checksums: bytes) -> str:
    """SHA-256 of the description and the checksums."""
    return content_sha256(json.dumps([about, checksums.hex()], sort_keys=True))


def _encode(tokenizer: ShortTextTokenizer, block: Sequence[tuple[str, str]]) -> Ragged:
    """Token ids of the texts; the id of an item whose text has none is named."""
    try:
        return tokenizer.encode([text for _, text in block], _UNCUT).tokens
    except ValueError:
        for name, text in block:
            try:
                tokenizer.encode([text], _UNCUT)
            except ValueError as error:
                raise ValueError(f"item {name!r}: {error}") from None
        raise


def _clash(one: tuple[int, bytes, bytes], other: tuple[int, bytes, bytes]) -> ValueError:
    """What is wrong with two different items of one hash."""
    first, second = one[1].decode(), other[1].decode()
    if first == second:
        return ValueError(f"item {first!r} comes with two different texts")
    first, second = sorted((first, second))
    return ValueError(
        f"the ids {first!r} and {second!r} have the same 64-bit hash and cannot be in one store; rename one of them"
    )


def _check(block: Sequence[tuple[str, str]], before: int) -> None:
    """Raises a ValueError that names an item without an id or a text."""
    for i, pair in enumerate(block):
        for field, value in zip(("id", "text"), pair, strict=True):
            if not isinstance(value, str) or not value.strip():
                raise ValueError(
                    f"item {before + i + 1}, {field}: expected a non-empty string, got {value!r}"
                )


def _hashes(item_ids: Sequence[str]) -> NDArray[np.uint64]:
    """The `text_key` of each id, uint64 [ids]."""
    strange = next((i for i, name in enumerate(item_ids) if not isinstance(name, str)), None)
    if strange is not None:
        raise ValueError(f"item_ids, position {strange}: expected a string, got {item_ids[strange]!r}")
    return text_keys(item_ids).view(np.uint64)


def _read_description(path: Path) -> tuple[dict[str, Any], NDArray[np.uint32]]:
    """The content of `store.json`, and the checksums."""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError(f"{path}: not the description of a token store of this version; build it again")
    checksums = path.with_name("checksums.bin")
    if not checksums.exists():
        raise ValueError(f"{checksums}: the file is missing")
    if about.pop("sha256", None) != _digest(about, checksums.read_bytes()):
        raise ValueError(
            f"{path} or {checksums.name} is damaged: they do not have the SHA-256 in {path.name}"
        )
    return about, np.fromfile(checksums, dtype="<u4")
