"""A dataset in the files of MS MARCO documents, registered with ir_datasets, so that its own readers run."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ir_datasets
from ir_datasets.datasets.base import Dataset
from ir_datasets.datasets.msmarco_document import MsMarcoTrecDocs
from ir_datasets.formats import TrecQrels, TrecScoredDocs, TsvQueries
from ir_datasets.util import GzipExtract
from ir_datasets.util.download import LocalDownload

__all__ = ["BLANK", "register", "title", "write_gzip"]

BLANK = ("D7", "D8")


def title(number: int) -> str:
    """The title of document D{number}; those of `BLANK` are blank."""
    if f"D{number}" in BLANK:
        return " " if number == 8 else ""
    return {5: "a\ttab  in the title", 6: "Größe – 東京 ünïcode"}.get(number, f"title of page {number}")


def write_gzip(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))


def register(
    folder: Path,
    name: str,
    *,
    documents: int = 40,
    parts: Mapping[str, Mapping[str, str]],
) -> str:
    """Registers `name`, `name/PART`... and returns `name`.

    Args:
        folder: where the files go.
        name: id of the dataset, new in this process.
        documents: D0, D1, ...
        parts: texts of `queries` (TSV), `qrels` and `scoreddocs` (TREC) by part.
    """
    docs = "".join(
        f"<DOC>\n<DOCNO>D{i}</DOCNO>\n<TEXT>\nhttp://page/{i}\n{title(i)}\nThe body of {i}.\n</TEXT>\n</DOC>\n"
        for i in range(documents)
    )
    write_gzip(folder / "docs.trec.gz", docs)

    def stored(path: Path) -> Any:
        return GzipExtract(LocalDownload(path))

    collection = MsMarcoTrecDocs(stored(folder / "docs.trec.gz"))
    ir_datasets.registry.register(name, Dataset(collection))
    for part, files in parts.items():
        place = folder / part.replace("/", "-")
        for kind, text in files.items():
            write_gzip(place / f"{kind}.gz", text)
        constituents = [collection, TsvQueries(stored(place / "queries.gz"))]
        if "qrels" in files:
            constituents.append(TrecQrels(stored(place / "qrels.gz"), {1: "relevant"}))
        if "scoreddocs" in files:
            constituents.append(TrecScoredDocs(stored(place / "scoreddocs.gz")))
        ir_datasets.registry.register(f"{name}/{part}", Dataset(*constituents))
    return name
