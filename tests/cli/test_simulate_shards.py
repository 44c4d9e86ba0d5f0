"""`crossjem simulate --shard-size`: folders of shards of any size, taken up again after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossjem_pl.cli import main
from crossjem_pl.data.simulator import SPLITS, simulate
from crossjem_pl.data.sources import ShardSource


def command(out: Path, **options: int) -> list[str]:
    sizes = {"lists": 11, "items": 8, "held-out": 3, "shard-size": 4, "seed": 2, **options}
    arguments = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    return ["simulate", *arguments, "--out", str(out)]


def test_each_split_is_a_folder_of_shards_and_a_second_call_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path)) == 0
    assert "train: 11 lists in 3 shards" in capsys.readouterr().out
    for split, count in zip(SPLITS, (11, 3, 3), strict=True):
        assert list(ShardSource(split).read(tmp_path)) == list(simulate(count, 8, seed=2, split=split))
    second = tmp_path / "train" / "000001.parquet"
    content, kept = second.read_bytes(), (tmp_path / "train" / "000000.parquet").stat()
    second.unlink()
    assert main(command(tmp_path)) == 0
    assert "train: 11 lists in 3 shards, 1 of them from before" in capsys.readouterr().out
    assert second.read_bytes() == content
    assert (tmp_path / "train" / "000000.parquet").stat().st_mtime_ns == kept.st_mtime_ns
    assert main(command(tmp_path, items=5)) == 2
    assert f"{tmp_path / 'train'}: its shards were made with items=8" in capsys.readouterr().err
