"""Ranking metrics: of padded tensors, of a training's validations (`RankingMetrics`) and of a run (`evaluate_run`).

RR, AP, nDCG, P and R are pure functions on padded tensors, the same ones for monitoring and for reports; values equal
those of ir-measures to 1e-6. AUC and the accuracies at a threshold are in `classification`. Everything else that has an
ir-measures name is computed by ir-measures, on the same ranking.

- Rank order: score descending; equal scores by item id descending, the rule of trec_eval. Scores are compared as
  float32, as trec_eval does.
- An item is relevant when its label >= `rel`. Gains of nDCG are the labels themselves, any non-negative float;
  negative labels gain nothing, as in trec_eval.
- A list without relevant items has the value 0. It counts in a mean over lists, as a query whose judgements are all
  zero counts in ir-measures.
- `judged` [lists, judged]: the labels of everything that is judged for the query, candidates included, padded with
  0. Where only the candidates are known, nDCG, AP and recall are too high for a query with relevant items outside.
"""

from __future__ import annotations

import hashlib
import math
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ir_measures
import ir_measures.measures
import numpy as np
import torch
from ir_measures.measures import ParamInfo, registry
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torchmetrics import Metric

from crossjem_pl.data.trec import ranked as ranked_ids
from crossjem_pl.files import replacing, write_json
from crossjem_pl.rankers.base import import_named

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Evaluation",
    "RankingMetrics",
    "compute",
    "evaluate_run",
    "is_vectorised",
    "parse_measures",
    "rank_items",
    "register_metric",
    "tie_order",
]

PAIR_MEASURES = ("AUC", "PosAcc", "NegAcc", "Acc")
"""Names that `classification` registers with ir-measures."""

_BLOCK = 1024
"""Lists of a run that are padded to one width at a time."""

Run = Mapping[str, Mapping[str, float]]
Qrels = Mapping[str, Mapping[str, float]]


def reciprocal_rank(ranked: Tensor, judged: Tensor, k: int | None, rel: float) -> Tensor:
    """RR@k = 1 / rank of the first relevant item, 0 if it is below rank k. Float [lists].

    Args:
        ranked: labels in rank order [lists, items], 0 on padding; so for all metrics here.
        judged: labels of all judged items [lists, judged]; not used by this metric.
        k: cut-off, None for the whole list.
        rel: lowest label that is relevant.
    """
    relevant = (ranked[:, :k] >= rel).to(ranked.dtype)
    return (relevant / _ranks(relevant)).amax(dim=1)


def average_precision(ranked: Tensor, judged: Tensor, k: int | None, rel: float) -> Tensor:
    """AP@k = 1/R * sum over relevant ranks i <= k of P@i, R = all relevant items. Float [lists].

    R is not cut at k (trec_eval's `map_cut`), so AP@k of a query with more than k relevant items stays below 1.
    """
    relevant = (ranked[:, :k] >= rel).to(ranked.dtype)
    precisions = relevant.cumsum(dim=1) / _ranks(relevant)
    return (relevant * precisions).sum(dim=1) / (judged >= rel).sum(dim=1).clamp(min=1)


def ndcg(ranked: Tensor, judged: Tensor, k: int | None, rel: float) -> Tensor:
    """nDCG@k = DCG@k / ideal DCG@k, DCG@k = sum over ranks i <= k of gain_i / log2(i + 1). Float [lists].

    The gain is the label (not 2^label - 1), Järvelin and Kekäläinen 2002 as in trec_eval; `rel` plays no part.
    """

    def dcg(labels: Tensor) -> Tensor:
        gains = labels[:, :k].clamp(min=0)
        return (gains / torch.log2(_ranks(gains) + 1)).sum(dim=1)

    ideal = dcg(judged.sort(dim=1, descending=True).values)
    return torch.where(ideal > 0, dcg(ranked) / ideal.where(ideal > 0, 1.0), 0.0)


def precision(ranked: Tensor, judged: Tensor, k: int | None, rel: float) -> Tensor:
    """P@k = relevant items among the first k, over k even where a list is shorter. Float [lists]."""
    return (ranked[:, :k] >= rel).sum(dim=1).to(ranked.dtype) / (k or ranked.shape[1])


def recall(ranked: Tensor, judged: Tensor, k: int | None, rel: float) -> Tensor:
    """R@k = relevant items among the first k, over all relevant items. Float [lists]."""
    found = (ranked[:, :k] >= rel).sum(dim=1).to(ranked.dtype)
    return found / (judged >= rel).sum(dim=1).clamp(min=1)


_FUNCTIONS: dict[str, Callable[[Tensor, Tensor, int | None, float], Tensor]] = {
    "RR": reciprocal_rank,
    "AP": average_precision,
    "nDCG": ndcg,
    "P": precision,
    "R": recall,
}


def register_metric(name: str, function: Callable[[Tensor, Tensor, int | None, float], Tensor]) -> None:
    """Adds a metric of your own. "MODULE:NAME@10" then names it everywhere, and imports MODULE if it has to.

    Args:
        name: letters and digits, not yet taken.
        function: of `ranked` [lists, items], labels in rank order with 0 on padding; `judged` [lists, judged], labels
            of everything that is judged; the cut-off k or None; and the lowest relevant label. Float [lists].

    Raises:
        ValueError: if the name is taken or not one of ir-measures' form.
    """
    known = getattr(_FUNCTIONS.get(name), "__module__", None)
    taken = name in PAIR_MEASURES or (name in registry and known != function.__module__)
    if taken or not name.isalnum():
        raise ValueError(f"a metric cannot be named {name!r}: taken, or not letters and digits")
    _FUNCTIONS[name] = function
    params = {"cutoff": ParamInfo(dtype=int, required=False), "rel": ParamInfo(dtype=float, default=1)}
    fields = {"__name__": name, "NAME": name, "SUPPORTED_PARAMS": params}
    registry[name] = type(name, (ir_measures.measures.Measure,), fields)()


def is_vectorised(measure: ir_measures.Measure) -> bool:
    """Whether `compute` knows the measure: RR, AP, nDCG, P, R, a registered one; with cut-off and `rel` at the most."""
    return measure.NAME in _FUNCTIONS and set(measure.params) <= {"cutoff", "rel"}


def compute(
    names: Sequence[str],
    scores: Tensor,
    labels: Tensor,
    mask: Tensor,
    tie_order: Tensor,
    *,
    judged: Tensor | None = None,
    relevant_from: float = 1,
) -> dict[str, Tensor]:
    """Several metrics by name: `{name as given: float [lists]}`, float64 for float64 labels, else float32.

    Args:
        names: ir-measures strings of RR, AP, nDCG, P and R, with or without a cut-off ("RR@10", "AP",
            "P(rel=2)@5"), their aliases ("MRR@10", "MAP@10"), and registered ones ("my_metrics:Hits@5").
        scores, labels: [lists, items].
        mask: bool [lists, items], True on items.
        tie_order: int64 [lists, items], see the function of that name.
        judged: [lists, judged], labels of all judged items; None where the candidates are all.
        relevant_from: lowest label that is relevant, for the names that do not say `rel` themselves.

    Raises:
        ValueError: for an unknown name, a measure that only ir-measures knows, unequal shapes, a NaN score, or
            `relevant_from` at or below 0, the label of what is not judged.
    """
    measures = _check(names, relevant_from)
    ranked = ranked_labels(scores, labels, mask, tie_order)
    if judged is not None and (judged.ndim != 2 or len(judged) != len(ranked)):
        raise ValueError(f"judged must be [{len(ranked)} lists, judged], got {tuple(judged.shape)}")
    everything = ranked if judged is None else judged.to(ranked.dtype)
    result = {}
    for name, measure in measures.items():
        rel = measure.params.get("rel", relevant_from)
        result[name] = _FUNCTIONS[str(measure.NAME)](ranked, everything, measure.params.get("cutoff"), rel)
    return result


def tie_order(item_ids: Sequence[Sequence[str]]) -> Tensor:
    """Ranks of the ids of each list in descending string order: int64 [lists, max_items], padding last.

    Code points are compared, which for UTF-8 is the byte order of trec_eval's `strcmp`.
    """
    order = torch.arange(max((len(ids) for ids in item_ids), default=0)).repeat(len(item_ids), 1)
    for row, ids in enumerate(item_ids):
        descending = sorted(range(len(ids)), key=ids.__getitem__, reverse=True)
        order[row, torch.tensor(descending, dtype=torch.long)] = torch.arange(len(ids))
    return order


def ranked_labels(scores: Tensor, labels: Tensor, mask: Tensor, tie_order: Tensor) -> Tensor:
    """Labels in rank order [lists, items], float, 0 on padding, which comes last; the errors are those of `compute`."""
    if scores.ndim != 2 or not scores.shape == labels.shape == mask.shape == tie_order.shape:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (scores, labels, mask, tie_order))
        raise ValueError(f"scores, labels, mask and tie_order must all be [lists, items]; got {shapes}")
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be bool, got {mask.dtype}")
    bad = (scores.isnan() & mask).any(dim=1)
    if bad.any():
        raise ValueError(f"list {int(bad.nonzero()[0])} of the batch has a NaN score")
    by_id = tie_order.masked_fill(~mask, torch.iinfo(torch.long).max).argsort(dim=1)
    filled = scores.float().masked_fill(~mask, -torch.inf).gather(1, by_id)
    order = by_id.gather(1, filled.argsort(dim=1, descending=True, stable=True))
    gains = labels.to(torch.promote_types(labels.dtype, torch.float32))
    return gains.masked_fill(~mask, 0).gather(1, order)


def parse_measures(names: Sequence[str], relevant_from: float = 1) -> dict[str, ir_measures.Measure]:
    """`{name as given: ir-measures object}`.

    Raises:
        ValueError: for no names, a name that ir-measures does not know, bad parameters, a cut-off below 1, two names
            of one measure, or a lowest relevant label (`relevant_from` where a name has no `rel`) that is not above
            0, the label of what is not judged.
    """
    if isinstance(names, str) or not names:
        raise ValueError(f"expected a sequence of metric names such as ['RR@10'], got {names!r}")
    if any(name.startswith(PAIR_MEASURES) for name in names):
        import_module("crossjem_pl.evaluation.classification")  # registers them
    measures: dict[str, ir_measures.Measure] = {}
    for name in names:
        try:
            module, _, short = name.partition(":")
            if short and re.fullmatch(r"[\w.]+", module):  # no part of "nDCG(gains={1: 3})@10"
                import_named(module)
            else:
                short = name
            measure = ir_measures.parse_measure(short)
            measure.validate_params()
        except (ImportError, ValueError, NameError, AssertionError, SyntaxError, TypeError) as error:
            raise ValueError(f"metric {name!r}: {error or 'not an ir-measures name'}") from error
        if measure.params.get("cutoff", 1) < 1:
            raise ValueError(f"metric {name!r}: the cut-off must be at least 1")
        lowest = measure.params.get("rel", relevant_from)
        if not lowest > 0:
            raise ValueError(f"metric {name!r}: the lowest relevant label must be above 0, got {lowest}")
        if measure in measures.values():
            raise ValueError(f"metric {name!r} is named twice in {list(names)}")
        measures[name] = measure
    return measures


class RankingMetrics(Metric):
    """Means over all lists of all processes, every query counted once.

    A `DistributedSampler` hands some lists out twice so that all processes make the same number of steps. The values
    of each list are gathered under a 128-bit hash of its query id, and repeated queries count once.

    Args:
        names: of the metrics, see `compute`.
        relevant_from: lowest label that is relevant, for the names that do not say `rel` themselves.

    >>> metrics = RankingMetrics(["RR@10"])
    >>> scores, labels = torch.tensor([[0.2, 0.9]]), torch.tensor([[1.0, 0.0]])
    >>> metrics.update(["q1"], [["a", "b"]], scores, labels, torch.ones(1, 2, dtype=torch.bool))
    >>> metrics.compute()
    {'RR@10': 0.5}
    """

    full_state_update = False
    query_keys: list[Tensor]
    list_values: list[Tensor]

    def __init__(self, names: Sequence[str], relevant_from: float = 1, **options: Any) -> None:
        super().__init__(**options)
        self.names, self.relevant_from = tuple(_check(names, relevant_from)), relevant_from
        self.add_state("query_keys", default=[], dist_reduce_fx="cat")
        self.add_state("list_values", default=[], dist_reduce_fx="cat")
        self.reset()

    def reset(self) -> None:
        super().reset()
        # rows of no list: a process without lists takes part in the gathering
        self.query_keys.append(torch.zeros(0, 2, dtype=torch.long, device=self.device))
        self.list_values.append(torch.zeros(0, len(self.names), device=self.device))

    def update(
        self,
        query_ids: Sequence[str],
        item_ids: Sequence[Sequence[str]],
        scores: Tensor,
        labels: Tensor,
        mask: Tensor,
        judged: Tensor | None = None,
    ) -> None:
        """Adds lists; the tensors are those of `compute`. A ValueError where the ids are not as many as the lists."""
        if not len(query_ids) == len(item_ids) == len(scores):
            raise ValueError(
                f"{len(query_ids)} query ids, {len(item_ids)} lists of ids, {len(scores)} of scores"
            )
        tensors, order = (scores, labels, mask), tie_order(item_ids).to(scores.device)
        values = compute(self.names, *tensors, order, judged=judged, relevant_from=self.relevant_from)
        texts = (query.encode("utf-8", "surrogatepass") for query in query_ids)
        hashes = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
        keys = torch.frombuffer(bytearray(hashes), dtype=torch.long).view(-1, 2)
        self.query_keys.append(keys.to(self.device))
        self.list_values.append(torch.stack([row.float() for row in values.values()], dim=1).to(self.device))

    def compute(self) -> dict[str, float]:
        """The mean of each metric, NaN where there are no lists."""
        # a state is one tensor after the processes were synchronised, else a list of tensors
        states = (self.query_keys, self.list_values)
        keys, values = (torch.cat(s).cpu() if isinstance(s, list) else s.cpu() for s in states)
        unique, inverse = keys.unique(dim=0, return_inverse=True)
        first = torch.zeros(len(unique), dtype=torch.long).scatter_(0, inverse, torch.arange(len(keys)))
        means = values[first].double().mean(dim=0)
        return dict(zip(self.names, means.tolist(), strict=True))


def _check(names: Sequence[str], relevant_from: float) -> dict[str, ir_measures.Measure]:
    measures = parse_measures(names, relevant_from)
    for name, measure in measures.items():
        if not is_vectorised(measure):
            raise ValueError(f"metric {name!r} is for evaluate_run only; per list: RR, AP, nDCG, P, R")
    return measures


def _ranks(ranked: Tensor) -> Tensor:
    return torch.arange(1, ranked.shape[1] + 1, device=ranked.device, dtype=ranked.dtype)


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate_run` returns.

    Args:
        per_query: one row per judged query (index `query_id`, sorted), one float64 column per metric. NaN where
            the metric is not defined: AUC without both positives and negatives, accuracies without positives.
        missing: judged queries that the run does not hold. Each counts as 0 in every mean.
        unjudged: queries of the run without judgements. They count nowhere.
        pooled: of AUC and accuracies: the value over all (query, item) pairs of the run's judged queries
            together, as the CROSS-JEM paper's tables have it. No mean of anything per query.
        relevant_from: lowest relevance that is relevant, for the metrics that do not say `rel` themselves.
    """

    per_query: pd.DataFrame
    missing: tuple[str, ...]
    unjudged: tuple[str, ...]
    pooled: dict[str, float] = field(default_factory=dict)
    relevant_from: float = 1

    @property
    def means(self) -> dict[str, float]:
        """Mean of each metric over all judged queries for which it is defined; NaN if there are none."""
        return {str(name): float(value) for name, value in self.per_query.mean().items()}

    @property
    def undefined(self) -> dict[str, int]:
        """Judged queries that a metric's mean leaves out, for the metrics that have such."""
        return {str(name): int(count) for name, count in self.per_query.isna().sum().items() if count}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: the fields, the means, the number of judged queries; None for what is not defined."""
        rows = self.per_query.to_dict(orient="index")
        return {
            "means": _defined(self.means),
            "pooled": _defined(self.pooled),
            "undefined": self.undefined,
            "queries": len(self.per_query),
            "relevant_from": self.relevant_from,
            "missing": list(self.missing),
            "unjudged": list(self.unjudged),
            "per_query": {str(query): _defined(row) for query, row in rows.items()},
        }

    def to_markdown(self) -> str:
        """A table of the means and pooled values, and a line for what they leave out or count as 0."""
        lines = ["| metric | mean over queries | all pairs |", "| --- | ---: | ---: |"]
        for name, mean in self.means.items():
            cells = (mean, *([self.pooled[name]] if name in self.pooled else []))
            texts = ["undefined" if math.isnan(cell) else f"{cell:.4f}" for cell in cells]
            lines.append(f"| {name} | {' | '.join([*texts, ''][:2])} |")
        lines += ["", f"{len(self.per_query)} judged queries."]
        lines += [
            f"{n} of them have no {name} and are left out of its mean." for name, n in self.undefined.items()
        ]
        if self.relevant_from != 1:
            lines.append(f"Relevant are grades of at least {self.relevant_from:g}.")
        if self.missing:
            lines.append(f"{len(self.missing)} of them are missing from the run and count as 0.")
        if self.unjudged:
            lines.append(f"{len(self.unjudged)} queries of the run are not judged and are left out.")
        return "\n".join(lines) + "\n"

    def write(self, folder: str | Path, prefix: str = "") -> None:
        """Writes `<prefix>metrics.json` (`to_dict`) and `<prefix>metrics.md` (`to_markdown`) into `folder`."""
        write_json(Path(folder) / f"{prefix}metrics.json", self.to_dict())
        with replacing(Path(folder) / f"{prefix}metrics.md") as file:
            file.write(self.to_markdown().encode())


def evaluate_run(run: Run, qrels: Qrels, names: Sequence[str], *, relevant_from: float = 1) -> Evaluation:
    """Evaluates a run; the figures are those of ir-measures on a run without ties.

    The providers of ir-measures break ties differently: trec_eval by id descending on float32 scores, the MS MARCO
    script behind RR@k by id ascending on float64. Here all metrics see one ranking, that of `rank_items`.

    Args:
        run: query id -> item id -> score.
        qrels: query id -> item id -> graded relevance; whole numbers for what ir-measures computes.
        names: ir-measures strings, aliases included ("RR@10", "MRR@10", "nDCG@10"), "AUC", "PosAcc@80",
            "NegAcc@80", "Acc@80" and, with one threshold for all queries, "NegAcc(threshold='run')@80". The last
            kinds look at the items of the run only; an item that is not judged is a negative.
        relevant_from: lowest relevance that is relevant, for the names that do not say `rel` themselves.

    Raises:
        ValueError: for a bad metric name, no judgements, a relevance that is no finite number or, for
            ir-measures, not whole or refused by its program, a score that is not finite in float32, a run and qrels
            that share no query, or a lowest relevant label that is not above 0.
    """
    import pandas as pd

    measures = parse_measures(names, relevant_from)
    if not qrels:
        raise ValueError("the qrels hold no query")
    evaluated = [query for query in qrels if run.get(query)]
    if not evaluated:
        raise ValueError(
            f"the run and the qrels share no query: {next(iter(qrels))!r} is judged, "
            f"the run holds {next(iter(run), 'nothing')!r}"
        )
    for query in evaluated:
        _check_finite(query, run[query], qrels[query])
    values = {name: dict.fromkeys(sorted(qrels), 0.0) for name in measures}
    pooled = {}
    vectorised = [name for name, measure in measures.items() if is_vectorised(measure)]
    for first in range(0, len(evaluated) if vectorised else 0, _BLOCK):
        block = evaluated[first : first + _BLOCK]
        order = tie_order([list(run[query]) for query in block])
        judged, batch = padded([list(qrels[query].values()) for query in block]), _batch(run, qrels, block)
        rows = compute(vectorised, *batch, order, judged=judged, relevant_from=relevant_from)
        for name, row in rows.items():
            values[name].update(zip(block, row.tolist(), strict=True))
    for name, measure in measures.items():
        if measure.NAME in PAIR_MEASURES:
            from crossjem_pl.evaluation.classification import Pairs, values_of

            pairs = Pairs(*_batch(run, qrels, evaluated), rel=measure.params.get("rel", relevant_from))
            per_list, pooled[name] = values_of(measure, pairs)
            values[name].update(zip(evaluated, per_list.tolist(), strict=True))
        elif name not in vectorised:
            values[name].update(_with_ir_measures(measure, run, qrels, evaluated, relevant_from))
    per_query = pd.DataFrame(values, dtype=np.float64).rename_axis(index="query_id")
    missing = tuple(sorted(query for query in qrels if not run.get(query)))
    unjudged = tuple(sorted(query for query in run if query not in qrels))
    return Evaluation(per_query, missing, unjudged, pooled, relevant_from)


def rank_items(scores: Mapping[str, float]) -> list[str]:
    """Item ids best first: score descending as float32, equal scores by item id descending (trec_eval)."""
    return ranked_ids({item: float(np.float32(score)) for item, score in scores.items()})


def _with_ir_measures(
    measure: ir_measures.Measure, run: Run, qrels: Qrels, queries: Sequence[str], relevant_from: float
) -> dict[str, float]:
    """Values per query. ir-measures gets the items' ranks for scores, in which nothing ties.

    It gets numbers for ids too: its program for ERR@k takes only what follows the last "-" of a query id, and no
    letters there.
    """
    rel = measure.SUPPORTED_PARAMS.get("rel")
    if rel is not None and rel.default == 1 and "rel" not in measure.params:  # NumRet counts all without one
        measure = measure(rel=math.ceil(relevant_from))
    judged: dict[str, dict[str, int]] = {}
    untied: dict[str, dict[str, float]] = {}
    for number, query in enumerate(queries):
        for item, label in qrels[query].items():
            if not float(label).is_integer():
                raise ValueError(
                    f"qrels of query {query!r}, item {item!r}: {label!r} is not a whole number, which {measure} needs"
                )
        ranks = {
            item: rank for rank, item in enumerate(dict.fromkeys([*rank_items(run[query]), *qrels[query]]))
        }
        judged[str(number)] = {str(ranks[item]): int(label) for item, label in qrels[query].items()}
        untied[str(number)] = {str(rank): -float(rank) for rank in range(len(run[query]))}
    try:
        found = list(ir_measures.iter_calc([measure], judged, untied))
    except subprocess.CalledProcessError as error:
        raise ValueError(f"ir-measures' program for {measure} refuses the judgements: {error}") from error
    return {queries[int(one.query_id)]: float(one.value) for one in found}


def _check_finite(query: str, scores: Mapping[str, float], labels: Mapping[str, float]) -> None:
    for values, kind in ((scores, "score"), (labels, "relevance")):
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.array(list(values.values()), dtype=np.float64).astype(np.float32))
        if not finite.all():
            item = list(values)[int(np.argmin(finite))]
            raise ValueError(
                f"query {query!r}, item {item!r}: {kind} {values[item]!r} is not finite in float32"
            )


def _batch(run: Run, qrels: Qrels, queries: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, labels and mask; what is not judged has label 0."""
    labels = [[qrels[query].get(item, 0) for item in run[query]] for query in queries]
    return padded_pairs([list(run[query].values()) for query in queries], labels)


def padded(rows: Sequence[Sequence[float] | Tensor]) -> Tensor:
    """The rows as float64 [rows, longest], 0 on padding."""
    return pad_sequence([torch.as_tensor(row, dtype=torch.float64) for row in rows], batch_first=True)


def padded_pairs(
    scores: Sequence[Sequence[float] | Tensor], labels: Sequence[Sequence[float]]
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores and labels of lists, float64 [lists, items], and the mask, bool [lists, items]."""
    return padded(scores), padded(labels), padded([[1.0] * len(row) for row in labels]) > 0


def _defined(values: Mapping[Any, float]) -> dict[str, float | None]:
    return {str(name): None if math.isnan(value) else float(value) for name, value in values.items()}
