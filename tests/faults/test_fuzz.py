"""Damaged files end in an error that names the file, or give the right answer; never in a hang or another error.

`FUZZ_CASES` is how many are tried of each kind (`make fuzz`), `FUZZ_SEED` where they begin.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from crossjem_pl.data.formats import read_lists, write_lists
from crossjem_pl.data.shards import write_shards
from crossjem_pl.data.sources import ShardSource
from crossjem_pl.data.teacher import read_provenance, read_scores, write_scores
from crossjem_pl.data.trec import read_qrels, read_run, write_qrels, write_run
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers import DPR, CrossJEM, MonoBERT, QueryHead, Ranker, RankT5
from crossjem_pl.rankers.folder import load_ranker, save_ranker

CASES = int(os.environ.get("FUZZ_CASES", "60"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
LIMITS: dict[str, Any] = {"max_query_tokens": 8, "max_item_tokens": 8}
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    0.5,
    2**32 - 1,
    10**30,
    "",
    "x",
    "../..",
    "a/b",
    [],
    {},
    [None],
    float("nan"),
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
    """The JSON text with another value in one of its fields, or without the field."""
    whole = json.loads(content)
    inside, key = source.choice(list(fields(whole)))
    if source.random() < 0.15:
        del inside[key]
    else:
        inside[key] = source.choice(ODD)
    return json.dumps(whole).encode()


def outcome(call: Callable[[], Any], path: Path, case: str) -> Any:
    """What the call gives, or None where it ends in an error that names the path; every other error is raised."""
    try:
        return call()
    except (ValueError, FileNotFoundError) as error:
        message = str(error)
    assert str(path) in message, f"{case}: names no file: {message}"
    assert message.count("\n") == 0, f"{case}: more than a line: {message}"
    return None


def scores(ranker: Ranker, lists: list[RankingList]) -> torch.Tensor:
    with torch.no_grad():
        return ranker.eval()(ranker.collate(lists))


MAKE: dict[str, Callable[[Path], Ranker]] = {
    "crossjem": lambda tiny: CrossJEM(str(tiny / "bert"), QueryHead(), union_positions="item", **LIMITS),
    "monobert": lambda tiny: MonoBERT(str(tiny / "bert"), **LIMITS),
    "dpr": lambda tiny: DPR(str(tiny / "bert"), **LIMITS),
    "rankt5": lambda tiny: RankT5(str(tiny / "t5"), **LIMITS),
}


@pytest.mark.parametrize("kind", MAKE)
def test_damaged_model_folders(
    kind: str, tiny_models_folder: Path, tmp_path: Path, lists: list[RankingList]
) -> None:
    whole = tmp_path / "whole"
    save_ranker(MAKE[kind](tiny_models_folder), whole)
    expected = scores(load_ranker(str(whole)), lists)
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    for case in range(CASES // len(MAKE)):
        source = random.Random(f"{SEED} {kind} {case}")
        folder, name = tmp_path / "damaged", source.choice(names)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        content = (folder / name).read_bytes()
        odd = name.suffix == ".json" and source.random() < 0.6
        if source.random() < 0.05:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes((with_odd_value if odd else damaged)(content, source))
        started = time.monotonic()
        ranker = outcome(partial(load_ranker, str(folder)), folder, f"case {case}, {name}")
        if ranker is not None:
            found = scores(ranker, lists)  # what loads must run
            if name.name in ("model.safetensors", "tokenizer.json"):
                torch.testing.assert_close(found, expected)
        assert time.monotonic() - started < 10, f"case {case}, {name}: took too long"


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "csv", "parquet"])
def test_damaged_row_files(ending: str, tmp_path: Path, lists: list[RankingList]) -> None:
    whole, path = tmp_path / f"whole.{ending}", tmp_path / f"damaged.{ending}"
    if ending == "csv":
        pairs = [f"{one.query},{item},{i % 2}\n" for one in lists for i, item in enumerate(one.items)]
        whole.write_text("query,item,label\n" + "".join(pairs))
    else:
        write_lists(lists, whole)
    for case in range(CASES // 2):
        source = random.Random(f"{SEED} {ending} {case}")
        first, newline, rest = whole.read_bytes().partition(b"\n")
        odd = ending == "jsonl" and source.random() < 0.5
        path.write_bytes(
            with_odd_value(first, source) + newline + rest if odd else damaged(whole.read_bytes(), source)
        )
        read = outcome(lambda: list(read_lists(path)), path, f"case {case}")
        assert read is None or all(len(one.items) == len(one.item_ids) > 0 for one in read)


@pytest.mark.parametrize("kind", ["run", "qrels", "scores", "manifest", "shard"])
def test_damaged_files_beside_the_rows(kind: str, tmp_path: Path, lists: list[RankingList]) -> None:
    """TREC files, a teacher's scores, and folders of shards."""
    lists = [replace(one, labels=(1.0,) * len(one), scores=(0.5,) * len(one)) for one in lists]
    folder = tmp_path / "shards"
    write_shards(lists, folder, lists_per_shard=2)
    path = {"manifest": folder / "manifest.json", "shard": folder / "000000.parquet"}.get(
        kind, tmp_path / kind
    )
    read: dict[str, Callable[[], Any]] = {
        "run": lambda: read_run(path),
        "qrels": lambda: read_qrels(path),
        "scores": lambda: (read_provenance(path), read_scores(path)),
        "manifest": lambda: list(ShardSource("shards").read(tmp_path)),
        "shard": lambda: list(ShardSource("shards").read(tmp_path)),
    }
    if kind == "scores":
        write_scores([(one.query_id, item, 0.5) for one in lists for item in one.item_ids], path, {"a": 1})
    elif kind in ("run", "qrels"):
        (write_run if kind == "run" else write_qrels)(lists, path)
    whole = path.read_bytes()
    for case in range(CASES // 2):
        source = random.Random(f"{SEED} {kind} {case}")
        odd = kind == "manifest" and source.random() < 0.6
        path.write_bytes((with_odd_value if odd else damaged)(whole, source))
        found = outcome(read[kind], folder if kind == "manifest" else path, f"case {case}")
        if kind in ("manifest", "shard"):
            assert found is None or found == lists, f"case {case}: other lists"
