"""`crossjem tune`: the fastest passes, precision and compilation of a model here, and other models beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from crossjem_pl.cli.command import make_table, new_console

if TYPE_CHECKING:
    from rich.table import Table

    from crossjem_pl.inference import RankedItem, Reranker
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
    against: Sequence[str] = (),
    device: str | None = None,
    save: bool = False,
) -> None:
    """Measures the fastest passes and precision of a model on this machine, and how it compares with other models.

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
        against: further models to time in turn with the tuned one: of another form, or exported, in 8 bits too.
            Where the lists have labels their metrics are printed.
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

    sample = sample_lists(lists, samples, items, labels=bool(against))
    chosen = [each.select(range(min(len(each), items))) for each in sample]
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
    if against:
        names = [f"{model}, tuned", *against]
        models = [reranker, *(Reranker(other, device=device) for other in against)]
        new_console().print(_table(dict(zip(names, models, strict=True)), chosen, rounds))
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


def sample_lists(path: Path | None, count: int, items: int, labels: bool = False) -> list[RankingList]:
    """The first lists of a file, with their labels if wanted; without one, simulated lists of `items` items.

    Raises:
        ValueError: if there are no lists.
    """
    from crossjem_pl.data.formats import read_lists
    from crossjem_pl.data.simulator import simulate

    if path is None:
        return list(simulate(count, items, seed=1))
    lists = list(
        islice(read_lists(path, label_column="labels" if labels else None, score_column=None), count)
    )
    if not lists:
        raise ValueError(f"{path}: no lists")
    return lists


def _table(models: Mapping[str, Reranker], lists: Sequence[RankingList], rounds: int) -> Table:
    """Milliseconds of every model from texts to sorted items, in turn, and metrics where all lists have labels.

    Every list has been ranked before: tokens and vectors of items are cached. A model that stores states of items is
    measured once more by id.
    """
    import torch

    from crossjem_pl.evaluation.metrics import RankingMetrics
    from crossjem_pl.inference.timing import take_turns
    from crossjem_pl.progress import track
    from crossjem_pl.rankers.neural import NeuralRanker
    from crossjem_pl.text.token_store import TokenStore

    measures = ("RR@10", "nDCG@10") if all(one.labels is not None for one in lists) else ()
    ids = {id(one): [f"{number} {i}" for i in range(len(one))] for number, one in enumerate(lists)}

    def ranked(model: Reranker, one: RankingList) -> list[RankedItem]:
        return model.rank(one.query, one.items if model.store is None else ids[id(one)])

    with TemporaryDirectory() as folder:
        running = dict(models)
        for name, model in models.items():
            ranker = model.ranker
            if isinstance(ranker, NeuralRanker) and (states := ranker.store_states()) is not None:
                texts = (pair for one in lists for pair in zip(ids[id(one)], one.items, strict=True))
                where = Path(folder) / str(len(running))
                store = TokenStore.build(where, texts, ranker.tokenizer, ranker.max_item_tokens, states)
                running[f"{name}, by id"] = copy(model)  # in the same configuration
                running[f"{name}, by id"].store = store
        metrics = {name: RankingMetrics(measures) for name in running if measures}
        for name in metrics:
            for one in lists:
                scores = torch.empty(1, len(one))
                for row in ranked(running[name], one):
                    scores[0, row.index] = row.score
                labels, mask = torch.tensor([one.labels]), torch.ones(1, len(one), dtype=torch.bool)
                metrics[name].update([one.query_id], [one.item_ids], scores, labels, mask)
        calls = {name: partial(ranked, model) for name, model in running.items()}
        turns = track([*lists] * (rounds + 1), description="comparing")
        times = take_turns(calls, turns, warmup=len(lists))
    own = next(iter(models))
    rows = [
        (
            name,
            f"{taken.median:.1f}",
            f"{taken.ratio(times[own]):.2f}",
            *(f"{value:.4f}" for value in (metrics[name].compute().values() if measures else ())),
        )
        for name, taken in times.items()
    ]
    return make_table(
        f"{len(lists)} lists, one at a time", ("", "ms a list (median)", "of the first", *measures), rows
    )
