"""`crossjem prepare`: public datasets and click logs as ranking lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from crossjem_pl.cli.command import passes_on
from crossjem_pl.data.shards import Manifest
from crossjem_pl.prepare.augment import write_augmented
from crossjem_pl.prepare.clicklog import LogOptions, prepare_log
from crossjem_pl.prepare.linkso import DEV_FRACTION, TAGS, prepare_linkso
from crossjem_pl.prepare.msmarco import prepare_titles
from crossjem_pl.prepare.reranking import dataset_folder, prepare_reranking

__all__ = ["prepare"]


@passes_on(prepare_titles, "runs")
def msmarco_titles(*, out: Path, hdct: Sequence[str] = (), **options: Any) -> None:
    """MS MARCO document titles.

    Args:
        out: folder to write.
        hdct: [PART=]RUN, run file or folder of run files with the candidates of a part (default train; the other parts
            take the official ones).
    """
    runs: dict[str, Path] = {}
    for argument in hdct:
        part, sign, path = argument.partition("=")
        if not sign or Path(argument).exists():
            part, path = "train", argument
        if part in runs:
            raise ValueError(f"--hdct: two runs for part {part!r}: {runs[part]} and {path}")
        runs[part] = Path(path)
    _tell(prepare_titles(out, runs=runs, **options), "msmarco", out)


def sodq(
    *,
    out: Path,
    linkso: Path | None = None,
    mteb: str | None = None,
    tags: Sequence[Literal["java", "javascript", "python"]] = (),
    dev_fraction: float | None = None,
    yes: bool = False,
) -> None:
    """Stack Overflow duplicate questions by their titles.

    Args:
        out: folder to write.
        linkso: folder of LinkSO's own files.
        mteb: instead, folder of MTEB's files, or the id of a hub dataset.
        tags: tags of LinkSO (default: all three).
        dev_fraction: take dev out of the training queries (default: 0.05 of train).
        yes: download MTEB's files without asking.
    """
    if (linkso is None) == (mteb is None):
        raise ValueError("give one of --linkso and --mteb")
    if linkso is not None:
        share = DEV_FRACTION if dev_fraction is None else dev_fraction
        _tell(prepare_linkso(linkso, out, tags=tags or TAGS, dev_fraction=share), "sodq", out)
        return
    if tags:
        raise ValueError("--tags goes with --linkso: MTEB's rows do not tell the tag")
    folder = dataset_folder(str(mteb), out, yes)
    _tell(prepare_reranking(folder, out, "sodq", dev_fraction=dev_fraction), "sodq", out)


def _reranking(name: str, hub: str) -> Callable[..., None]:
    """The command for a re-ranking dataset of MTEB."""

    def dataset(*, out: Path, mteb: str = hub, dev_fraction: float | None = None, yes: bool = False) -> None:
        _tell(prepare_reranking(dataset_folder(mteb, out, yes), out, name, dev_fraction=dev_fraction))

    dataset.__doc__ = f"""{hub} of the Hugging Face hub.

    Args:
        out: folder to write.
        mteb: folder of MTEB's files, or the id of a hub dataset.
        dev_fraction: take dev out of the training queries (default: MTEB's own, or {DEV_FRACTION:g} of train).
        yes: download without asking.
    """
    return dataset


@passes_on(LogOptions)
def log(files: Sequence[Path], *, out: Path, **options: Any) -> None:
    """Your own click log: a query, a keyword and a click in each row.

    Args:
        files: tables with the same columns, or folders of them.
        out: folder to write.
    """
    _tell(prepare_log(files, out, LogOptions(**options)))


@passes_on(write_augmented)
def augment(lists: Path, *, out: Path, **options: Any) -> None:
    """More training lists: new queries for the items of lists, by templates or by a model.

    Args:
        lists: ranking lists in any layout, a file or folder.
        out: folder to write.
    """
    _tell([write_augmented(lists, out, **options)])


def _tell(parts: Iterable[Manifest], experiment: str | None = None, out: Path | None = None) -> None:
    """Prints the account of each part when it is written, and at the end what to do with an experiment's lists."""
    names = set()
    for written in parts:
        print(written, flush=True)
        names.add(written.folder.stem)
    if experiment is not None and {"train", "dev"} <= names:
        print(
            f"next: make train-{experiment} DATA={out} (teacher, its scores, CROSS-JEM), or on the labels\n"
            f"  crossjem fit -c {experiment} -c losses/softmax_ce --data.root {out}\n"
            "checkpoints are chosen on dev.parquet; "
            + (
                "test.parquet is for the end"
                if "test" in names
                else "it is also what the paper's table reports"
            )
        )


prepare = {
    "msmarco-titles": msmarco_titles,
    "sodq": sodq,
    "askubuntu": _reranking("askubuntu", "mteb/askubuntudupquestions-reranking"),
    "scidocs": _reranking("scidocs", "mteb/scidocs-reranking"),
    "log": log,
    "augment": augment,
}
"""The commands by the name of what they prepare."""
