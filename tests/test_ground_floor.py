"""Hashes that never change, files that appear whole or not at all, progress without a terminal."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from crossjem_pl.files import replacing, replacing_folder, replacing_path
from crossjem_pl.hashing import content_sha256, file_sha256, fraction, text_key, text_keys
from crossjem_pl.progress import track


def test_hashes_are_the_same_in_every_process_and_version(tmp_path: Path) -> None:
    assert text_key("red shoe") == -1767456910644295980  # b2sum -l 64, little-endian
    assert text_keys(["red shoe", "日本"]).dtype == np.int64
    assert text_keys(iter(["red shoe"])).tolist() == [text_key("red shoe")]
    assert text_keys([]).shape == (0,)
    assert 0 <= fraction("red shoe", "dev") < 1
    assert fraction("red shoe", "dev") != fraction("red shoe", "test")
    (tmp_path / "a").write_bytes(b"red shoe")
    digest = content_sha256("red shoe")
    assert digest == content_sha256(["red", b" shoe"]) == file_sha256(tmp_path / "a")


def test_without_a_terminal_a_line_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 25))
    monkeypatch.setattr("crossjem_pl.progress.time.monotonic", lambda: next(clock))
    assert list(track([1, 2, 3, 4, 5, 6, 7], "rows")) == [1, 2, 3, 4, 5, 6, 7]
    assert capsys.readouterr().err.splitlines() == [
        "rows: 2 of 7, 0:03:08 left",
        "rows: 5 of 7, 0:01:00 left",
    ]
    assert list(track(iter([1, 2]), "rows", seconds=0)) == [1, 2]
    assert capsys.readouterr().err.splitlines() == ["rows: 1"]


def test_a_file_is_replaced_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.bin"
    with replacing(path) as stream:
        stream.write(b"first")
        assert not path.exists()

    def broken(with_path: bool) -> None:
        if with_path:
            with replacing_path(path) as temporary:
                temporary.write_bytes(b"second")
                raise KeyboardInterrupt
        with replacing(path) as stream:
            stream.write(b"second")
            raise KeyboardInterrupt

    for with_path in (True, False):
        with pytest.raises(KeyboardInterrupt):
            broken(with_path)
    assert path.read_bytes() == b"first"
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(ValueError, match="got a folder"), replacing(tmp_path):
        pass


def test_a_folder_is_replaced_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a"
    for content in ("first", "second"):
        with replacing_folder(path) as folder:
            (folder / content).write_text(content)

    def broken() -> None:
        with replacing_folder(path) as folder:
            (folder / "third").write_text("third")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        broken()
    assert [file.name for file in path.parent.rglob("*")] == ["a", "second"]


def test_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replacing_path(tmp_path / "a") as temporary:
            temporary.touch(0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"former")

    def write() -> None:
        with replacing(path) as stream:
            stream.write(bytes(2000))
            stream.flush()

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=f"File too large: '{path}'"):
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(file, file.read_bytes()) for file in tmp_path.iterdir()] == [(path, b"former")]
