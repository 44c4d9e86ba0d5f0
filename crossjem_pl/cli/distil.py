"""`crossjem teach` and `blend`: targets of ranking lists, to distil from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

__all__ = ["blend", "teach"]


def teach(
    model: str,
    lists: Path,
    *,
    out: Path,
    shard: int = 0,
    shards: int = 1,
    block: int = 256,
    device: str | None = None,
    precision: Literal["float32", "bfloat16", "float16"] | None = None,
) -> None:
    """A model's scores of a file of lists.

    Args:
        model: model folder or hub repository.
        lists: file or folder of ranking lists.
        out: Parquet file to write.
        shard: this process's part.
        shards: how many processes share the work.
        block: lists per part.
        device: cpu, cuda, ...; by default a GPU if there is one.
        precision: by default as tuned.
    """
    from rich.progress import track

    from crossjem_pl.inference.teach import teach as score

    progress = partial(track, description="scoring")
    print(score(model, lists, out, shard, shards, block, device, precision, progress))


def blend(
    lists: Path, *, out: Path, model: str = "packaged:all-MiniLM-L6-v2", device: str | None = None
) -> None:
    """Graded targets from labels and a zero-shot bi-encoder, before there is a teacher.

    Args:
        lists: ranking lists with labels.
        out: Parquet file to write.
        model: dual encoder.
        device: cpu, cuda, ...; by default a GPU if there is one.
    """
    from rich.progress import track

    from crossjem_pl.inference.teach import blend as mix

    count = mix(model, lists, out, device=device, progress=partial(track, description="scoring"))
    print(f"wrote {out}: {count} lists")
