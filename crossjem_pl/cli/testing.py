"""`crossjem test MODEL LISTS`: a model on labelled lists, without a configuration."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from lightning import Trainer

from crossjem_pl.data.module import RankingDataModule
from crossjem_pl.losses import SoftmaxCrossEntropy
from crossjem_pl.rankers import BM25
from crossjem_pl.rankers.base import Ranker
from crossjem_pl.rankers.folder import load_ranker
from crossjem_pl.training import RankingModule, RunFolder

__all__ = ["run_test"]


def run_test(argv: Sequence[str]) -> None:
    """Runs the command with what follows `test` on the command line."""
    parser = argparse.ArgumentParser(prog="crossjem test", description="Evaluate a model on labelled lists.")
    parser.add_argument("model", help="model folder, packaged name, hub repository, or bm25")
    parser.add_argument("lists", help="lists in any layout, a file or folder")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="run folder for what crossjem compare reads (default: that of the training, else runs/test/NAME)",
    )
    parser.add_argument("--metrics", nargs="+", default=["RR@10", "AP@10", "nDCG@10"], metavar="NAME")
    parser.add_argument("--relevant-from", type=float, default=1.0, metavar="GRADE", help="default 1")
    parser.add_argument("--precision", default="32-true", help="as in Lightning's Trainer (default 32-true)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    path = Path(args.model)
    if (out := args.out) is None:
        in_run = path.name == "model" and (path.parent / "summary.json").exists()
        out = path.parent if in_run else Path("runs/test") / path.name.removeprefix("packaged:")
    ranker: Ranker = BM25() if args.model == "bm25" else load_ranker(args.model)
    trainer = Trainer(
        default_root_dir=out,
        devices=1,
        precision=args.precision,
        callbacks=[RunFolder()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = RankingModule(
        ranker, SoftmaxCrossEntropy(), "labels", metrics=args.metrics, relevant_from=args.relevant_from
    )
    (figures,) = trainer.test(module, RankingDataModule(test=args.lists), verbose=False)
    if not figures:
        raise ValueError(f"{args.lists} has no labels, so there is nothing to measure")
    means = {name.removeprefix("test/"): round(mean, 4) for name, mean in figures.items()}
    if args.json:
        print(json.dumps({"model": args.model, "lists": args.lists, "metrics": means, "run": str(out)}))
        return
    print(f"{args.model} on {args.lists}: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()))
    print(f"Wrote {out}/test.trec, test_metrics.json and test_lists.parquet")
    print(f"Compare it: crossjem compare {out} OTHER_RUN --split test")
