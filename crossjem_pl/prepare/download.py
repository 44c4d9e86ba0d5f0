"""Files from the network: shown with sizes and licence, asked for, resumed where they were cut off, and checked."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.progress import Progress

from crossjem_pl.files import ending, write_json

__all__ = ["Remote", "fetch", "hub_dataset"]

TIMEOUT = 30
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Remote:
    """A file on a server.

    Args:
        url: its address.
        path: where it is put.
        size: bytes, 0 if they are not known.
        digest: "md5:...", "sha256:..." or "git:..." (of a git blob) in hexadecimal digits; "" if it is not known.
        headers: of the request; a token in "Authorization" goes to no other host than that of `url`.
    """

    url: str
    path: Path
    size: int = 0
    digest: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        size = f"{self.size / 1e6:,.1f} MB" if self.size else "size not known"
        return f"{self.url} ({', '.join(filter(None, (size, self.digest.replace(':', ' '))))}) -> {self.path}"


def fetch(files: Sequence[Remote], licence: str, yes: bool) -> None:
    """Downloads the files that are not there, after their sizes and the licence were shown and agreed to.

    A file appears under its name when it is whole and its size and digest are right. What was cut off is in
    `NAME.part`, with which the next call goes on.

    Args:
        files: what is needed.
        licence: a sentence about the terms of use.
        yes: do not ask.

    Raises:
        ValueError: there is nobody to ask, or the answer was no; a file that cannot be downloaded or is not the
            expected one. Says what to put where.
    """
    missing = [file for file in files if not file.path.exists()]
    if not missing:
        return
    places = "\n".join(f"  {file}" for file in missing)
    known = sum(file.size for file in missing)
    print(f"to download, {known / 1e6:,.1f} MB:\n{places}\n{licence}", flush=True)
    if not yes and not (sys.stdin.isatty() and input("download? [y/N] ").strip().lower() in ("y", "yes")):
        raise ValueError(
            "nothing was downloaded; say --yes (make: YES=1), or put the files at their places yourself:\n"
            + places
        )
    for file in missing:
        try:
            _download(file)
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ValueError(
                f"{file.url}: cannot be downloaded ({reason}). The same command goes on where it stopped; on a machine "
                f"without a connection, put the file at {file.path} yourself"
            ) from None


def _download(file: Remote) -> None:
    """Fills `NAME.part`, checks it and gives it its name."""
    part = file.path.with_name(f"{file.path.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    done = part.stat().st_size if part.exists() else 0
    if not (file.size and done == file.size):
        resume = {"Range": f"bytes={done}-"} if done else {}
        try:
            opened = _open(file.url, {**file.headers, **resume})
        except urllib.error.HTTPError as error:
            if error.code != 416 or not done:
                raise
            part.unlink()  # it has all bytes already, or those of another file
            return _download(file)
        with opened as answer, Progress() as progress:
            if answer.status != 206:  # the server begins at the start
                done = 0
            total = file.size or done + int(answer.headers.get("Content-Length") or 0) or None
            bar = progress.add_task(file.path.name, total=total, completed=done)
            with part.open("ab" if done else "wb") as out:
                while chunk := answer.read(_CHUNK):
                    out.write(chunk)
                    progress.advance(bar, len(chunk))
                out.flush()
                os.fsync(out.fileno())
            length = answer.headers.get("Content-Length")
            if length is not None and part.stat().st_size != done + int(length):
                raise OSError(f"cut off after {part.stat().st_size} bytes")
    _check(file, part)
    part.replace(file.path)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Keeps the token from other hosts."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> Any:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and (request.type, request.host) != (req.type, req.host):
            request.remove_header("Authorization")
        return request


def _open(url: str, headers: Mapping[str, str]) -> Any:
    """The answer of the server, to read from and to close."""
    request = urllib.request.Request(url, headers=dict(headers))
    return urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT)


def _check(file: Remote, part: Path) -> None:
    """Removes a file that is not the expected one, with a ValueError that says in what it differs."""
    size, found = part.stat().st_size, ""
    if file.digest:
        kind = file.digest.partition(":")[0]
        begun = hashlib.sha1(f"blob {size}\0".encode()) if kind == "git" else hashlib.new(kind)
        with part.open("rb") as stream:
            found = f"{kind}:{hashlib.file_digest(stream, lambda: begun).hexdigest()}"
    if (file.size and size != file.size) or found != file.digest:
        part.unlink()
        raise ValueError(
            f"{file.url}: got {size} bytes ({found}), expected {file.size or 'any number of'} bytes ({file.digest}); "
            "what was downloaded is removed"
        )


def hub_dataset(name: str, folder: Path, endings: Sequence[str], yes: bool) -> Path:
    """The files of a dataset of the Hugging Face hub (or `HF_ENDPOINT`), downloaded into a folder where missing.

    The hub tells names, sizes, SHA-256 sums and the licence. The list is kept as `.files.json` in the folder, so that
    a complete folder needs no connection. `HF_TOKEN` is the token of a private dataset.

    Raises:
        ValueError: the hub cannot be reached or has no such dataset, or the folder is of another one; otherwise as
            `fetch`. Says what to put where.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    index = folder / ".files.json"
    try:
        if not index.exists():
            with _open(f"{endpoint}/api/datasets/{name}?blobs=true", headers) as answer:
                write_json(index, {**json.load(answer), "id": name})
        described: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
        of, revision, siblings = described["id"], described["sha"], described["siblings"]
        files = [
            Remote(
                f"{endpoint}/datasets/{name}/resolve/{revision}/{quote(entry['rfilename'])}",
                _inside(folder, entry["rfilename"]),
                int(entry.get("size") or 0),
                f"sha256:{entry['lfs']['sha256']}" if entry.get("lfs") else f"git:{entry['blobId']}",
                headers,
            )
            for entry in siblings
            if ending(Path(entry["rfilename"])) in endings
        ]
        licence = (described.get("cardData") or {}).get("license", "not stated")
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{name}: neither a folder nor a hub dataset that can be downloaded ({type(error).__name__}). Download its "
            f"files from https://huggingface.co/datasets/{name}/tree/main on a machine that reaches the hub, put them "
            "in a folder, keeping their names, and give that folder in place of the id"
        ) from error
    if of != name:
        raise ValueError(
            f"{folder}: holds the files of {of}, not of {name}; choose another folder or remove it"
        )
    fetch(files, f"licence: {licence}; see https://huggingface.co/datasets/{name}", yes)
    return folder


def _inside(folder: Path, name: str) -> Path:
    """The path of a file of the dataset, which must be below the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"the name {name!r} leads out of the folder")
    return path
