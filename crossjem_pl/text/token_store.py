"""Token ids of items on disk, by item id: computed once, memory-mapped, read without a tokenizer."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossjem_pl.hashing import content_sha256, text_keys
from crossjem_pl.text.ragged import Ints, Ragged
from crossjem_pl.text.tokens import Encoded, ShortTextTokenizer

__all__ = ["TokenStore", "tokenizer_fingerprint"]

_FORMAT = 2
"""1, of version 0.1, had other hashes."""
_DESCRIPTION = "store.json"
_BLOCK = 8192
_BUCKETS = 256
_UNCUT = 2**62
_RECORD = np.dtype(
    [("hash", "<u8"), ("start", "<i8"), ("length", "<i8"), ("id_start", "<i8"), ("id_length", "<i8")]
)

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class _Description:
    """The content of `store.json`.

    Args:
        tokenizer: fingerprint of the tokenizer.
        max_tokens: see `TokenStore.build`.
        items: how many.
        truncated: how many of them have more than `max_tokens` tokens.
        repeated: how often an id came again with the same tokens while the store was built.
        tokens: values in `tokens.bin`.
        dtype: their type, "<u2" or "<u4".
        format: of this folder.
    """

    tokenizer: str
    max_tokens: int
    items: int
    truncated: int
    repeated: int
    tokens: int
    dtype: str
    format: int = _FORMAT


class TokenStore:
    """A folder of token ids by item id.

    An item is found by a 64-bit hash of its id in a sorted table; two ids of the same hash cannot be in one
    store (`build` says so). An id that is not in the store is taken for one that is with probability
    items / 2^64. Nothing is loaded but the pages that are read, which processes share.

    Files: `hashes.bin` uint64 [items], ascending; `offsets.bin` int64 [items + 1]; `tokens.bin` uint16 or
    uint32; `store.json`. All little-endian.
    """

    def __init__(self, folder: Path, description: _Description) -> None:
        self.folder = folder
        self._description = description
        self._hashes = self._map("hashes.bin", "<u8", description.items)
        self._offsets = self._map("offsets.bin", "<i8", description.items + 1)
        self._tokens = self._map("tokens.bin", description.dtype, description.tokens)

    def __len__(self) -> int:
        return self._description.items

    def __contains__(self, item_id: str) -> bool:
        return bool(self._find([item_id])[1][0])

    def __reduce__(self) -> tuple[Callable[..., TokenStore], tuple[Path]]:
        return TokenStore.open, (self.folder,)

    @property
    def max_tokens(self) -> int:
        """How many tokens of an item are kept."""
        return self._description.max_tokens

    @property
    def truncated(self) -> int:
        """How many items have more than `max_tokens` tokens."""
        return self._description.truncated

    @property
    def repeated(self) -> int:
        """How often an id came again, with the same tokens, while the store was built."""
        return self._description.repeated

    @classmethod
    def build(
        cls,
        folder: str | Path,
        items: Iterable[tuple[str, str]],
        tokenizer: ShortTextTokenizer,
        max_tokens: int = 256,
    ) -> TokenStore:
        """Writes a store; the folder appears when it is complete.

        Items are read once, in blocks, and sorted in buckets on disk: memory grows by about 1 byte an item.
        The scratch files, deleted at the end, take as much space as ids and tokens.

        Args:
            folder: must not exist, or be empty.
            items: (id, text). An id may come again if its tokens are the same; the repeats are counted.
            tokenizer: what makes the tokens; its cache stays as it is.
            max_tokens: longer items keep so many, and are counted. Rankers cut further by themselves, so it
                should be the largest `max_item_tokens` that the store will serve.

        Raises:
            ValueError: if there are no items, the folder holds something, an id or text is blank or no text,
                a text has no tokens, an id comes with two texts, or two ids have the same hash; names the
                item.
        """
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} exists already; give another folder, or remove it")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
            done = Path(scratch) / "store"
            done.mkdir()
            _Builder(Path(scratch), tokenizer, max_tokens).write(items, done)
            done.replace(folder)
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
        return cls(folder, _read_description(path))

    def check_tokenizer(self, tokenizer: ShortTextTokenizer) -> None:
        """Raises a ValueError if the store was built with another tokenizer."""
        if tokenizer_fingerprint(tokenizer) != self._description.tokenizer:
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

    def rows(self, item_ids: Sequence[str]) -> Ragged:
        """Token ids of the items, one row each; of cut items `max_tokens` + 1, so that a limit counts them.

        Raises:
            ValueError: for an id that is not in the store, naming it.
        """
        place, found = self._find(item_ids)
        if not found.all():
            unknown = np.flatnonzero(~found)
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            raise ValueError(f"{self.folder} has no item {item_ids[unknown[0]]!r}{more}")
        starts = self._offsets[place]
        lengths = self._offsets[place + 1] - starts
        skip = starts - (np.cumsum(lengths) - lengths)
        index = np.arange(int(lengths.sum())) + np.repeat(skip, lengths)
        return Ragged(self._tokens[index].astype(np.int64), lengths)

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
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self) - 1)
        return place, self._hashes[place] == hashes

    def _map(self, name: str, dtype: str, count: int) -> NDArray[Any]:
        path = self.folder / name
        if not path.exists():
            raise ValueError(f"{path}: the file is missing")
        expected = count * np.dtype(dtype).itemsize
        if path.stat().st_size != expected:
            raise ValueError(f"{path}: {path.stat().st_size} bytes, {_DESCRIPTION} says {expected}")
        # a plain array over the map: a memmap's own slicing costs more than what it reads here
        return np.asarray(np.memmap(path, dtype=dtype, mode="r"))


def tokenizer_fingerprint(tokenizer: ShortTextTokenizer) -> str:
    """SHA-256 of all that decides the token ids of a text: normalisation, splitting, model and added tokens."""
    whole = json.loads(tokenizer.hf.backend_tokenizer.to_str())
    parts = {name: whole.get(name) for name in ("normalizer", "pre_tokenizer", "model", "added_tokens")}
    if tokenizer.hf.split_special_tokens:  # stores of earlier versions may hold the special tokens of texts
        parts["special_tokens"] = "text"
    return content_sha256(json.dumps(parts, sort_keys=True))


class _Builder:
    """Writes the files of a store.

    The items' records go to one of `_BUCKETS` files each by the leading bits of their hash; sorted one after
    the other these give the whole table sorted.
    """

    def __init__(self, scratch: Path, tokenizer: ShortTextTokenizer, max_tokens: int) -> None:
        self.scratch, self.max_tokens = scratch, max_tokens
        self.tokenizer = ShortTextTokenizer(tokenizer.hf, cache_size=0)
        self.fingerprint = tokenizer_fingerprint(tokenizer)
        self.dtype = "<u2" if max(tokenizer.hf.get_vocab().values()) < 1 << 16 else "<u4"
        self.repeated = self.truncated = 0

    def write(self, items: Iterable[tuple[str, str]], folder: Path) -> None:
        (self.scratch / "buckets").mkdir()
        self._spool(items)
        count = total = 0
        with (
            (folder / "hashes.bin").open("wb") as hashes,
            (folder / "offsets.bin").open("wb") as offsets,
            (folder / "tokens.bin").open("wb") as tokens,
        ):
            offsets.write(np.zeros(1, dtype="<i8").tobytes())
            for records in self._sorted_buckets():
                hashes.write(records["hash"].tobytes())
                for values, lengths in self._rows(records):
                    tokens.write(values.tobytes())
                    offsets.write((total + np.cumsum(lengths)).astype("<i8").tobytes())
                    total += len(values)
                    self.truncated += int(np.count_nonzero(lengths > self.max_tokens))
                count += len(records)
        if not count:
            raise ValueError("there are no items to store")
        found = _Description(
            tokenizer=self.fingerprint,
            max_tokens=self.max_tokens,
            items=count,
            truncated=self.truncated,
            repeated=self.repeated,
            tokens=total,
            dtype=self.dtype,
        )
        text = json.dumps(asdict(found), indent=2)
        (folder / _DESCRIPTION).write_text(text + "\n", encoding="utf-8")

    def _spool(self, items: Iterable[tuple[str, str]]) -> None:
        """Tokenises the items: tokens and ids to one file each, records to their buckets."""
        rest, before, token_start, id_start = iter(items), 0, 0, 0
        with (self.scratch / "tokens").open("wb") as tokens, (self.scratch / "ids").open("wb") as ids:
            while block := list(islice(rest, _BLOCK)):
                self._check(block, before)
                before += len(block)
                rows, _ = self._encode(block).cut(self.max_tokens + 1)
                names = [name.encode() for name, _ in block]
                records = np.empty(len(block), dtype=_RECORD)
                records["hash"] = _hashes([name for name, _ in block])
                records["start"], records["length"] = token_start + rows.starts, rows.lengths
                sizes = np.fromiter(map(len, names), dtype=np.int64, count=len(names))
                records["id_start"], records["id_length"] = id_start + np.cumsum(sizes) - sizes, sizes
                tokens.write(rows.values.astype(self.dtype).tobytes())
                ids.write(b"".join(names))
                token_start += len(rows.values)
                id_start += int(sizes.sum())
                self._deal(records)

    def _deal(self, records: NDArray[Any]) -> None:
        """Appends each record to its bucket."""
        bucket = (records["hash"] // np.uint64(2**64 // _BUCKETS)).astype(np.int64)
        order = np.argsort(bucket, kind="stable")
        bounds = np.cumsum(np.bincount(bucket, minlength=_BUCKETS))[:-1]
        for number, part in enumerate(np.split(records[order], bounds)):
            if len(part):
                with (self.scratch / "buckets" / f"{number:03d}").open("ab") as file:
                    file.write(part.tobytes())

    def _encode(self, block: Sequence[tuple[str, str]]) -> Ragged:
        try:
            return self.tokenizer.encode([text for _, text in block], _UNCUT).tokens
        except ValueError:
            for name, text in block:
                try:
                    self.tokenizer.encode([text], _UNCUT)
                except ValueError as error:
                    raise ValueError(f"item {name!r}: {error}") from None
            raise

    def _sorted_buckets(self) -> Iterator[NDArray[Any]]:
        """The records by hash, each id once."""
        for path in sorted((self.scratch / "buckets").iterdir()):
            records = np.fromfile(path, dtype=_RECORD)
            records = records[np.argsort(records["hash"], kind="stable")]
            again = np.zeros(len(records), dtype=bool)
            again[1:] = records["hash"][1:] == records["hash"][:-1]
            for i in np.flatnonzero(again):
                self._check_repeat(records[i - 1], records[i])
            self.repeated += int(again.sum())
            yield records[~again]

    def _rows(self, records: NDArray[Any]) -> Iterator[tuple[NDArray[Any], Ints]]:
        """Tokens and lengths of the records, a block at a time."""
        tokens = np.memmap(self.scratch / "tokens", dtype=self.dtype, mode="r")
        for first in range(0, len(records), _BLOCK):
            part = records[first : first + _BLOCK]
            lengths = part["length"]
            skip = part["start"] - (np.cumsum(lengths) - lengths)
            yield tokens[np.arange(int(lengths.sum())) + np.repeat(skip, lengths)], lengths

    def _check_repeat(self, one: np.void, other: np.void) -> None:
        """Raises a ValueError unless two records of one hash are the same item."""
        with (self.scratch / "ids").open("rb") as file:
            first, second = (_read(file, r["id_start"], r["id_length"]).decode() for r in (one, other))
        if first != second:
            raise ValueError(
                f"the ids {first!r} and {second!r} have the same 64-bit hash and cannot be in one store; "
                "rename one of them"
            )
        size = np.dtype(self.dtype).itemsize
        with (self.scratch / "tokens").open("rb") as file:
            tokens = [_read(file, size * r["start"], size * r["length"]) for r in (one, other)]
        if tokens[0] != tokens[1]:
            raise ValueError(f"item {first!r} comes with two different texts")

    @staticmethod
    def _check(block: Sequence[tuple[str, str]], before: int) -> None:
        for i, pair in enumerate(block):
            for field, value in zip(("id", "text"), pair, strict=True):
                if not isinstance(value, str) or not value.strip():
                    raise ValueError(
                        f"item {before + i + 1}, {field}: expected a non-empty string, got {value!r}"
                    )


def _read(file: Any, start: np.int64, length: np.int64) -> bytes:
    file.seek(int(start))
    return file.read(int(length))


def _hashes(item_ids: Sequence[str]) -> Hashes:
    """The `text_key` of each id, uint64 [ids]."""
    strange = next((i for i, name in enumerate(item_ids) if not isinstance(name, str)), None)
    if strange is not None:
        raise ValueError(f"item_ids, position {strange}: expected a string, got {item_ids[strange]!r}")
    return text_keys(item_ids).view(np.uint64)


def _read_description(path: Path) -> _Description:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{path}: not the description of a token store of this version; build it again")
    kinds = {"tokenizer": str, "dtype": str}
    for field in fields(_Description):
        value = content.get(field.name)
        if type(value) is not kinds.get(field.name, int) or (
            field.name == "dtype" and value not in ("<u2", "<u4")
        ):
            raise ValueError(f"{path}, field {field.name!r}: {value!r} is not what belongs there")
    return _Description(**{field.name: content[field.name] for field in fields(_Description)})
