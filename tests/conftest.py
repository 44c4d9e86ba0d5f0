from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from crossjem_pl.lists import RankingList
from tests import tiny_models

torch.set_num_threads(1)
logging.raiseExceptions = False  # lightning logs to the stream of an earlier test


@pytest.fixture(scope="session")
def tiny_models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with one tiny random model per architecture: `bert`, `t5`, `gpt`."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny_models.write_bert(folder / "bert")
    tiny_models.write_t5(folder / "t5")
    tiny_models.write_gpt(folder / "gpt")
    return folder


@pytest.fixture(scope="session")
def tiny_bert(tiny_models_folder: Path) -> str:
    """Folder of a random two-layer BERT."""
    return str(tiny_models_folder / "bert")


@pytest.fixture(scope="session")
def lists() -> list[RankingList]:
    """Eight lists of unequal length with labels and teacher scores."""
    return example_lists(8, seed=0)


@pytest.fixture(scope="session")
def traced_once() -> Iterator[None]:
    """Keeps the graphs of the rankers that were exported before: tracing takes seconds."""
    from crossjem_pl.hashing import weights_sha256
    from crossjem_pl.inference.export import write

    kept: dict[str, bytes] = {}
    trace = write._write_graph

    def cached(ranker: Any, path: Path) -> None:
        key = weights_sha256(ranker) + json.dumps(ranker.init_args)
        if key not in kept:
            trace(ranker, path)
            kept[key] = path.read_bytes()
        path.write_bytes(kept[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "_write_graph", cached)
        yield


def example_lists(count: int, seed: int = 0, most_items: int = 9) -> list[RankingList]:
    """Random lists over the tiny vocabulary: 2 to `most_items` items, one relevant."""
    generator = torch.Generator().manual_seed(seed)

    def number(high: int) -> int:
        return int(torch.randint(high, (1,), generator=generator))

    def text(words: int) -> str:
        return " ".join(tiny_models.WORDS[number(len(tiny_models.WORDS))] for _ in range(words))

    made = []
    for i in range(count):
        items = list(dict.fromkeys(text(1 + number(5)) for _ in range(2 + number(most_items - 1))))
        if len(items) == 1:
            items.append(items[0] + " store")
        best = number(len(items))
        made.append(
            RankingList(
                query_id=f"q{seed}-{i}",
                query=text(1 + number(4)),
                item_ids=tuple(f"d{j}" for j in range(len(items))),
                items=tuple(items),
                labels=tuple(float(j == best) for j in range(len(items))),
                scores=tuple(0.9 if j == best else 0.05 + 0.3 * number(100) / 100 for j in range(len(items))),
            )
        )
    return made


def root() -> Path:
    """The repository."""
    return Path(__file__).parent.parent
