"""Where a joint scorer loses accuracy: with the number of candidates.

    python -m benchmarks.limits --model joint=runs/joint/model --model mono=runs/mono/model \\
        --lists dev.jsonl.gz --corpus train.jsonl.gz --out docs/results

Models are model folders of any ranker; the first is what the others are compared with. Lists need labels; their
order is the first stage's. A sample of the lists is extended with BM25's best texts of the corpus (the item texts of
--lists and of every --corpus), and every model ranks it at every number of candidates. What other numbers of items a
pass do, `crossjem tune` and Table 9 show; on which kinds of lists a model is better, `crossjem report` of its runs.

Writes limits.json, limits.md and limits.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from benchmarks.charts import chart, logarithmic
from benchmarks.limits.extended import Corpus, cut, extend, measurable
from benchmarks.pages import difference, interval, provenance, table, write
from benchmarks.program import PRECISIONS, defaults, parser, program, torch_device
from benchmarks.statistics import differences, mean_cells
from crossjem_pl.data.formats import read_lists
from crossjem_pl.evaluation.metrics import evaluate_run
from crossjem_pl.inference import Reranker
from crossjem_pl.inference.timing import take_turns
from crossjem_pl.lists import RankingList
from crossjem_pl.progress import track

METRICS = ("RR@10", "AP@10")
_WARMUP = 2
"""Lists that come first, once more than the others, and are not counted."""


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    defaults(args, {"items": [10, 30, 100, 300, 700], "queries": 150}, {"items": [10, 30], "queries": 5})
    args.items = sorted(set(args.items))
    if args.items[0] < 2:
        raise ValueError(f"--items: a list needs at least 2 candidates, got {args.items[0]}")
    if len(dict(args.model)) < len(args.model):
        raise ValueError("--model: two models have one name")
    device = torch_device(args.device)
    lists = list(read_lists(args.lists, score_column=None))
    if bare := next((one.query_id for one in lists if one.labels is None), None):
        raise ValueError(f"{args.lists}: list {bare!r} has no labels, so nothing can be measured on it")
    candidates = measurable(lists, args.items[0])
    if not candidates:
        raise ValueError(
            f"{args.lists}: no list has a relevant item and fewer than {args.items[0]} of them, the smallest of --items"
        )
    drawn = np.random.default_rng(args.seed).permutation(len(candidates))[: args.queries]
    rerankers = {
        name: read_model(folder, device, args.precision) for name, folder in dict(args.model).items()
    }
    found: dict[str, Any] = {"provenance": provenance(device, args.command), "models": list(rerankers)}
    found |= {name: getattr(args, name) for name in ("precision", "seed", "smoke", "items")}
    found["lists"] = {"file": args.lists.name, "all": len(lists)}
    more = (
        one
        for path in args.corpus
        for one in read_lists(path, label_column=None, score_column=None, unique=False)
    )
    corpus = Corpus((text for one in chain(lists, more) for text in one.items), args.seed)
    found["corpus"] = {"files": [path.name for path in (args.lists, *args.corpus)], "texts": len(corpus)}
    extended = [
        extend(candidates[i], corpus, max(args.items)) for i in track(sorted(drawn), "lists extended")
    ]
    longest, added = [one for one, _ in extended], float(np.mean([added for _, added in extended]))
    sample = {"lists": len(drawn), "measurable": len(candidates), "added": added}
    found |= {"sample": sample, "by_items": []}
    for size in args.items:
        rows = measure(rerankers, [cut(ranking_list, size) for ranking_list in longest])
        found["by_items"] += [{"model": name, "items": size, **row} for name, row in rows.items()]
    write(found, page(found), args.out, "limits")
    plot(found, args.out / "limits.png")


def measure(rerankers: Mapping[str, Reranker], lists: Sequence[RankingList]) -> dict[str, dict[str, Any]]:
    """Every model on the lists, one at a time, the models in turn; the first model is the baseline.

    Returns:
        Model -> `ms` (median), each of `METRICS` with its interval, and `against`: the metrics' differences to the
        baseline (None for the baseline itself).
    """
    scores: dict[str, dict[int, Tensor]] = {name: {} for name in rerankers}
    numbered = list(enumerate(lists))

    def score_one(name: str, number: int, ranking_list: RankingList) -> None:
        (scores[name][number],) = rerankers[name].score([ranking_list])

    calls = {name: lambda given, name=name: score_one(name, *given) for name in rerankers}
    turns = track([*numbered[:_WARMUP], *numbered], f"lists of {len(lists[0])} candidates")
    times = take_turns(calls, turns, min(_WARMUP, len(lists)))
    frames = {name: [per_query(lists, [own[i] for i in range(len(lists))])] for name, own in scores.items()}
    against = {metric: differences(frames, next(iter(rerankers)), metric) for metric in METRICS}
    return {
        name: {
            **mean_cells(frames[name]),
            "ms": times[name].median,
            "against": {metric: against[metric].get(name) for metric in METRICS},
        }
        for name in rerankers
    }


def per_query(lists: Sequence[RankingList], scores: Sequence[Tensor]) -> pd.DataFrame:
    """`METRICS` of every list: index query id, one float64 column each; a list without relevant items has 0."""
    run = {
        one.query_id: dict(zip(one.item_ids, of_list.tolist(), strict=True))
        for one, of_list in zip(lists, scores, strict=True)
    }
    qrels = {one.query_id: dict(zip(one.item_ids, one.labels or (), strict=True)) for one in lists}
    return evaluate_run(run, qrels, list(METRICS)).per_query.loc[list(run)]


def named_folder(argument: str) -> tuple[str, str]:
    """Name and folder of a `NAME=FOLDER` argument.

    Raises:
        ValueError: for an argument of another form.
    """
    name, _, folder = argument.partition("=")
    if not (name and folder):
        raise ValueError(f"expected NAME=FOLDER, got {argument!r}")
    return name, folder


def read_model(folder: str, device: Any, precision: str) -> Reranker:
    """The model, its caches of token ids off: no text that was seen before is faster than a new one.

    Raises:
        FileNotFoundError: if there is no such model.
        ValueError: if the folder holds none, or not one for the device and precision.
    """
    reranker = Reranker.from_pretrained(folder, device, precision)  # type: ignore[arg-type]
    ranker: Any = reranker.ranker
    tokenizers = [ranker.tokenizer] if hasattr(ranker, "tokenizer") else []
    for tokenizer in (*tokenizers, *getattr(ranker, "tokenizers", {}).values()):
        tokenizer.cache_size = 0
    return reranker


def page(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    sample, corpus, names = found["sample"], found["corpus"], found["models"]
    columns = {"model": "{model}", "candidates": "{items:d}", **_figures(names[0])}
    return [
        "# Where accuracy is lost",
        "",
        *(["A smoke run: it shows that every step runs and says little of quality.", ""] * found["smoke"]),
        f"Lists: {found['lists']['file']}, {found['lists']['all']:,} of them. Models: {', '.join(names)}; matrix "
        f"products in {found['precision']}. RR@10 and AP@10 take labels of at least 1 for relevant. In brackets: 95% "
        "bootstrap intervals over lists; they say nothing about training again with another seed. p: two-sided paired "
        "randomisation test, Holm-corrected over the models that are compared with the same one on the same metric and "
        "lists.",
        "",
        "## Number of candidates",
        "",
        f"{sample['lists']:,} lists, drawn with seed {found['seed']} from the {sample['measurable']:,} with at least "
        f"one relevant item and fewer than {min(found['items'])}. A list of N candidates holds its relevant items, "
        f"then its own others in their order, then BM25's best of the {corpus['texts']:,} "
        f"different item texts of {', '.join(corpus['files'])}, cut at N. At "
        f"{max(found['items'])} candidates {sample['added']:.0f} are added ones (mean). **An added "
        "text counts as not relevant though nobody has judged it**: "
        "some may be relevant, which takes from every model, and the more the better it is.",
        "",
        "Models see the items in an order that tells nothing of them. Time: the median, one list at a time, texts to "
        "scores, nothing remembered of texts that were scored before.",
        "",
        *table(found["by_items"], columns),
    ]


def plot(found: Mapping[str, Any], path: Path) -> None:
    """RR@10 with its intervals, and milliseconds, against the number of candidates."""
    title = f"{found['provenance']['machine']}, {found['precision']}, {found['sample']['lists']} lists"
    with chart(path, title, panels=2, width=5.0, height=3.8) as (accuracy, time):
        for name in found["models"]:
            rows = [row for row in found["by_items"] if row["model"] == name]
            x, cells = [row["items"] for row in rows], [row[METRICS[0]] for row in rows]
            (line,) = accuracy.plot(x, [cell["mean"] for cell in cells], marker="o", ms=3, label=name)
            ends = ([cell[end] for cell in cells] for end in ("low", "high"))
            accuracy.fill_between(x, *ends, color=line.get_color(), alpha=0.12)
            time.plot(x, [row["ms"] for row in rows], marker="o", ms=3)
        logarithmic(accuracy, found["items"], "candidates")
        accuracy.set_ylabel(METRICS[0])
        accuracy.legend(frameon=False, fontsize=7)
        logarithmic(time, found["items"], "candidates", "milliseconds a list")


def _figures(baseline: str) -> dict[str, Any]:
    """Columns of `measure`."""
    columns: dict[str, Any] = {m: lambda row, m=m: interval({**row[m], "seeds": ()}, 1, 4) for m in METRICS}
    for metric in METRICS:
        columns[f"{metric} against {baseline} (p)"] = lambda row, m=metric: difference(
            row["against"][m], 1, 4
        )
    return columns | {"ms a list": "{ms:,.1f}"}


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.limits", __doc__, "docs/results", encoder=None)
    model = "repeat it; the first is the baseline"
    named: dict[str, Any] = {"type": named_folder, "metavar": "NAME=FOLDER"}
    out.add_argument("--model", action="append", required=True, help=model, **named)
    out.add_argument("--lists", type=Path, required=True, metavar="FILE", help="labelled lists")
    corpus = {"type": Path, "nargs": "+", "action": "extend", "default": [], "metavar": "FILE"}
    out.add_argument("--corpus", **corpus, help="more texts to add")  # type: ignore[arg-type]
    out.add_argument("--items", type=int, nargs="+", help="candidates a list (default 10 30 100 300 700)")
    out.add_argument("--queries", type=int, help="lists to extend, at most (default 150)")
    out.add_argument("--precision", choices=PRECISIONS, default="float32", help="default float32")
    out.add_argument("--seed", type=int, default=0, help="of the sample and of BM25's ties (default 0)")
    return out


main = partial(program, _options, run)

if __name__ == "__main__":
    raise SystemExit(main())
