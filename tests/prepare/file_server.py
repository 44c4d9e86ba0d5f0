"""A file server on the loopback, with the answers of the Hugging Face hub for one dataset."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["Server", "dataset_files", "serving"]


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` by their path, with or without byte ranges, and says where others were `moved`.

    `cut` breaks answers off after so many bytes. Without `token` paths are refused, and with it what was moved.
    """

    files: dict[str, bytes]
    ranges, cut, token = True, 0, ""
    asked: list[tuple[str, str | None]]
    moved: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        span = self.headers.get("Range")
        self.server.asked.append((self.path, span))
        content = self.server.files.get(self.path)
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if given != ("" if self.path.startswith("/moved") else self.server.token):
            return self.send_error(401)
        if self.path in self.server.moved:
            self.send_response(302)
            self.send_header("Location", self.server.moved[self.path])
            return self.end_headers()
        if content is None:
            return self.send_error(404)
        start = int(span.removeprefix("bytes=").removesuffix("-")) if span and self.server.ranges else 0
        if start >= len(content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.cut or None])

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@contextmanager
def serving() -> Iterator[Server]:
    """A server without files, which answers in a thread of its own."""
    with Server(("127.0.0.1", 0), Handler) as found:
        found.files, found.asked, found.moved = {}, [], {}
        thread = threading.Thread(target=found.serve_forever, args=(0.02,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def dataset_files(name: str, tables: Mapping[str, Sequence[Any]]) -> dict[str, bytes]:
    """What the hub answers for a dataset of rows in .jsonl.gz files, by path; a read-me is beside them."""
    siblings: list[dict[str, Any]] = [{"rfilename": "README.md", "size": 9, "blobId": "0"}]
    files = {}
    for table, rows in tables.items():
        packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
        files[f"/datasets/{name}/resolve/abc/{table}"] = packed
        digest = hashlib.sha256(packed).hexdigest()
        siblings.append({"rfilename": table, "size": len(packed), "lfs": {"sha256": digest}})
    described = {"sha": "abc", "siblings": siblings, "cardData": {"license": "cc-by-sa-4.0"}}
    return {**files, f"/api/datasets/{name}?blobs=true": json.dumps(described).encode()}
