"""Files in and out, here or behind a URL: gzip, UTF-8 lines with numbers, files that appear whole or not at all."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import platform
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO

from crossjem_pl.hashing import check_regular

__all__ = [
    "RemotePath",
    "as_path",
    "ending",
    "existing",
    "read_lines",
    "read_yaml",
    "remove_leftovers",
    "replacing",
    "replacing_folder",
    "replacing_path",
    "scratch_folder",
    "write_json",
]

LONGEST_LINE = 1 << 28
_GZIP_MAGIC = b"\x1f\x8b"


class RemotePath(type(Path())):  # type: ignore[misc]  # PosixPath here
    """A file or folder behind a URL that `pyarrow.fs` understands (s3://bucket/key, gs://, hdfs://host:8020/path, file://).

    It has those methods of `Path` with which lists and scores are read and written. An object store has no rename:
    `replace` copies there, on the server, and deletes; the copy appears whole or not at all.
    """

    _entry: Any = None  # what a listing of the folder said

    def __str__(self) -> str:
        scheme, *rest = self.parts
        return f"{scheme}//{'/' * (scheme == 'file:')}{'/'.join(rest)}"

    __fspath__ = __str__

    @property
    def filesystem(self) -> Any:
        """The pyarrow file system that holds it."""
        return _filesystem(*self.parts[:2])[0]

    @property
    def key(self) -> str:
        """Its name inside of that."""
        root, rest = _filesystem(*self.parts[:2])[1], self.parts[1 if self.parts[0] == "file:" else 2 :]
        return "/".join([root.rstrip("/"), *rest])

    def _info(self) -> Any:
        return self.filesystem.get_file_info(self.key) if self._entry is None else self._entry

    def exists(self, **_: Any) -> bool:
        return self._info().type.name != "NotFound"

    def is_dir(self, **_: Any) -> bool:
        return self._info().type.name == "Directory"

    def is_file(self, **_: Any) -> bool:
        return self._info().type.name == "File"

    def stat(self, **_: Any) -> os.stat_result:
        """Its size is all that it tells."""
        info = self._info()
        if info.type.name == "NotFound":
            raise FileNotFoundError(f"file not found: {self}")
        return os.stat_result((0, 0, 0, 0, 0, 0, info.size or 0, 0, 0, 0))

    def iterdir(self) -> Iterator[RemotePath]:
        from pyarrow.fs import FileSelector

        for info in self.filesystem.get_file_info(FileSelector(self.key)):
            path = self / info.base_name
            path._entry = info
            yield path

    def glob(self, pattern: str, **_: Any) -> Iterator[RemotePath]:
        """Those in the folder whose names are of the pattern."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:
        """Only "rb", and "xb" to write (what is there is replaced)."""
        if mode == "xb":
            return self.filesystem.open_output_stream(self.key, compression=None)
        if mode != "rb":
            raise ValueError(f"{self}: cannot be opened with mode {mode!r}")
        return io.BufferedReader(self.filesystem.open_input_file(self.key))

    def samefile(self, other: Any) -> bool:
        return self == other

    def read_text(self, encoding: str | None = None, errors: str | None = None, **_: Any) -> str:
        with self.open("rb") as file:
            return file.read().decode(encoding or "utf-8", errors or "strict")

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Made with its parents, if it is not there."""
        if not self.is_dir():
            self.filesystem.create_dir(self.key, recursive=True)

    def replace(self, target: Any) -> Any:
        self.filesystem.move(self.key, target.key)
        return target

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok or self.exists():
            self.filesystem.delete_file(self.key)


@lru_cache
def _filesystem(scheme: str, first: str = "") -> tuple[Any, str]:
    """The file system of URLs with this scheme and this first part, and where they begin in it."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        return FileSystem.from_uri(f"{scheme}//{'/' if scheme == 'file:' else first}")
    except (pa.ArrowException, ImportError, OSError) as error:
        raise ValueError(f"{scheme}//{first}: cannot be opened ({error})") from None


def as_path(path: str | os.PathLike[str]) -> Path:
    """The path; a `RemotePath` for a URL, also where a `Path` has made one slash of its two."""
    if isinstance(path, RemotePath):
        return path
    found = Path(path)
    return (
        RemotePath(*found.parts)
        if re.fullmatch(r"[a-z][a-z0-9+.-]+:", found.parts[0] if found.parts else "")
        else found
    )


def ending(path: Path) -> str:
    """The lower-case ending that tells the kind of a file: ".jsonl", ".jsonl.gz", ".parquet", ... or ""."""
    parts = [part.lower() for part in path.suffixes]
    return "".join(parts[-2:]) if parts[-1:] == [".gz"] else "".join(parts[-1:])


def existing(path: str | os.PathLike[str], what: str = "file") -> Path:
    """`path` as a Path; an error that names it if there is nothing, or a pipe or device."""
    found = as_path(path)
    if not found.exists():
        raise FileNotFoundError(f"{what} not found: {found}")
    check_regular(found)
    return found


def read_lines(path: Path, blank: bool = False) -> Iterator[tuple[int, str]]:
    """(1-based line number, text without its line end) of a UTF-8 file, plain or gzip (by its first two bytes).

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
    path, number = existing(path), 0
    if path.is_dir():
        raise ValueError(f"{path}: expected a file, got a folder")
    with path.open("rb") as packed:
        magic = packed.read(2)
        packed.seek(0)
        if magic not in (b"", _GZIP_MAGIC) and path.suffix.lower() == ".gz":
            raise ValueError(f"{path}: not gzip data, although the name ends in .gz")
        stream = gzip.GzipFile(fileobj=packed) if magic == _GZIP_MAGIC else packed
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
                        raise ValueError(
                            f"{path}, line {number}: not UTF-8: save the file as UTF-8 ({error})"
                        ) from None
                    yield number, text
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: gzip data cut off or damaged after line {number} ({error})") from None


def read_yaml(path: Path) -> Any:
    """What a YAML file holds.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: names the file, and the line if there is one, if it is not YAML in UTF-8.
    """
    import yaml

    try:
        return yaml.safe_load(existing(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)  # where it stops to be YAML, not where that part begins
        where = path if mark is None else f"{path}, line {mark.line + 1}"
        reason = " ".join(str(getattr(error, "problem", None) or error).split())[:80]
        raise ValueError(f"{where}: not YAML in UTF-8 ({reason})") from None


def write_json(path: Path, content: object, allow_nan: bool = True) -> None:
    """Writes JSON, whole or not at all.

    Raises:
        ValueError: for a number that is not finite, unless `allow_nan`.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=allow_nan)
    with replacing(path) as file:
        file.write(f"{text}\n".encode())


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
    flushed to the disk, gets the permissions of any new file (the umask's) and is renamed to `path`; otherwise it is
    removed. What a process of this machine that was killed left there is removed at the start, but not from behind a
    URL.
    """
    if path.is_dir():
        raise ValueError(f"{path}: expected the name of a file to write, got a folder")
    temporary = _temporary(path)
    try:
        local = not isinstance(path, RemotePath)
        if local:
            temporary.touch()
            mode = temporary.stat().st_mode & 0o777
            temporary.unlink()
        yield temporary
        if local:
            with temporary.open("rb+") as written:
                os.fchmod(written.fileno(), mode)  # safetensors makes its files for their owner alone
                os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # of a write to an open file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A hidden folder that becomes `path`, in place of what is there, when the block ends without an error.

    A process killed between the two renames leaves no `path`, never a mixture.
    """
    target = path.resolve()
    with scratch_folder(target) as folder:
        done = folder / "new"
        done.mkdir()
        try:
            yield done
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = str(path)
            raise
        if target.exists():
            target.rename(folder / "former")
        done.rename(target)


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
    if not isinstance(path, RemotePath):  # listing a folder of objects costs seconds
        remove_leftovers(path)
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{os.urandom(4).hex()}.tmp")


def remove_leftovers(path: Path) -> None:
    """Removes what processes of this machine that are dead have left beside `path` while they wrote it."""
    for left in path.parent.glob(f".{escape(path.name)}.{_machine()}-*-*.tmp"):
        if not _lives(int(left.name.split("-")[-2])):
            # another process may be removing it too
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _machine() -> str:
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # somebody else's
    return True
