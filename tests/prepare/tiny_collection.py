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

__all__ = ["register", "title", "write_gzip"]


def title(number: int) -> str:
    """The title of document D{number}; those of D7 and D8 are blank."""
    odd = {5: "a\ttab  in the title", 6: "Größe – 東京 ünïcode", 7: "", 8: " "}
    return odd.get(number, f"title of page {number}")


def write_gzip(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))


def register(folder: Path, name: str, *, parts: Mapping[str, Mapping[str, str]]) -> str:
    """Registers `name` (new in this process) of 40 documents D0, D1, ... and `name/PART`...; returns `name`.

    `parts` holds the texts of `queries` (TSV), `qrels` and `scoreddocs` (TREC) by part.
    """

    def stored(path: Path, text: str) -> Any:
        write_gzip(path, text)
        return GzipExtract(LocalDownload(path))

    docs = "".join(
        f"<DOC>\n<DOCNO>D{i}</DOCNO>\n<TEXT>\nhttp://page/{i}\n{title(i)}\nThe body of {i}.\n</TEXT>\n</DOC>\n"
        for i in range(40)
    )
    collection = MsMarcoTrecDocs(stored(folder / "docs.trec.gz", docs))
    ir_datasets.registry.register(name, Dataset(collection))
    readers = {
        "queries": TsvQueries,
        "qrels": lambda file: TrecQrels(file, {1: "relevant"}),
        "scoreddocs": TrecScoredDocs,
    }
    for part, files in parts.items():
        inner = folder / part.replace("/", "-")
        tables = [readers[kind](stored(inner / f"{kind}.gz", text)) for kind, text in files.items()]
        ir_datasets.registry.register(f"{name}/{part}", Dataset(collection, *tables))
    return name
