"""Damaged files end in an error that names the file, or give the right answer; never in a hang or another error.

`FUZZ_CASES` is how many are tried in all (`make fuzz`), the same number of each kind; `FUZZ_SEED` where they begin.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from crossjem_pl.cli.lists import items_of
from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.shards import record, write_shards
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.data.teacher import read_provenance, read_scores, write_scores
from crossjem_pl.data.trec import read_qrels, read_run, write_qrels, write_run
from crossjem_pl.evaluation.runs import read_run_folder, read_texts_of
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.export.write import export_ranker
from crossjem_pl.inference.score import Job, score
from crossjem_pl.lists import RankingList
from crossjem_pl.prepare.clicklog import LogOptions, prepare_log
from crossjem_pl.prepare.linkso import prepare_linkso
from crossjem_pl.prepare.reranking import prepare_reranking
from crossjem_pl.rankers import ANCE, BM25, DPR, Ahead, CrossJEM, MonoBERT, QueryHead, Ranker, RankT5
from crossjem_pl.rankers.folder import load_ranker, save_ranker
from crossjem_pl.rankers.neural import NeuralRanker
from crossjem_pl.rankers.threshold import StoredThreshold, read_threshold, write_threshold
from crossjem_pl.text.token_store import TokenStore
from crossjem_pl.training.run_folder import AtomicCheckpointIO
from tests.conftest import example_lists
from tests.inference.test_export import build
from tests.rankers.public_models import write_pylate, write_stanford

SEED = int(os.environ.get("FUZZ_SEED", "0"))
SECONDS = 10
LIMITS: dict[str, Any] = {"max_query_tokens": 8, "max_item_tokens": 8}
LISTS = example_lists(8)
DEEP = "[["
"""Becomes brackets in brackets, deeper than Python's recursion goes."""
ODD: list[Any] = [
    *(None, True, -1, 0, 0.5, 2**32 - 1, 10**30, float("nan"), "", "x", "../..", "a/b", [], {}, [None]),
    *("long" * 5000, [7] * 5000, DEEP),
]


def damaged(content: bytes, source: random.Random) -> bytes:
    """The bytes cut off, or with some of them flipped, left out or repeated."""
    if not content:
        return b"\0"
    at, kind = source.randrange(len(content)), source.randrange(4)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + bytes([content[at] ^ 1 << source.randrange(8)]) + content[at + 1 :]
    end = at + source.randint(1, 40)
    return content[:at] + (b"" if kind == 2 else content[at:end] * 2) + content[end:]


def fields(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a JSON value, at any depth."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from fields(value[key])


def with_odd_value(content: bytes, source: random.Random) -> bytes:
    """The JSON text (or its first line) with another value in one of its fields, or without the field."""
    first, newline, rest = content.partition(b"\n")
    try:
        whole = json.loads(first)
    except ValueError:
        whole, newline, rest = json.loads(content), b"", b""
    inside, key = source.choice([*fields(whole), ([whole], 0)])
    if source.random() < 0.15:
        del inside[key]
    else:
        inside[key] = source.choice(ODD)
    text = json.dumps(whole).replace(f'"{DEEP}"', "[" * 100_000)
    return text.encode() + newline + rest


def scores(ranker: Ranker) -> torch.Tensor:
    with torch.no_grad():
        return ranker.eval()(ranker.collate(LISTS))


@dataclass(frozen=True)
class Kind:
    """A kind of file, or folder of files: how it is written into a folder and read from it.

    Damage of a file whose name ends like one of `sealed` is always noticed: what is read is right, or refused.
    """

    write: Callable[[Path, Path], Any]
    read: Callable[[Path], Any]
    sealed: tuple[str, ...] = ()


def model(make: Callable[[Path], Ranker]) -> Kind:
    return Kind(
        lambda folder, tiny: save_ranker(make(tiny), folder),
        lambda folder: scores(load_ranker(str(folder))),
        ("model.safetensors", "tokenizer.json"),
    )


def rows(name: str, sealed: bool = False) -> Kind:
    return Kind(
        lambda folder, _: write_lists(LISTS, folder / name),
        lambda folder: list(read_lists(folder / name)),
        (name,) if sealed else (),
    )


def write_arrow(folder: Path, _: Path) -> None:
    table = pa.Table.from_pylist([record(one) for one in LISTS])
    with pa.ipc.new_stream(folder / "lists.arrow", table.schema) as sink:
        sink.write_table(table)


def write_csv(folder: Path, _: Path) -> None:
    pairs = [f"{one.query},{item},{i % 2}\n" for one in LISTS for i, item in enumerate(one.items)]
    (folder / "lists.csv").write_text("query,item,label\n" + "".join(pairs))


def write_teacher(folder: Path, _: Path) -> None:
    pairs = [(one.query_id, item, 0.5) for one in LISTS for item in one.item_ids]
    write_scores(pairs, folder / "teacher.parquet", {"model": "teacher"})


def items() -> list[tuple[str, str]]:
    return [(f"{one.query_id} {i}", text) for one in LISTS for i, text in enumerate(one.items)]


def write_store(folder: Path, tiny: Path) -> None:
    ranker = MonoBERT(str(tiny / "bert"), **LIMITS)
    assert isinstance(ranker, NeuralRanker)
    folder.rmdir()
    TokenStore.build(folder, items(), ranker.tokenizer)


def read_store(folder: Path) -> Any:
    tokens = TokenStore.open(folder).rows([name for name, _ in items()])
    return tokens.values.tolist(), tokens.lengths.tolist()


def write_export(folder: Path, tiny: Path) -> None:
    export_ranker(build("monobert", str(tiny / "bert")), folder)


def write_checkpoint(folder: Path, _: Path) -> None:
    AtomicCheckpointIO().save_checkpoint(
        {"state_dict": {"w": torch.arange(99.0)}, "epoch": 1}, folder / "a.ckpt"
    )


def write_stored_threshold(folder: Path, _: Path) -> None:
    figures = {"precision": 0.9, "kept": None}
    counts, hashes = (8, 0, 9, 99), ("0" * 64, "1" * 64)
    stored = StoredThreshold(0.5, "precision", 0.9, 1.0, *counts, figures, "lists.jsonl", *hashes, "0.2.0")
    write_threshold(stored, folder)


def write_classifier(folder: Path, tiny: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(tiny / "bert", num_labels=1)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny / "bert").save_pretrained(folder)


def write_sentence_encoder(folder: Path, tiny: Path) -> None:
    """What a bi-encoder's folder is to sentence-transformers alone."""
    save_ranker(ANCE(str(tiny / "bert"), dimension=8, **LIMITS), folder)
    config = json.loads((folder / "config.json").read_text())
    del config["crossjem_pl"]
    (folder / "config.json").write_text(json.dumps(config))


def write_clicks(folder: Path, _: Path) -> None:
    rows = [f"{one.query}\t{item}\t{int(i == 0)}\n" for one in LISTS for i, item in enumerate(one.items)]
    (folder / "log.tsv").write_text("query\tkeyword\tclicked\n" + "".join(rows))


def read_clicks(folder: Path) -> list[RankingList]:
    prepare_log([folder / "log.tsv"], folder / "out", LogOptions(any_click=True, test_fraction=0))
    return list(read_lists(folder / "out" / "train.parquet"))


def write_linkso(folder: Path, _: Path) -> None:
    pairs = [f"{q}\t{i}\t0.5\t{int(i == 12)}\n" for q in (1, 2, 3) for i in (11, 12, 13)]
    texts = {
        "qid2all": "".join(f"{i}\ttitle {i}\tbody\tanswer\n" for i in (1, 2, 3, 11, 12, 13)),
        "cosidf": "qid1\tqid2\tscore\tlabel\n" + "".join(pairs),
        "train_qid": "1\n2\n",
        "test_qid": "3\n",
    }
    (folder / "java").mkdir()
    for name, text in texts.items():
        (folder / "java" / f"java_{name}.txt").write_text(text)


def read_linkso(folder: Path) -> list[RankingList]:
    list(prepare_linkso(folder, folder / "out", tags=("java",), dev_fraction=0.0))
    return list(read_lists(folder / "out" / "train.parquet"))


def write_beir(folder: Path, _: Path) -> None:
    rows = {
        "corpus.jsonl": [
            {"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(LISTS[0].items)
        ],
        "queries.jsonl": [{"_id": f"q{i}", "text": one.query} for i, one in enumerate(LISTS)],
    }
    for name, table in rows.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in table))
    judged = "".join(f"q{i}\td{j}\t{int(i == j)}\n" for i in range(3) for j in range(3))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)


def read_beir(folder: Path) -> list[RankingList]:
    list(prepare_reranking(folder, folder / "out", "beir"))
    return list(read_lists(folder / "out" / "test.parquet"))


def write_run_folder(folder: Path, _: Path) -> None:
    write_run(RUN, folder / "test.trec")
    write_qrels(GRADES, folder / "test.qrels")
    write_lists(LISTS, folder / "test_lists.parquet")
    (folder / "summary.json").write_text(
        json.dumps({"ranker": "bm25", "parameters": 9, "train_seconds": 1.5})
    )
    (folder / "config.yaml").write_text("model: {loss: {class_path: a.B}}\ndata: {n_items: 4}\n")
    (folder / "metrics.csv").write_text("step,train/loss,val/MRR@10\n0,1.5,\n5,1.25,0.5\n")


def read_run_of_folder(folder: Path) -> Any:
    run = read_run_folder(folder, "test")
    curve = run.curve and (run.curve.loss, run.curve.metrics)
    return run.scores, run.qrels, run.method, run.loss, str(curve), read_texts_of([run], run.scores)


def job(folder: Path) -> Job:
    """The lists and the model of all folders of scores beside `folder`, which is not damaged."""
    return Job(str(folder.parent / "model"), folder.parent / "lists.jsonl", folder, lists_per_part=3)


def write_scored(folder: Path, tiny: Path) -> None:
    save_ranker(CrossJEM(str(tiny / "bert"), max_union_tokens=64, **LIMITS), folder.parent / "model")
    write_lists(LISTS, folder.parent / "lists.jsonl")
    list(score(job(folder)))


def read_scored(folder: Path) -> Any:
    """What there is after the command was given again: a part that is gone is scored again."""
    list(score(job(folder)))
    return read_scores(folder)


def write_states(folder: Path, tiny: Path) -> None:
    ranker = Ahead(str(tiny / "bert"), upper_layers=1, **LIMITS).eval()
    folder.rmdir()
    TokenStore.build(folder, items(), ranker.tokenizer, LIMITS["max_item_tokens"], ranker.store_states())


def read_states(folder: Path) -> Any:
    states = TokenStore.open(folder).states([name for name, _ in items()])
    return [part.tolist() for part in states]


def write_items(folder: Path, _: Path) -> None:
    (folder / "items.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in items()))


RUN = {one.query_id: {item: float(i) for i, item in enumerate(one.item_ids)} for one in LISTS}
GRADES = {query: {item: int(score) for item, score in found.items()} for query, found in RUN.items()}
KINDS: dict[str, Kind] = {
    "crossjem": model(
        lambda tiny: CrossJEM(str(tiny / "bert"), QueryHead(), union_positions="item", **LIMITS)
    ),
    "monobert": model(lambda tiny: MonoBERT(str(tiny / "bert"), **LIMITS)),
    "dpr": model(lambda tiny: DPR(str(tiny / "bert"), **LIMITS)),
    "rankt5": model(lambda tiny: RankT5(str(tiny / "t5"), **LIMITS)),
    "bm25": model(lambda _: BM25()),
    "jsonl": rows("lists.jsonl"),
    "jsonl.gz": rows("lists.jsonl.gz", sealed=True),
    "parquet": rows("lists.parquet", sealed=True),
    "arrow": Kind(write_arrow, lambda folder: list(read_lists(folder / "lists.arrow"))),
    "csv": Kind(write_csv, lambda folder: list(read_lists(folder / "lists.csv"))),
    "shards": Kind(
        lambda folder, _: write_shards(LISTS, folder, 3),
        lambda folder: (list(read_lists(folder)), list(ShardSource(str(folder)).read(folder))),
        (".parquet", ".json"),
    ),
    "run": Kind(
        lambda folder, _: write_run(RUN, folder / "a.run"), lambda folder: read_run(folder / "a.run")
    ),
    "qrels": Kind(
        lambda folder, _: write_qrels(GRADES, folder / "a.qrels"),
        lambda folder: read_qrels(folder / "a.qrels"),
    ),
    "teacher": Kind(
        write_teacher,
        lambda folder: [read_scores(folder / "teacher.parquet"), read_provenance(folder / "teacher.parquet")][
            0
        ],
        (".parquet",),
    ),
    "public encoder": Kind(
        lambda folder, tiny: shutil.copytree(tiny / "bert", folder, dirs_exist_ok=True),
        lambda folder: scores(DPR(str(folder), **LIMITS)),
    ),
    "cross-encoder": Kind(write_classifier, lambda folder: scores(load_ranker(str(folder)))),
    "sentence-transformer": Kind(write_sentence_encoder, lambda folder: scores(load_ranker(str(folder)))),
    "pylate": Kind(lambda folder, _: write_pylate(folder), lambda folder: scores(load_ranker(str(folder)))),
    "stanford": Kind(
        lambda folder, _: write_stanford(folder), lambda folder: scores(load_ranker(str(folder)))
    ),
    "click log": Kind(write_clicks, read_clicks),
    "linkso": Kind(write_linkso, read_linkso),
    "beir": Kind(write_beir, read_beir),
    "run folder": Kind(write_run_folder, read_run_of_folder),
    "scored": Kind(write_scored, read_scored, (".parquet", ".json")),
    "items": Kind(write_items, lambda folder: list(items_of(folder / "items.tsv"))),
    "states": Kind(write_states, read_states, (".bin", ".json")),
    "tokens": Kind(write_store, read_store, (".bin", ".json")),
    "export": Kind(
        write_export, lambda folder: Reranker(folder).score(LISTS)[0], (".onnx", "tokenizer.json")
    ),
    "checkpoint": Kind(
        write_checkpoint,
        lambda folder: AtomicCheckpointIO().load_checkpoint(folder / "a.ckpt")["state_dict"]["w"],
        (".ckpt",),
    ),
    "threshold": Kind(write_stored_threshold, lambda folder: read_threshold(folder / "threshold.json")),
}


CASES = -(-int(os.environ.get("FUZZ_CASES", "900")) // len(KINDS))
"""Of each kind."""


def damage(file: Path, source: random.Random) -> None:
    """Damages a file, removes it, or puts a pipe in its place."""
    content = file.read_bytes()
    if (chance := source.random()) < 0.04:
        file.unlink()
        if chance < 0.02:
            os.mkfifo(file)
    elif file.suffix in (".json", ".jsonl") and source.random() < 0.5:
        file.write_bytes(with_odd_value(content, source))
    else:
        file.write_bytes(damaged(content, source))


def fault(kind: Kind, folder: Path, expected: Any, sealed: bool) -> str | None:
    """What is wrong with how a damaged folder is read; None if nothing is."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor, which others may use too
    signal.alarm(6 * SECONDS)
    try:
        found = kind.read(folder)
    except (ValueError, FileNotFoundError) as error:
        message = str(error)
        known = str(folder) in message and "\n" not in message and len(message) < 1000
        return None if known else f"names no file, or is long: {message}"
    except Exception as error:
        return "".join(traceback.format_exception(error)[-4:])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    right = torch.equal(found, expected) if isinstance(found, torch.Tensor) else found == expected
    return "another answer" if sealed and not right else None


def late(*_: object) -> None:
    raise RuntimeError(f"took more than {SECONDS} s")


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("name", KINDS)
def test_damaged_files(name: str, tiny_models_folder: Path, tmp_path: Path) -> None:
    kind, whole, folder = KINDS[name], tmp_path / "whole", tmp_path / "damaged"
    whole.mkdir()
    kind.write(whole, tiny_models_folder)
    expected = kind.read(whole)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGPROF, late)
    faults = []
    for case in range(CASES):
        source = random.Random(f"{SEED} {name} {case}")
        file = source.choice(files)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        damage(folder / file, source)
        if (found := fault(kind, folder, expected, str(file).endswith(kind.sealed))) is not None:
            faults.append(f"case {case}, {file}: {found}")
    assert not faults, f"FUZZ_SEED={SEED}, {len(faults)} faults\n" + "\n".join(faults[:20])
