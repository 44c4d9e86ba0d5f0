"""Downloads from a server on the loopback: agreed to, resumed, checked, and prepared from nothing."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import ir_datasets
import pytest

from crossjem_pl.cli import main
from crossjem_pl.data.formats import read_lists
from crossjem_pl.prepare.download import Remote, fetch, hub_dataset
from tests.prepare.file_server import Server, dataset_files, serving
from tests.prepare.tiny_collection import register

NAME = "mteb/stackoverflowdupquestions-reranking"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_appears_whole_after_an_interruption(server: Server, tmp_path: Path, ranges: bool) -> None:
    content = bytes(range(256)) * 40
    server.files["/a"], server.ranges, server.cut = content, ranges, 3000
    digest = f"md5:{hashlib.md5(content).hexdigest()}"
    file = Remote(f"{server.url}/a", tmp_path / "new" / "a.gz", len(content), digest)
    with pytest.raises(ValueError, match=r"/a: cannot be downloaded .*put the file at .*a\.gz yourself"):
        fetch([file], "free", yes=True)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.gz.part"]
    server.cut = 0
    fetch([file], "free", yes=True)
    assert file.path.read_bytes() == content
    assert server.asked == [("/a", None), ("/a", "bytes=3000-")]
    fetch([file], "free", yes=True)
    assert len(server.asked) == 2, "what is there is not asked for"


def test_what_is_not_the_expected_file_is_removed(server: Server, tmp_path: Path) -> None:
    server.files["/a"] = b"other"
    blob = hashlib.sha1(b"blob 5\0other").hexdigest()
    for size, digest in ((4, ""), (5, "sha256:00"), (0, "git:00")):
        with pytest.raises(ValueError, match=r"/a: got 5 bytes .* what was downloaded is removed"):
            fetch([Remote(f"{server.url}/a", tmp_path / "a", size, digest)], "free", yes=True)
        assert not list(tmp_path.iterdir())
    fetch([Remote(f"{server.url}/a", tmp_path / "a", 5, f"git:{blob}")], "free", yes=True)
    assert (tmp_path / "a").read_bytes() == b"other"


def test_a_part_that_has_all_bytes_or_more_is_begun_again(server: Server, tmp_path: Path) -> None:
    server.files["/a"] = b"whole"
    (tmp_path / "a.part").write_bytes(b"whole and more")
    fetch([Remote(f"{server.url}/a", tmp_path / "a")], "free", yes=True)
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_an_answer_that_is_no_http_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/a"
        with pytest.raises(ValueError, match="/a: cannot be downloaded"):
            fetch([Remote(url, tmp_path / "a")], "free", yes=True)
        thread.join()


def test_a_private_dataset_whose_files_are_on_another_host(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = dataset_files(NAME, {"a b/train.jsonl.gz": [1]})
    path = next(path for path in answers if path.endswith("gz"))
    server.files = {**answers, "/moved": answers[path]}
    server.moved = {path.replace(" ", "%20"): f"{server.url.replace('127.0.0.1', 'localhost')}/moved"}
    server.token = "secret"
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "secret")
    hub_dataset(NAME, tmp_path, [".jsonl.gz"], yes=True)
    assert (tmp_path / "a b" / "train.jsonl.gz").read_bytes() == answers[path]
    with pytest.raises(ValueError, match=f"holds the files of {NAME}, not of another/one"):
        hub_dataset("another/one", tmp_path, [".jsonl.gz"], yes=True)


def test_nothing_is_downloaded_unasked(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/a"] = b"x"
    file = Remote(f"{server.url}/a", tmp_path / "a", 1)
    with pytest.raises(ValueError, match="nothing was downloaded; say --yes"):
        fetch([file], "for research only", yes=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    for answer, there in (("n", False), ("y", True)):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        if there:
            fetch([file], "for research only", yes=False)
        else:
            with pytest.raises(ValueError, match="nothing was downloaded"):
                fetch([file], "for research only", yes=False)
        assert file.path.exists() is there
    assert f"{file.url} (0.0 MB) -> {file.path}\nfor research only" in capsys.readouterr().out


def test_sodq_from_nothing(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"query": f"q {i}", "positive": [f"p {i}"], "negative": [f"n {i}", "m"]} for i in range(200)]
    answers = dataset_files(NAME, {"train.jsonl.gz": rows, "test.jsonl.gz": rows[:7]})
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    command = ["prepare", "sodq", "--mteb", NAME, "--out", str(tmp_path / "sodq")]
    assert main(command) == 2
    assert f"Download its files from https://huggingface.co/datasets/{NAME}" in capsys.readouterr().err
    server.files = dict(answers)
    assert main(command) == 2
    assert "say --yes" in capsys.readouterr().err
    assert main([*command, "--yes"]) == 0
    out = capsys.readouterr().out
    assert "licence: cc-by-sa-4.0" in out
    sizes = {
        part: len(list(read_lists(tmp_path / "sodq" / f"{part}.parquet")))
        for part in ("train", "dev", "test")
    }
    assert sizes["test"] == 7
    assert sizes["train"] + sizes["dev"] == 200
    assert 0 < sizes["dev"] < 30, "dev is taken from train, never from test"
    assert f"make train-sodq DATA={tmp_path / 'sodq'}" in out
    assert re.search(r"crossjem fit -c sodq .*--data.root", out)
    server.files.clear()
    assert main(command) == 0, "complete without a connection"

    leading_out = {"sha": "abc", "siblings": [{"rfilename": "../x.jsonl", "size": 1, "blobId": "0"}]}
    server.files[f"/api/datasets/{NAME}?blobs=true"] = json.dumps(leading_out).encode()
    assert main([*command[:-1], str(tmp_path / "other"), "--yes"]) == 2


def test_msmarco_from_nothing(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection whose files are where ir_datasets would put them once they are downloaded."""
    name, home = "tiny-documents-download", tmp_path / "home"
    part = {
        "queries": "q1\tred shoes\n",
        "qrels": "q1 0 D2 1\n",
        "scoreddocs": "q1 Q0 D1 1 -1 x\nq1 Q0 D2 2 -2 x\n",
    }
    register(home / name, name, parts={"train": part, "dev": part})
    entries = {}
    for file in sorted((home / name).rglob("*.gz")):
        inner, content = str(file.relative_to(home / name)), file.read_bytes()
        server.files[f"/{inner}"] = content
        key = "docs" if inner.startswith("docs") else inner.removesuffix(".gz")
        entries[key] = {"url": f"{server.url}/{inner}", "size_hint": str(len(content)), "cache_path": inner,
                        "expected_md5": hashlib.md5(content).hexdigest()}  # fmt: skip
        file.unlink()
    monkeypatch.setitem(ir_datasets.util.DownloadConfig.contents(), name, entries)
    monkeypatch.setenv("IR_DATASETS_HOME", str(home))
    command = [
        "prepare",
        "msmarco-titles",
        "--dataset",
        name,
        "--parts",
        "train",
        "dev",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(command) == 2
    assert "nothing was downloaded" in capsys.readouterr().err
    assert main([*command, "--yes"]) == 0
    assert len(server.asked) == len(entries) == 7
    assert "MS MARCO is for non-commercial research" in capsys.readouterr().out
    (train,) = read_lists(tmp_path / "out" / "train.parquet")
    assert (train.item_ids, train.labels) == (("D1", "D2"), (0, 1))
