"""One score for all queries at which items are kept: how it is chosen and how well it does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

import crossjem_pl
from crossjem_pl.evaluation.classification import Pairs, Share
from crossjem_pl.evaluation.metrics import padded_pairs
from crossjem_pl.evaluation.significance import bootstrap_interval
from crossjem_pl.hashing import content_sha256, weights_sha256
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.threshold import Rule, StoredThreshold, pass_limits

__all__ = ["choose_threshold"]


def choose_threshold(
    lists: Sequence[RankingList],
    scores: Sequence[Tensor],
    ranker: Ranker,
    *,
    rule: Rule = "keep",
    target: float = 0.8,
    relevant_from: float = 1,
    data: str = "",
    score_precision: str = "float32",
    seed: int = 0,
) -> StoredThreshold:
    """Chooses a threshold on labelled lists and measures it there.

    Nothing is assumed about how scores are distributed: the threshold is an order statistic of the scores, and
    the intervals are 95% percentile bootstrap intervals over the lists at the threshold as it is. They say how
    far the share may be off on other lists of the same kind, and nothing about lists of another kind.

    The figures, shares in [0, 1], None where not defined:

    | name | |
    | --- | --- |
    | `kept_share`, `_low`, `_high` | kept share of a list's positives, mean over the lists that have some |
    | `precision`, `_low`, `_high` | positive share of the kept items of all lists; interval of the linearised ratio |
    | `{positive,negative,overall}_accuracy` | over all pairs; `..._per_list` mean over lists |
    | `own_{positive,negative,overall}_accuracy`, `..._per_list` | rule "keep" only: at `recall_thresholds` |
    | `auc`, `auc_per_list` | over all pairs; mean over the lists where it is defined |
    | `items_per_list`, `kept_per_list` | means over all lists |
    | `lists_left_empty` | share of all lists of which nothing is kept |

    Args:
        lists: with labels.
        scores: float [items] for each list: the ranker's own scores, in the items' order.
        ranker: what has scored; its weights and its limits of a pass are read.
        rule, target, relevant_from, data, score_precision: see `StoredThreshold`.
        seed: of the bootstrap.

    Raises:
        ValueError: for lists without labels (names the first), unequal lengths, fewer than 2 lists with
            positives, or a rule that cannot be met.
    """
    for ranking_list, row in zip(lists, scores, strict=True):
        if ranking_list.labels is None:
            raise ValueError(f"list {ranking_list.query_id!r}, field 'labels': a threshold needs labels")
        if len(row) != len(ranking_list):
            raise ValueError(f"list {ranking_list.query_id!r}: {len(row)} scores, {len(ranking_list)} items")
        if row.isnan().any():
            raise ValueError(f"list {ranking_list.query_id!r} has a NaN score")
    with_positives = sum(max(ranking_list.labels or ()) >= relevant_from for ranking_list in lists)
    if with_positives < 2:
        raise ValueError(
            f"{with_positives} of {len(lists)} lists have an item with a label of at least {relevant_from:g}; "
            "a threshold needs 2 at the least: one list says nothing about others"
        )
    pairs = Pairs(*padded_pairs(scores, [one.labels or () for one in lists]), relevant_from)
    threshold = {"keep": pairs.threshold_at_recall, "precision": pairs.threshold_at_precision}[rule](target)
    found = pairs.accuracies(threshold)
    kept = found["positive"].right + found["negative"].total - found["negative"].right
    figures = _shares(found["positive"], kept, seed) | _accuracies(found, "")
    if rule == "keep":
        figures |= _accuracies(pairs.accuracies(pairs.recall_thresholds(target)), "own_")
    figures |= {"auc": pairs.auc(), "auc_per_list": float(pairs.auc_per_list().nanmean())}
    figures |= {
        "items_per_list": int(pairs.mask.sum()) / len(lists),
        "kept_per_list": float(kept.double().mean()),
    }
    figures["lists_left_empty"] = float((kept == 0).double().mean())
    return StoredThreshold(
        threshold,
        rule,
        float(target),
        float(relevant_from),
        len(lists),
        len(lists) - with_positives,
        int(found["positive"].total.sum()),
        int(found["negative"].total.sum()),
        {name: None if math.isnan(value) else value for name, value in figures.items()},
        data,
        content_sha256(repr((one.query_id, one.query, one.item_ids, one.items, one.labels)) for one in lists),
        weights_sha256(ranker),
        crossjem_pl.__version__,
        score_precision,
        pass_limits(ranker),
    )


def _shares(positive: Share, kept: Tensor, seed: int) -> dict[str, float]:
    """Kept share of the positives and precision, with intervals over lists; `kept`: items of each list, [lists]."""
    share, all_kept = positive.per_list[positive.total > 0].numpy(), kept.double().numpy()
    values = {
        "kept_share": [share.mean(), *bootstrap_interval(share, seed=seed)],
        "precision": [math.nan] * 3,
    }
    if all_kept.any():
        mean = positive.right.sum().item() / all_kept.sum()
        linearised = (positive.right.numpy() - mean * all_kept) / all_kept.mean()
        values["precision"] = [mean, *np.add(mean, bootstrap_interval(linearised, seed=seed)).clip(0, 1)]
    return {
        name + end: float(number)
        for name, numbers in values.items()
        for end, number in zip(("", "_low", "_high"), numbers, strict=True)
    }


def _accuracies(shares: dict[str, Share], prefix: str) -> dict[str, float]:
    pooled = {f"{prefix}{kind}_accuracy": share.pooled for kind, share in shares.items()}
    means = {kind: float(share.per_list.nanmean()) for kind, share in shares.items()}
    return pooled | {f"{prefix}{kind}_accuracy_per_list": mean for kind, mean in means.items()}
