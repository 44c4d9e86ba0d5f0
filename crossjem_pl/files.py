"""Files in and out: gzip, UTF-8 lines with their numbers, and files that appear whole or not at all."""

from __future__ import annotations

import codecs
import gzip
import os
import platform
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from glob import escape
from pathlib import Path
from typing import IO, BinaryIO

__all__ = [
    "ending",
    "existing",
    "read_lines",
    "remove_leftovers",
    "replacing",
    "replacing_path",
    "scratch_folder",
]

LONGEST_LINE = 1 << 28
_GZIP_MAGIC = b"\x1f\x8b"


def ending(path: Path) -> str:
    """The lower-case ending that tells the kind of a file: ".jsonl", ".jsonl.gz", ".parquet", ... or ""."""
    parts = [part.lower() for part in path.suffixes]
    return "".join(parts[-2:]) if parts[-1:] == [".gz"] else "".join(parts[-1:])


def existing(path: str | os.PathLike[str], what: str = "file") -> Path:
    """`path` as a Path; a FileNotFoundError that names it if there is nothing."""
    found = Path(path)
    if not found.exists():
        raise FileNotFoundError(f"{what} not found: {found}")
    return found


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed bytes of `path`; gzip is recognised by its first two bytes."""
    existing(path)
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "a pipe or device, which cannot be read twice"
        raise ValueError(f"{path}: expected a file, got {kind}")
    with path.open("rb") as raw:
        magic = raw.read(2)
        raw.seek(0)
        if magic == _GZIP_MAGIC:
            with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
                yield unpacked  # type: ignore[misc]  # a GzipFile is no IO[bytes] to typeshed
        elif magic and path.suffix.lower() == ".gz":
            raise ValueError(f"{path}: not gzip data, although the name ends in .gz")
        else:
            yield raw


def read_lines(path: Path, blank: bool = False) -> Iterator[tuple[int, str]]:
    """(1-based line number, text without its line end) of a UTF-8 file, plain or gzip.

    Lines end in LF or CRLF and nothing else, so that U+2028 or a lone CR inside a text ends no line. A byte order mark
    at the start is dropped.

    Args:
        path: the file.
        blank: whether blank lines are given too; they are counted in any case.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names file and line, for bytes that are not UTF-8, gzip data that is cut off or damaged, or a line
            of more than 256 MiB.
    """
    number = 0
    with _open(path) as stream:
        try:
            for number, raw in enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 1):
                if len(raw) == LONGEST_LINE:  # a small gzip file can hold it
                    raise ValueError(f"{path}, line {number}: longer than {LONGEST_LINE >> 20} MiB")
                if number == 1:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                raw = raw.removesuffix(b"\n").removesuffix(b"\r")
                if blank or raw.strip():
                    try:
                        text = raw.decode("utf-8")
                    except UnicodeDecodeError as error:
                        raise ValueError(f"{path}, line {number}: not UTF-8 ({error})") from None
                    yield number, text
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: gzip data cut off or damaged after line {number} ({error})") from None


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary stream that becomes `path` when the block ends without an error, and leaves nothing otherwise.

    With a name that ends in .gz the bytes are compressed; equal content gives equal bytes (no time stamp, no name
    inside).

    Raises:
        ValueError: `path` is a folder.
    """
    with replacing_path(path) as temporary, temporary.open("xb") as raw:
        if path.suffix.lower() == ".gz":
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                yield packed  # type: ignore[misc]  # a GzipFile is no BinaryIO to typeshed
        else:
            yield raw


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """A hidden temporary name beside `path`, for writers that open files themselves (SQLite, ONNX).

    The folder is made if it is missing. When the block ends without an error, the file of the temporary name is
    flushed to the disk and renamed to `path`; otherwise it is removed. What a process of this machine that was killed
    left there is removed at the start.
    """
    if path.is_dir():
        raise ValueError(f"{path}: expected the name of a file to write, got a folder")
    temporary = _temporary(path)
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # of a write to an open file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A hidden folder beside `path`, for what is needed until the block ends; see `replacing_path`."""
    folder = _temporary(path)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """A hidden name beside `path`, whose folder is made; dead processes' files of such a name are removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{os.urandom(4).hex()}.tmp")


def remove_leftovers(path: Path) -> None:
    """Removes what processes of this machine that are dead have left beside `path` while they wrote it."""
    for left in path.parent.glob(f".{escape(path.name)}.{_machine()}-*-*.tmp"):
        if not _lives(int(left.name.split("-")[-2])):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _machine() -> str:
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # somebody else's
    return True
