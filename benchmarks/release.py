"""Trains the general model, compares it with the default on lists that it was not trained on, and writes its folder.

    make release-model RELEASE_DATA="a.jsonl b.parquet" RELEASE_CHECK="c.jsonl"

trains `experiments/release.yaml` on simulated keywords and the labelled lists of RELEASE_DATA. On each set of
RELEASE_CHECK it is compared with the packaged sentence encoder, which ranks where there is no model. The model and its
card are written to OUT/model-for-the-hub only if it is better by the mean over the sets, and on no set significantly
worse (RR@10, paired randomisation test, p < .05). OUT/release.md has the figures in any case; the exit status is 3 if
the model is not better.
"""

from __future__ import annotations

import json
import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.pages import table
from benchmarks.program import parser, program
from crossjem_pl.cli import main as crossjem
from crossjem_pl.evaluation import compare_runs
from crossjem_pl.inference import Reranker
from crossjem_pl.rankers.encoders import PACKAGED

_METRIC = "RR@10"
_NOT_BETTER = 3


def release(args: Namespace) -> int:
    """Trains, compares and writes. Returns 0 if the model is better than the default, else 3.

    Raises:
        ValueError: if a set to check on was trained on, or a step failed.
    """
    trained_on = {Path(path).resolve() for path in args.data}
    if seen := [path for path in args.check if Path(path).resolve() in trained_on]:
        raise ValueError(f"{seen[0]} is among the lists to train on: give --check lists that are not")
    if args.smoke:
        args.simulated, args.options = 16, ["--trainer.max_steps=2", *args.options]
    kind = {"lists": args.simulated, "items": 30}
    simulated = {"class_path": "crossjem_pl.data.SimulatorSource", "init_args": kind}
    mixed = {"class_path": "crossjem_pl.data.MixedSource", "init_args": {"sources": [simulated, *args.data]}}
    fit = ["fit", "-c", "packaged:release", f"--trainer.default_root_dir={args.out}"]
    _step([*fit, f"--data.train={json.dumps(mixed)}", *args.options])
    rows = [_compared(Path(path), args.out) for path in args.check]
    gain = mean(row["difference"] for row in rows)
    worse = [row["set"] for row in rows if row["p"] < 0.05 and row["difference"] < 0]
    better = gain > 0 and not worse
    columns = {"lists": "{set}", "number": "{lists:d}", "default": "{default:.4f}", "model": "{model:.4f}"}
    columns |= {"difference": "{difference:+.4f}", "p": "{p:.4f}"}
    verdict = "better than" if better else f"not better than (worse on: {', '.join(worse) or 'the mean'})"
    lines = [f"{_METRIC} on lists that the model was not trained on; the default is {PACKAGED}.", ""]
    lines += [*table(rows, columns), "", f"By the mean ({gain:+.4f}) the model is {verdict} the default."]
    page = "\n".join(lines) + "\n"
    (args.out / "release.md").write_text(page, encoding="utf-8")
    print(page)
    if better:
        folder = args.out / "model-for-the-hub"
        (folder / "README.md").unlink(missing_ok=True)  # of an earlier call
        Reranker(args.out / "model").save_pretrained(
            folder, license=args.license, latency=True, repository=args.repository
        )
        with (folder / "README.md").open("a", encoding="utf-8") as card:
            card.write(f"\n## Against the sentence encoder that it starts from\n\n{page}")
        print(f"Wrote {folder}")
    return 0 if better else _NOT_BETTER


def _compared(lists: Path, out: Path) -> dict[str, Any]:
    """The model and the default on a set of lists."""
    name = "-".join(part.split(".")[0] for part in lists.resolve().parts[-2:])
    runs = [out / "check" / name / system for system in ("default", "model")]
    for model, folder in zip((PACKAGED, str(out / "model")), runs, strict=True):
        _step(["test", model, str(lists), "--out", str(folder)])
    found = compare_runs(runs, str(runs[0]), [_METRIC], split="test")
    default, model = (row for _, row in found.results.loc[_METRIC].iterrows())
    figures = {"default": default["mean"], "model": model["mean"], "difference": model["difference"]}
    return {"set": name, "lists": len(found.qrels), "p": model["p randomisation"], **figures}


def _step(command: Sequence[str]) -> None:
    if crossjem(command):
        raise ValueError(f"crossjem {command[0]} failed, see above")


def _options() -> ArgumentParser:
    options = parser("benchmarks.release", __doc__, "runs/release", encoder=None)
    options.add_argument("--data", nargs="*", default=[], help="labelled lists to train on, files or folders")
    options.add_argument("--check", nargs="+", required=True, help="labelled lists to compare on")
    options.add_argument(
        "--simulated", type=int, default=2000, help="simulated lists to train on (default 2000)"
    )
    options.add_argument("--license", help="of the weights, for the card")
    options.add_argument("--repository", help="for the card's examples")
    options.add_argument("--options", nargs=REMAINDER, default=[], help="last: more options of crossjem fit")
    return options


main = partial(program, _options, release)


if __name__ == "__main__":
    sys.exit(main())
