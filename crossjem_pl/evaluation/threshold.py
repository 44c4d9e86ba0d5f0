"""One score for all queries at which items are kept: how it is chosen and how well it does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import crossjem_pl
from crossjem_pl.evaluation.classification import (
    Accuracies,
    Kind,
    accuracies_at,
    accuracies_at_recall,
    auc_roc,
    auc_roc_per_list,
    positives,
)
from crossjem_pl.evaluation.significance import bootstrap_interval
from crossjem_pl.hashing import content_sha256, weights_sha256
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.threshold import Rule, StoredThreshold, pass_limits

__all__ = [
    "choose_threshold",
    "threshold_at_precision",
    "threshold_at_recall",
]

_ROUNDING = 1e-9
_KINDS: tuple[Kind, ...] = ("positive", "negative", "overall")


def threshold_at_recall(
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    keep: float = 0.8,
    *,
    per: Literal["list", "pair"] = "list",
    rel: float = 1,
) -> float:
    """The highest threshold for all lists that keeps the share `keep` of the positives.

    The share is the mean over the lists that have positives of the kept share of each (`per="list"`: every
    query weighs the same), or the share of all positive pairs (`per="pair"`). The threshold lies half-way to
    the next lower score of any item, so that the last bits of a score, which change with the batch and the
    machine, decide nothing.

    Args:
        scores, labels: [lists, items].
        mask: bool [lists, items].

    Raises:
        ValueError: if `keep` is not above 0 and at most 1, if there is no positive, and as in `auc_roc`.
    """
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be above 0 and at most 1, got {keep}")
    positive = positives(scores, labels, mask, rel)
    count = positive.sum(dim=1, keepdim=True)
    if not count.any():
        raise ValueError(f"no item has a label of at least {rel:g}, so there is nothing to keep")
    of = count * (count > 0).sum() if per == "list" else count.sum().expand_as(count)
    share = (1 / of.double()).expand(scores.shape)[positive]
    values, order = scores.float()[positive].sort(descending=True)
    reached = share[order].cumsum(dim=0) >= keep - _ROUNDING
    return _below(float(values[int(reached.int().argmax())]), scores.float()[mask])


def threshold_at_precision(
    scores: Tensor, labels: Tensor, mask: Tensor, precision: float = 0.9, *, rel: float = 1
) -> float:
    """The lowest threshold for all lists at which `precision` of the kept (query, item) pairs are positive.

    Precision is no monotone function of the threshold: above the one returned it may fall short again. The
    threshold lies half-way to the next lower score, as in `threshold_at_recall`.

    Args:
        scores, labels: [lists, items].
        mask: bool [lists, items].

    Raises:
        ValueError: if `precision` is not above 0 and at most 1, if no threshold reaches it (names the best
            that can be had), and as in `auc_roc`.
    """
    if not 0 < precision <= 1:
        raise ValueError(f"precision must be above 0 and at most 1, got {precision}")
    positive = positives(scores, labels, mask, rel)
    values, order = scores.float()[mask].sort(descending=True)
    if not len(values):
        raise ValueError("there are no items")
    right = positive[mask][order].cumsum(dim=0).double()
    found = right / torch.arange(1, len(values) + 1, device=values.device)
    last_of_ties = torch.ones_like(order, dtype=torch.bool)
    last_of_ties[:-1] = values[:-1] > values[1:]
    reached = (last_of_ties & (found >= precision - _ROUNDING)).nonzero()
    if not len(reached):
        best = float(found[last_of_ties].max())
        raise ValueError(f"no threshold has a precision of {precision:g}; the best of any is {best:.4f}")
    return _below(float(values[int(reached[-1])]), values)


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
    | `own_{positive,negative,overall}_accuracy`, `..._per_list` | rule "keep" only: with `accuracies_at_recall` |
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
    if len(lists) != len(scores):
        raise ValueError(f"{len(lists)} lists but {len(scores)} rows of scores")
    for one, row in zip(lists, scores, strict=True):
        if one.labels is None:
            raise ValueError(
                f"list {one.query_id!r}, field 'labels': a threshold needs labels, there are none"
            )
        if len(row) != len(one):
            raise ValueError(f"list {one.query_id!r}: {len(row)} scores for {len(one)} items")
    with_positives = sum(max(one.labels or ()) >= relevant_from for one in lists)
    if with_positives < 2:
        raise ValueError(
            f"{with_positives} of {len(lists)} lists have an item with a label of at least {relevant_from:g}; "
            "a threshold needs 2 at the least: one list says nothing about others"
        )
    padded = pad_sequence([row.float() for row in scores], batch_first=True)
    labels = pad_sequence([torch.tensor(one.labels, dtype=torch.float64) for one in lists], batch_first=True)
    mask = pad_sequence([torch.ones(len(one), dtype=torch.bool) for one in lists], batch_first=True)
    if rule == "keep":
        threshold = threshold_at_recall(padded, labels, mask, target, rel=relevant_from)
    elif rule == "precision":
        threshold = threshold_at_precision(padded, labels, mask, target, rel=relevant_from)
    else:
        raise ValueError(f"rule must be 'keep' or 'precision', got {rule!r}")
    found = accuracies_at(padded, labels, mask, threshold, rel=relevant_from)
    figures = _shares(found, seed) | _accuracies(found, "")
    if rule == "keep":
        own = accuracies_at_recall(padded, labels, mask, target, rel=relevant_from)
        figures |= _accuracies(own, "own_")
    figures["auc"] = float(auc_roc(padded, labels, mask, rel=relevant_from))
    figures["auc_per_list"] = float(auc_roc_per_list(padded, labels, mask, rel=relevant_from).nanmean())
    figures["items_per_list"] = float(mask.sum() / len(lists))
    figures["kept_per_list"] = float(found.kept.double().mean())
    figures["lists_left_empty"] = float((found.kept == 0).double().mean())
    return StoredThreshold(
        threshold,
        rule,
        float(target),
        float(relevant_from),
        len(lists),
        len(lists) - with_positives,
        int(found.positives.sum()),
        int(found.negatives.sum()),
        {name: None if math.isnan(value) else value for name, value in figures.items()},
        data,
        _lists_sha256(lists),
        weights_sha256(ranker),
        crossjem_pl.__version__,
        score_precision,
        pass_limits(ranker),
    )


def _below(kept: float, values: Tensor) -> float:
    """Half-way from the lowest kept score to the next lower finite one of `values`; `kept` if there is none."""
    lower = values[(values < kept) & values.isfinite()]
    return (kept + float(lower.max())) / 2 if len(lower) else kept


def _shares(found: Accuracies, seed: int) -> dict[str, float]:
    per_list = found.per_list("positive")
    share = per_list[~per_list.isnan()].numpy()
    low, high = bootstrap_interval(share, seed=seed)
    kept, right = (n.double().numpy() for n in (found.kept, found.kept_positives))
    figures = {
        "kept_share": float(share.mean()),
        "kept_share_low": float(low),
        "kept_share_high": float(high),
    }
    if not kept.any():
        return figures | dict.fromkeys(("precision", "precision_low", "precision_high"), math.nan)
    precision = right.sum() / kept.sum()
    low, high = np.clip(
        precision + bootstrap_interval((right - precision * kept) / kept.mean(), seed=seed), 0, 1
    )
    return figures | {
        "precision": float(precision),
        "precision_low": float(low),
        "precision_high": float(high),
    }


def _accuracies(found: Accuracies, prefix: str) -> dict[str, float]:
    pooled = {f"{prefix}{kind}_accuracy": found.pooled(kind) for kind in _KINDS}
    return pooled | {f"{prefix}{kind}_accuracy_per_list": found.mean(kind) for kind in _KINDS}


def _lists_sha256(lists: Sequence[RankingList]) -> str:
    return content_sha256(
        repr((one.query_id, one.query, one.item_ids, one.items, one.labels)) for one in lists
    )
