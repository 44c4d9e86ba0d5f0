"""`crossjem test MODEL LISTS`: a model on labelled lists, without a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from pathlib import Path

__all__ = ["evaluate_model"]


def evaluate_model(
    model: str,
    lists: str,
    *,
    out: Path | None = None,
    metrics: Sequence[str] = ("RR@10", "AP@10", "nDCG@10"),
    relevant_from: float = 1.0,
    precision: str = "32-true",
    json: bool = False,
) -> None:
    """Evaluates a model on labelled lists.

    Args:
        model: model folder, packaged name, hub repository, or bm25.
        lists: lists in any layout, a file or folder.
        out: run folder for what crossjem compare reads; by default that of the training, else runs/test/NAME.
        metrics: names of ir-measures.
        relevant_from: lowest grade that is relevant.
        precision: as in Lightning's Trainer.
        json: print one JSON object.
    """
    from lightning import Trainer

    from crossjem_pl.data.module import RankingDataModule
    from crossjem_pl.losses import SoftmaxCrossEntropy
    from crossjem_pl.rankers import BM25
    from crossjem_pl.rankers.folder import load_ranker
    from crossjem_pl.training import RankingModule, RunFolder
    from crossjem_pl.training.run_folder import locked

    path = Path(model)
    if out is None:
        in_run = path.name == "model" and (path.parent / "summary.json").exists()
        out = path.parent if in_run else Path("runs/test") / path.name.removeprefix("packaged:")
    trainer = Trainer(
        default_root_dir=out,
        devices=1,
        precision=precision,  # type: ignore[arg-type]
        callbacks=[RunFolder()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    ranker = BM25() if model == "bm25" else load_ranker(model)
    loss = SoftmaxCrossEntropy()
    module = RankingModule(ranker, loss, "labels", metrics=metrics, relevant_from=relevant_from)
    with locked(out):
        (figures,) = trainer.test(module, RankingDataModule(test=lists), verbose=False)
    if not figures:
        raise ValueError(
            f"{lists} has no labels of at least {relevant_from:g}, so there is nothing to measure"
        )
    means = {name.removeprefix("test/"): round(mean, 4) for name, mean in figures.items()}
    if json:
        print(dumps({"model": model, "lists": lists, "metrics": means, "run": str(out)}))
        return
    print(f"{model} on {lists}: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()))
    print(f"Wrote {out}/test.trec, test_metrics.json and test_lists.parquet")
    print(f"Compare it: crossjem compare {out} OTHER_RUN --split test")
