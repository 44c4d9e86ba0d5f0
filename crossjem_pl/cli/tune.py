"""`crossjem tune`: the fastest passes, precision and compilation of a model on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from crossjem_pl.lists import RankingList

__all__ = ["sample_lists", "tune"]


def tune(
    model: str,
    lists: Path | None = None,
    *,
    items: int = 700,
    samples: int = 3,
    rounds: int = 3,
    no_passes: bool = False,
    precisions: Sequence[Literal["bfloat16", "float16"]] = ("bfloat16",),
    compile: bool = False,
    min_tau: float = 0.95,
    device: str | None = None,
    save: bool = False,
) -> None:
    """Measures the fastest passes and precision of a model on this machine.

    Args:
        model: model folder or hub repository.
        lists: ranking lists like those to come, longer ones are cut to --items (default: simulated).
        items: items of a list.
        samples: how many lists.
        rounds: how often each is timed.
        no_passes: keep the model's split into passes.
        precisions: lower precisions to try; none: --precisions with nothing after it.
        compile: try torch.compile, which takes up to a minute.
        min_tau: least Kendall tau with the ranking in float32 by the model's own passes.
        device: cpu, cuda, ...; by default a GPU if there is one.
        save: store the choice in the model folder.
    """
    for name, value in (("items", items), ("samples", samples)):
        if value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}")
    if save and not Path(model).is_dir():
        raise ValueError(f"--save needs a model folder, and {model} is none")
    from crossjem_pl.inference import Reranker
    from crossjem_pl.inference.configuration import save_configuration
    from crossjem_pl.inference.tune import Bounds
    from crossjem_pl.lists import counted
    from crossjem_pl.rankers.threshold import THRESHOLD_FILE, read_threshold, write_threshold

    chosen = [each.select(range(min(len(each), items))) for each in sample_lists(lists, samples, items)]
    reranker = Reranker(model, device=device)
    stored = Path(model) / THRESHOLD_FILE
    threshold = read_threshold(stored).of_folder(reranker.ranker) if stored.exists() else None
    report = reranker.tune(
        chosen,
        passes=not no_passes,
        precisions=precisions,
        compile=compile,
        bounds=Bounds(tau=min_tau),
        rounds=rounds,
    )
    print(
        f"{counted(len(chosen), 'list')} of {min(map(len, chosen))} to {max(map(len, chosen))} items, {reranker.device}"
    )
    print(report)
    if not save:
        return
    if threshold is not None:
        write_threshold(threshold, model)  # with its pass limits, which version 0.1 did not write
        if report.chosen != report.before:
            print(
                f"{stored} was chosen on the scores of the former configuration and no longer fits; choose it "
                f"again with: crossjem threshold {model} LISTS"
            )
    save_configuration(model, report.chosen, reranker.device)
    print(f"Saved in {Path(model) / 'config.json'}")


def sample_lists(path: Path | None, count: int, items: int) -> list[RankingList]:
    """The first lists of a file; without one, simulated lists of `items` items.

    Raises:
        ValueError: if there are no lists.
    """
    from crossjem_pl.data.formats import read_lists
    from crossjem_pl.data.simulator import simulate

    read = (
        simulate(count, items, seed=1)
        if path is None
        else read_lists(path, label_column=None, score_column=None)
    )
    lists = list(islice(read, count))
    if not lists:
        raise ValueError(f"{path}: no lists")
    return lists
