"""Titles of a collection on disk: written once in the order of the documents, looked up by id.

SQLite, from the standard library: the ids of MS MARCO come in no order, so a sorted file would need an external
sort of its own; a B-tree file takes them as they come, is one file, and reads a bounded page cache however many
documents there are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from crossjem_pl.prepare.hashing import one_line

__all__ = ["TitleStore"]

CHUNK = 500
_SCHEMA = (
    "CREATE TABLE titles (id TEXT PRIMARY KEY, title TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


class TitleStore:
    """Titles by document id, read only.

    Args:
        path: a file that `build` wrote.
        collection: the name that it was built for.

    Raises:
        ValueError: no such store, or one of another collection.
    """

    def __init__(self, path: Path, collection: str) -> None:
        self.path = path
        self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            facts = dict(self._connection.execute("SELECT name, value FROM facts"))
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ValueError(f"{path}: not a store of titles ({error}); remove it to build it anew") from None
        if facts.get("collection") != collection:
            self._connection.close()
            raise ValueError(
                f"{path}: holds the titles of {facts.get('collection')!r}, not of {collection!r}; choose "
                "another folder, or remove it"
            )
        self.documents = int(facts["documents"])
        self.blank = int(facts["blank"])

    @staticmethod
    def build(path: Path, collection: str, documents: Iterable[tuple[str, str | None]]) -> None:
        """Writes the store from (id, title) pairs in flat memory; it appears whole or not at all.

        Titles become one line (`one_line`); blank and missing ones are kept as "".

        Raises:
            ValueError: an id that occurs twice, or no documents.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.unlink(missing_ok=True)
        counts = {"documents": 0, "blank": 0}

        def rows() -> Iterator[tuple[str, str]]:
            for identifier, title in documents:
                text = one_line(title or "")
                counts["documents"] += 1
                counts["blank"] += not text
                yield identifier, text

        connection = sqlite3.connect(temporary)
        try:
            # a cut-off build is thrown away, so it needs no journal and no waiting for the disk
            for statement in (
                "PRAGMA journal_mode=OFF",
                "PRAGMA synchronous=OFF",
                "PRAGMA cache_size=-65536",
            ):
                connection.execute(statement)
            for statement in _SCHEMA:
                connection.execute(statement)
            try:
                connection.executemany("INSERT INTO titles VALUES (?, ?)", rows())
            except sqlite3.IntegrityError:
                raise ValueError(
                    f"{collection}: the id of document {counts['documents']} occurs before"
                ) from None
            if not counts["documents"]:
                raise ValueError(f"{collection}: the collection has no documents")
            facts = {"collection": collection, **counts}
            connection.executemany("INSERT INTO facts VALUES (?, ?)", [(k, str(v)) for k, v in facts.items()])
            connection.commit()
            connection.close()
            temporary.replace(path)
        finally:
            connection.close()
            temporary.unlink(missing_ok=True)

    def get(self, ids: Sequence[str]) -> dict[str, str]:
        """Titles of the ids that the collection has; "" where the title is blank."""
        found: dict[str, str] = {}
        for start in range(0, len(ids), CHUNK):
            chunk = list(ids[start : start + CHUNK])
            marks = ",".join("?" * len(chunk))
            found.update(
                self._connection.execute(f"SELECT id, title FROM titles WHERE id IN ({marks})", chunk)
            )
        return found

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def __enter__(self) -> TitleStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
