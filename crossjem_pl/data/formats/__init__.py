"""Files of ranking lists: canonical JSONL and Parquet rows, MTEB rows, plain columns, TREC runs and qrels."""

from crossjem_pl.data.formats.canonical import SCHEMA
from crossjem_pl.data.formats.content import content_id
from crossjem_pl.data.formats.counts import ReadCounts
from crossjem_pl.data.formats.layouts import LAYOUTS, detect_layout, read_lists
from crossjem_pl.data.formats.texts import read_texts
from crossjem_pl.data.formats.trec import (
    ranked,
    read_qrels,
    read_run,
    read_trec,
    write_list_qrels,
    write_list_run,
    write_qrels,
    write_run,
)
from crossjem_pl.data.formats.writing import TARGETS, target_format, write_lists

__all__ = [
    "LAYOUTS",
    "SCHEMA",
    "TARGETS",
    "ReadCounts",
    "content_id",
    "detect_layout",
    "ranked",
    "read_lists",
    "read_qrels",
    "read_run",
    "read_texts",
    "read_trec",
    "target_format",
    "write_list_qrels",
    "write_list_run",
    "write_lists",
    "write_qrels",
    "write_run",
]
