"""`crossjem tune`: the fastest passes, precision and compilation of a model on this machine."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossjem_pl.lists import RankingList

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="model folder or hub repository")
    parser.add_argument(
        "lists",
        type=Path,
        nargs="?",
        help="ranking lists like those to come, longer ones are cut to --items (default: simulated)",
    )
    parser.add_argument("--items", type=int, default=700, help="items of a list (default 700)")
    parser.add_argument("--samples", type=int, default=3, help="how many lists (default 3)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed (default 3)")
    parser.add_argument("--no-passes", action="store_true", help="keep the model's split into passes")
    parser.add_argument(
        "--precisions",
        nargs="*",
        choices=["bfloat16", "float16"],
        default=["bfloat16"],
        help="lower precisions to try (default bfloat16; none: --precisions with nothing after it)",
    )
    parser.add_argument(
        "--compile", action="store_true", help="try torch.compile, which takes up to a minute"
    )
    parser.add_argument(
        "--min-tau",
        type=float,
        default=0.95,
        metavar="TAU",
        help="least Kendall tau with the ranking in float32 by the model's own passes (default 0.95)",
    )
    parser.add_argument("--budget-ms", type=float, metavar="MS", help="the most that scoring a list may take")
    parser.add_argument("--device", help="cpu, cuda, ... (default: a GPU if there is one)")
    parser.add_argument("--save", action="store_true", help="store the choice in the model folder")


def run(args: argparse.Namespace) -> None:
    for name in ("items", "samples"):
        if getattr(args, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(args, name)}")
    if args.save and not Path(args.model).is_dir():
        raise ValueError(f"--save needs a model folder, and {args.model} is none")
    from crossjem_pl.inference import Reranker
    from crossjem_pl.inference.configuration import save_configuration
    from crossjem_pl.inference.tune import Bounds
    from crossjem_pl.rankers.threshold import THRESHOLD_FILE, read_threshold, write_threshold

    lists = _lists(args.lists, args.items, args.samples)
    reranker = Reranker(args.model, device=args.device)
    stored = Path(args.model) / THRESHOLD_FILE
    threshold = read_threshold(stored).of_folder(reranker.ranker) if stored.exists() else None
    report = reranker.tune(
        lists,
        passes=not args.no_passes,
        precisions=args.precisions,
        compile=args.compile,
        bounds=Bounds(tau=args.min_tau),
        rounds=args.rounds,
    )
    print(f"{len(lists)} lists of {min(map(len, lists))} to {max(map(len, lists))} items, {reranker.device}")
    print(report)
    if args.budget_ms is not None and report.milliseconds > args.budget_ms:
        fastest = f"the fastest takes {report.milliseconds:.1f} ms"
        raise ValueError(f"no configuration takes at most {args.budget_ms:g} ms: {fastest}")
    if not args.save:
        return
    if threshold is not None:
        write_threshold(threshold, args.model)  # with its pass limits, which version 0.1 did not write
        if report.chosen != report.before:
            print(
                f"{stored} was chosen on the scores of the former configuration and no longer fits; choose it "
                f"again with: crossjem threshold {args.model} LISTS"
            )
    save_configuration(args.model, report.chosen, reranker.device)
    print(f"Saved in {Path(args.model) / 'config.json'}")


def _lists(path: Path | None, items: int, samples: int) -> list[RankingList]:
    if path is None:
        from crossjem_pl.data.simulator import simulate

        return list(simulate(samples, items, seed=1))
    from crossjem_pl.data.formats import read_lists

    found = list(islice(read_lists(path, labels_field=None, scores_field=None), samples))
    if not found:
        raise ValueError(f"{path}: no lists")
    return [each.select(range(min(len(each), items))) for each in found]
