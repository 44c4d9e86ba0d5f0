"""`crossjem export`: a model for ONNX Runtime or OpenVINO, and whether it pays."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from crossjem_pl.cli.command import make_table, new_console
from crossjem_pl.cli.tune import sample_lists

__all__ = ["export"]

_TOLERANCE = 1e-3
_ROUNDS = 4


def export(
    model: str,
    *,
    to: Literal["onnx", "openvino"],
    out: Path,
    int8: bool = False,
    lists: Path | None = None,
    samples: int = 8,
) -> None:
    """Writes a model as ONNX or OpenVINO, and compares the two.

    Args:
        model: model folder or hub repository.
        to: the runtime.
        out: folder to write.
        int8: 8-bit weights in the matrix products.
        lists: ranking lists to compare the two models on (default: simulated ones of 100 items).
        samples: how many of these lists.
    """
    if samples < 1:
        raise ValueError(f"--samples must be at least 1, got {samples}")
    import torch

    from crossjem_pl.hashing import weights_sha256
    from crossjem_pl.inference import Reranker
    from crossjem_pl.inference.agreement import agreement
    from crossjem_pl.inference.export.runtimes import BACKENDS
    from crossjem_pl.inference.export.write import export_ranker
    from crossjem_pl.inference.timing import take_turns
    from crossjem_pl.lists import counted
    from crossjem_pl.progress import track
    from crossjem_pl.rankers.threshold import write_threshold

    compared = sample_lists(lists, samples, 100)
    original = Reranker(model, device="cpu", precision="float32", backend="torch")  # as the runtimes compute
    stale = ""
    try:
        threshold = original.threshold
    except ValueError as error:
        threshold, stale = None, str(error).partition(";")[0]
    description = export_ranker(original.ranker, out, to, int8, str(model))
    exported = Reranker(out, backend=to)
    expected = original.score(compared)
    found = agreement(expected, exported.score(compared))
    largest = max(float(scores.abs().max()) for scores in expected)
    candidates = {"torch": lambda one: original.score([one]), "exported": lambda one: exported.score([one])}
    turns = track([*compared] * _ROUNDS, description="comparing")
    times = take_turns(candidates, turns, warmup=len(compared))
    torch_ms, own_ms = times["torch"].median, times["exported"].median
    torch_bytes = sum(value.nbytes for value in original.ranker.state_dict().values())
    own_bytes = sum((out / name).stat().st_size for name in BACKENDS[to].files)
    header = ("", "weights, MB", "ms a list (median)", "greatest score difference", "Kendall tau")
    speed = f"{own_ms:.1f} ({torch_ms / own_ms:.2f}x as fast)"
    difference = f"{found.difference:.2g} of scores up to {largest:.2g}"
    kind = f"{description.backend} {description.precision}"
    rows = [
        ("torch float32", f"{torch_bytes / 1e6:.1f}", f"{torch_ms:.1f}", "", ""),
        (kind, f"{own_bytes / 1e6:.1f}", speed, difference, f"{found.tau:.4f}"),
    ]
    title = f"{counted(len(compared), 'list')}, one at a time, {counted(torch.get_num_threads(), 'thread')}"
    new_console().print(make_table(title, header, rows))
    if not int8 and found.difference > _TOLERANCE * max(1.0, largest):
        raise ValueError(
            f"{out}: scores differ by up to {found.difference:.3g} from the original's: the export "
            "went wrong and must not be used"
        )
    if stale or (threshold is not None and int8):
        why = stale or "scores have shifted"
        print(f"The threshold is not carried over: {why}; choose one: `crossjem threshold {out} LISTS`")
    elif threshold is not None:
        own = dataclasses.replace(threshold, weights_sha256=weights_sha256(exported.ranker))
        write_threshold(own, out)
        print("The model's threshold goes with it.")
    print(f"Wrote {out}")
