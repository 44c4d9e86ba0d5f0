"""`crossjem threshold`: finds the score below which items are filtered, and stores it with the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from crossjem_pl.cli.command import make_table, new_console

if TYPE_CHECKING:
    from crossjem_pl.rankers.threshold import StoredThreshold

__all__ = ["threshold"]

_BLOCK = 32
_ACCURACIES = ("positive_accuracy", "negative_accuracy", "overall_accuracy")


def threshold(
    model: Path,
    lists: Path,
    *,
    keep: float | None = None,
    precision: float | None = None,
    relevant_from: float = 1,
    device: str | None = None,
) -> None:
    """Finds the score below which items are filtered, and stores it with the model.

    Args:
        model: model folder, which gets the file threshold.json.
        lists: labelled ranking lists that the model was not trained on.
        keep: the highest threshold that keeps this share of the positives per query, on average (default 0.8).
        precision: instead, the lowest at which this share of the kept is positive.
        relevant_from: lowest label of a positive.
        device: cpu, cuda, ...; by default a GPU if there is one.
    """
    if keep is not None and precision is not None:
        raise ValueError("give one of --keep and --precision")
    if not model.is_dir():
        raise FileNotFoundError(
            f"no model folder {model}: the threshold is stored beside the weights. Write a hub model to a "
            "folder first (`Reranker.from_pretrained(name).save_pretrained(folder)`)"
        )
    from crossjem_pl.data.formats import read_lists
    from crossjem_pl.evaluation.threshold import choose_threshold
    from crossjem_pl.inference import Reranker
    from crossjem_pl.progress import track
    from crossjem_pl.rankers.threshold import write_threshold

    labelled = list(read_lists(lists))
    if unlabelled := [ranking_list.query_id for ranking_list in labelled if ranking_list.labels is None]:
        raise ValueError(f"{lists}: list {unlabelled[0]!r} has no labels, and a threshold needs them")
    reranker = Reranker(model, device=device)
    scores = []
    for first in track(range(0, len(labelled), _BLOCK), description="scoring"):
        scores += reranker.score(labelled[first : first + _BLOCK])
    stored = choose_threshold(
        labelled,
        scores,
        reranker.ranker,
        rule="keep" if precision is None else "precision",
        target=precision if precision is not None else 0.8 if keep is None else keep,
        relevant_from=relevant_from,
        data=lists.name,
        score_precision=reranker.precision,
    )
    path = write_threshold(stored, model)
    console = new_console()
    rows = [
        [f"{which}, {over}", *(_share(stored, f"{prefix}{name}{suffix}") for name in _ACCURACIES)]
        for prefix, which in (("", "this threshold"), ("own_", "each list its own"))
        for suffix, over in (("", "all pairs"), ("_per_list", "mean over lists"))
        if f"{prefix}{_ACCURACIES[0]}{suffix}" in stored.figures
    ]
    header = ["", *(name.replace("_", " ") for name in _ACCURACIES)]
    console.print(make_table(f"threshold {stored.threshold:.6g}: {stored.meaning}", header, rows))
    for line in _notes(stored, reranker.truncated):
        console.print(line, soft_wrap=True, markup=False)
    print(f"Wrote {path}")


def _notes(stored: StoredThreshold, truncated: int) -> Iterator[str]:
    """What the figures rest on."""
    figures = stored.figures
    if stored.rule == "keep":
        yield '"Each list its own" is the CROSS-JEM paper\'s measure: thresholds from the labels, to compare only.'
    yield (
        f"AUC {_share(stored, 'auc')} over all pairs, {_share(stored, 'auc_per_list')} mean over lists. "
        f"Kept per list: {figures['kept_per_list']:.1f} of {figures['items_per_list']:.1f} items; "
        f"{_share(stored, 'lists_left_empty')} of the lists keep none."
    )
    shares = {
        name: f"{_share(stored, name)} [{_share(stored, f'{name}_low')}, {_share(stored, f'{name}_high')}]"
        for name in ("kept_share", "precision")
    }
    yield (
        f"Kept share of a list's positives {shares['kept_share']}; precision {shares['precision']} (95% bootstrap "
        "intervals over lists)."
    )
    yield (
        f"It rests on {stored.lists:,} lists with {stored.positives:,} positives and {stored.negatives:,} negatives, "
        "and holds for lists like these: same source of queries, same number of candidates."
    )
    if stored.lists_without_positives:
        yield (
            f"{stored.lists_without_positives:,} of the lists have no positive: they count in the values over all "
            "pairs and the precision, and neither in the kept share nor among the lists with their own threshold."
        )
    if truncated:
        yield f"{truncated} texts were longer than the model's limits and were cut"


def _share(stored: StoredThreshold, name: str) -> str:
    value = stored.figures[name]
    return "–" if value is None else f"{value:.4f}"
