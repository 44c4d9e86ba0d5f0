"""Where a joint scorer loses accuracy: with the number of candidates, and on which kinds of lists.

    python -m benchmarks.limits --model joint=runs/joint/model --model mono=runs/mono/model \\
        --lists dev.jsonl.gz --corpus train.jsonl.gz --out docs/results

Models are model folders of any ranker; the first is what the others are compared with. Lists need labels; their
order, or the column `first_stage`, is the first stage's. A sample of the lists is extended with BM25's best texts of
the corpus (the item texts of --lists and of every --corpus, which may also be a table of ids and texts), and every
model ranks it at every number of candidates. CROSS-JEM models also rank the longest lists with other numbers of items
a pass. Then all lists as they are, by the size of the union, word pieces, words of the query, and items of equal token
sets.

Writes limits.json, limits.md and limits.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from benchmarks.limits.candidates import by_items, by_passes, passes_work
from benchmarks.limits.extended import Corpus, Extended, extend, measurable, relevant_items, sample
from benchmarks.limits.kinds import METRIC, breakdowns, kinds_of, same_sets, tokenizing
from benchmarks.limits.page import page, plot
from benchmarks.limits.reading import corpus_texts, labelled_lists, named_folders, read_models
from benchmarks.limits.scoring import score_in_batches
from benchmarks.measuring.options import PRECISIONS, exit_status, parser, prepare_device
from benchmarks.measuring.pages import conditions, write
from crossjem_pl.cli.main import quiet_libraries
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.neural import NeuralRanker

_SMOKE_LISTS = 50
"""Lists as they are that a smoke run scores."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after a mistake in the input."""
    args = _options().parse_args(argv)
    quiet_libraries()
    return exit_status(lambda: run(_resolved(args)))


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    device = prepare_device(args.device, args.threads)
    folders = named_folders(args.model)
    lists, first_stage = labelled_lists(args.lists)
    candidates = measurable(lists, min(args.items))
    if not candidates:
        raise ValueError(
            f"{args.lists}: no list has a relevant item and fewer than {min(args.items)} of them, the smallest of "
            "--items"
        )
    sampled = sample(candidates, args.queries, args.seed)
    rerankers = read_models(folders, device, args.precision)
    tokens_of, ranker = tokenizing(rerankers)
    found: dict[str, Any] = {
        "conditions": conditions(device),
        "models": list(rerankers),
        "precision": args.precision,
        "seed": args.seed,
        "smoke": args.smoke,
        "items": args.items,
        "lists": {"file": args.lists.name, "all": len(lists), "first_stage": first_stage},
    }
    with Progress() as bar:
        corpus = Corpus(_texts(lists, args.corpus, bar), args.seed)
        advance = _task(bar, "lists extended", len(sampled))
        extended = [_extended(one, corpus, max(args.items), advance) for one in sampled]
        found["corpus"] = {"files": [path.name for path in (args.lists, *args.corpus)], "texts": len(corpus)}
        found["sample"] = {
            "lists": len(sampled),
            "measurable": len(candidates),
            "added": float(np.mean([one.added for one in extended])),
            "unmatched": float(np.mean([one.unmatched for one in extended])),
        }
        advance = _task(bar, "items of extended lists", len(sampled) * len(rerankers) * sum(args.items))
        found["by_items"] = by_items(rerankers, extended, args.items, advance)
        variants = passes_work(rerankers, args.passes)
        advance = _task(bar, "items in other passes", len(sampled) * variants * max(args.items))
        found["by_passes"] = by_passes(rerankers, extended, max(args.items), args.passes, advance)
        found |= _kinds(lists[:_SMOKE_LISTS] if args.smoke else lists, rerankers, ranker, bar)
    found["tokens_of"] = tokens_of
    write(found, page(found), args.out, "limits")
    plot(found, args.out / "limits.png")
    print(f"wrote {args.out}/limits.json, limits.md, limits.png")


def _texts(lists: Sequence[RankingList], files: Sequence[Path], bar: Progress) -> Iterator[str]:
    """The item texts of the lists and of the corpus files."""
    for one in lists:
        yield from one.items
    if files:
        advance = _task(bar, "corpus files", len(files))
    for path in files:
        yield from corpus_texts(path)
        advance(1)


def _extended(one: RankingList, corpus: Corpus, size: int, advance: Callable[[int], object]) -> Extended:
    found = extend(one, corpus, size)
    advance(1)
    return found


def _kinds(
    lists: Sequence[RankingList], rerankers: Mapping[str, Reranker], ranker: NeuralRanker, bar: Progress
) -> dict[str, Any]:
    """The part on the lists as they are: scores of all, and what they are told apart by."""
    advance = _task(bar, "items of the lists as they are", len(rerankers) * sum(map(len, lists)))
    before = {name: reranker.truncated for name, reranker in rerankers.items()}
    scores = {name: score_in_batches(reranker, lists, advance) for name, reranker in rerankers.items()}
    kinds = kinds_of(lists, ranker)
    return {
        "kinds": {
            "lists": len(lists),
            "metric": METRIC,
            "without_relevant": sum(not relevant_items(one) for one in lists),
        },
        "breakdowns": [asdict(one) for one in breakdowns(lists, kinds, scores)],
        "same_sets": asdict(same_sets(kinds, scores)),
        "truncated": {name: reranker.truncated - before[name] for name, reranker in rerankers.items()},
    }


def _task(bar: Progress, description: str, total: int) -> Callable[[int], object]:
    """A row of the progress bar; call it with how much more is done."""
    task = bar.add_task(description, total=total)
    return lambda done: bar.advance(task, done)


def _resolved(args: argparse.Namespace) -> argparse.Namespace:
    """The options with their defaults.

    Raises:
        ValueError: for numbers below 1, or lists that could hold no negative item.
    """
    args.items = sorted(set(args.items or ([10, 30] if args.smoke else [10, 30, 100, 300, 700])))
    args.passes = sorted(set(args.passes or ([10] if args.smoke else [30, 100, 700])))
    args.queries = (5 if args.smoke else 150) if args.queries is None else args.queries
    if args.items[0] < 2:
        raise ValueError(f"--items: a list needs at least 2 candidates, got {args.items[0]}")
    for name, value in (("passes", args.passes[0]), ("queries", args.queries)):
        if value < 1:
            raise ValueError(f"--{name}: expected at least 1, got {value}")
    return args


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.limits", __doc__)
    out.add_argument(
        "--model",
        action="append",
        required=True,
        metavar="NAME=FOLDER",
        help="repeat it; the first is the baseline",
    )
    out.add_argument("--lists", type=Path, required=True, metavar="FILE", help="labelled lists")
    out.add_argument(
        "--corpus",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="more texts to add",
    )
    out.add_argument("--items", type=int, nargs="+", help="candidates a list (default 10 30 100 300 700)")
    out.add_argument("--queries", type=int, help="lists to extend, at most (default 150)")
    out.add_argument("--passes", type=int, nargs="+", help="items a pass of CROSS-JEM (default 30 100 700)")
    out.add_argument("--precision", choices=PRECISIONS, default="float32", help="default float32")
    out.add_argument("--device", help="cpu or cuda (default: a GPU if there is one)")
    out.add_argument("--threads", type=int, help="of torch (default: OMP_NUM_THREADS, or all cores)")
    out.add_argument("--seed", type=int, default=0, help="of the sample and of BM25's ties (default 0)")
    out.add_argument("--smoke", action="store_true", help="small sizes: under two minutes on two cores")
    out.add_argument("--out", type=Path, default=Path("docs/results"), metavar="FOLDER")
    return out


if __name__ == "__main__":
    raise SystemExit(main())
