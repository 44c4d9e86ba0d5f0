"""Run folders as training leaves them, and a strict reader of the HTML that reports write."""

from __future__ import annotations

import json
import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

from crossjem_pl.data.formats import write_lists
from crossjem_pl.data.trec import write_qrels, write_run
from crossjem_pl.lists import RankingList

__all__ = ["EVIL", "Checker", "lists", "parse", "write_run_folder"]

EVIL = "=cmd <script>alert('x')</script> & | *bold* [a](b) $x$"


def lists() -> list[RankingList]:
    """60 lists: queries of 8 to 12 words, 6 or 9 items of growing overlap, 1 to 3 relevant items, one of grade 2."""
    made = []
    for q in range(60):
        count = 6 if q % 2 else 9
        ids = tuple(f"d{q}_{i}" for i in range(count))
        items = tuple(f"common {'shared ' * (q % 4)}{EVIL} {i}" for i in ids)
        labels = tuple((i <= q % 3) * (2.0 if i == 0 else 1.0) for i in range(count))
        made.append(RankingList(f"q{q}", f"{EVIL} {'word ' * (q % 5)}{q}", ids, items, labels))
    return made


def write_run_folder(path: Path, noise: float, loss: str | None, steps: int = 40, **summary: Any) -> Path:
    """A folder as training leaves it; without a loss as an evaluation does."""
    path.mkdir(parents=True)
    rng = random.Random(0)
    run = {
        one.query_id: {
            i: 3 * label - 2 + rng.gauss(0, noise)
            for i, label in zip(one.item_ids, one.labels or (), strict=True)
        }
        for one in lists()
    }
    write_run(run, path / "val.trec")
    write_qrels(lists(), path / "val.qrels")
    write_lists(lists(), path / "val_lists.parquet")
    config: dict[str, Any] = {"seed_everything": 7, "data": {"train": "train.parquet", "batch_size": 8}}
    if loss is not None:
        config["model"] = {"loss": {"class_path": f"crossjem_pl.losses.{loss}"}, "targets": "labels"}
        lines = ["epoch,step,train/loss,val/AP@10,val/RR@10"]
        lines += [f"0,{step},{2 / (step + 1)},," for step in range(steps)]
        lines += [f"0,{steps // 2},,0.4,0.5", f"0,{steps},,0.6,0.7"]
        (path / "metrics.csv").write_text("\n".join(lines) + "\n")
        summary = {"train_seconds": 90.0, "trained_lists": 320, "machine": "a machine, 2 threads"} | summary
    text = "# lightning.pytorch==2.6.6\n" + yaml.safe_dump(config)
    (path / "config.yaml").write_text(text)
    (path / "summary.json").write_text(json.dumps({"seed": 7, "parameters": 1000} | summary))
    return path


class Checker(HTMLParser):
    """Keeps tags and texts, and fails on a tag that is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parse(path: Path) -> Checker:
    """The file, whose tags are all closed."""
    checker = Checker()
    checker.feed(path.read_text(encoding="utf-8"))
    checker.close()
    assert not checker.open
    return checker
