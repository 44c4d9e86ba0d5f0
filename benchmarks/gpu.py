"""Is a GPU right and how fast is it? Parity, latency, throughput, memory, training, `tune` and DDP in one run.

    python -m benchmarks.gpu --out runs/gpu                       # no part begins after eight minutes
    python -m benchmarks.gpu --device cpu --smoke --out runs/gpu  # shows on a CPU that every part runs

- **Parity**: every kind of ranker, tiny and with random weights, on the CPU in float32 and on the device in float32 and
  bfloat16: the largest difference of a score, and Kendall's tau.
- **Latency, throughput, memory**: as `benchmarks.latency`, at MiniLM's shape and at DistilBERT's (6 layers of 768,
  random weights, which do not change the time).
- **Training**: as `benchmarks.training`. **tune**: what `Reranker.tune` chooses. **DDP**: one process and one on each
  GPU validate the same lists, and their metrics must be equal.

What could not be run is named with the reason. Writes gpu.json and gpu.md; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.contenders import SENTENCE_TRANSFORMERS, build_ranker, measured_lists
from benchmarks.latency.__main__ import RANKERS, contenders_of, latencies, throughputs
from benchmarks.measuring import MemoryMeter, matrix_peak
from benchmarks.pages import provenance, table, write
from benchmarks.program import defaults, parser, program, torch_device
from benchmarks.training import measure_steps
from crossjem_pl.data.simulator import simulate
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.encoders import PACKAGED, load_tokenizer

Rows = list[dict[str, Any]]
DISTILBERT = "6 layers of 768"
_LEARNERS = ("crossjem", "crossjem-best", "monobert", SENTENCE_TRANSFORMERS)
_TUNED = ("crossjem", "crossjem-best", "monobert")


def run(args: argparse.Namespace) -> None:
    """Runs the parts, prints and writes what they found and what was not run."""
    defaults(args, {"items": [100, 700], "rounds": 7, "rankers": RANKERS}, {"items": [20], "rounds": 1})
    device = torch_device(args.device)
    found: dict[str, Any] = {"provenance": provenance(device, args.command), "smoke": args.smoke}
    found |= {"parts": {}, "not_run": {}, "failed": {}, "minutes": 0.0}
    if device.type == "cpu" and args.device is None:
        found["not_run"]["everything"] = "torch sees no GPU here; --device cpu --smoke tries the program"
        return write(found, page(found), args.out, "gpu")
    if device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name(device)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        encoders = {"MiniLM-L6": args.encoder}
        if not args.smoke:
            encoders[DISTILBERT] = _distilbert_shape(Path(folder), args.encoder)
        for name, measure in parts(args, device, encoders).items():
            spent = (time.monotonic() - start) / 60
            if spent > 0.8 * args.minutes:
                found["not_run"][name] = f"{spent:.1f} of {args.minutes:g} minutes were over"
                continue
            print(f"{name} ...", flush=True)
            try:
                found["parts"][name] = measure()
            except NotRun as reason:
                found["not_run"][name] = str(reason)
            except (RuntimeError, ValueError, OSError, ImportError, subprocess.SubprocessError) as error:
                found["failed"][name] = (
                    f"{type(error).__name__}: {error}"  # the other parts have their figures
                )
            found["minutes"] = round((time.monotonic() - start) / 60, 2)
            (args.out / "gpu.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    wrong = [row["ranker"] for row in found["parts"].get("parity", ()) if not row["equal"]]
    if wrong:
        found["failed"]["parity"] = f"float32 scores differ from the CPU's: {', '.join(wrong)}"
    write(found, page(found), args.out, "gpu")
    if found["failed"]:
        raise RuntimeError("; ".join(f"{name}: {reason}" for name, reason in found["failed"].items()))


class NotRun(Exception):
    """Says why a part could not be run."""


def parts(
    args: argparse.Namespace, device: torch.device, encoders: Mapping[str, str]
) -> dict[str, Callable[[], Rows]]:
    """The parts by name, in their order."""
    found: dict[str, Callable[[], Rows]] = {"parity": partial(parity, device)}
    for measure in (latency, training):
        for shape, encoder in encoders.items():
            found[f"{measure.__name__}, {shape}"] = partial(measure, args, device, encoder)
    found["DDP"] = partial(ddp, device)
    tunings = {
        f"tune, {name}": partial(tuned, device, args.encoder, name, max(args.items)) for name in _TUNED
    }
    return found | tunings


def parity(device: torch.device) -> Rows:
    """Every ranker of the contract tests on the CPU and on the device: largest differences and Kendall's tau."""
    from scipy.stats import kendalltau

    from tests import tiny_models
    from tests.rankers.cases import CASES

    words, draw = np.array(tiny_models.WORDS), np.random.default_rng(0)
    texts = [[" ".join(draw.choice(words, size)) for size in draw.integers(1, 6, 9)] for _ in range(3)]
    lists = [RankingList.from_texts(query, list(dict.fromkeys(items)), query) for query, *items in texts]
    ways = {"cpu": (torch.device("cpu"), "float32"), "float32": (device, "float32")}
    ways["bfloat16"] = (device, "bfloat16")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        for kind in ("bert", "t5", "gpt"):
            getattr(tiny_models, f"write_{kind}")(models / kind)
        for name, build in CASES.items():
            scores = {}
            for way, (where, precision) in ways.items():
                torch.manual_seed(0)
                ranker = build(models).eval()
                ranker.index_items([item for ranking_list in lists for item in ranking_list.items])
                reranker = Reranker(ranker, where, precision)  # type: ignore[arg-type]
                scores[way] = torch.cat(reranker.score(lists)).double().cpu().numpy()
            reference = scores.pop("cpu")
            row: dict[str, Any] = {way: float(np.abs(x - reference).max()) for way, x in scores.items()}
            row["equal"] = row["float32"] <= 1e-4 * max(1.0, float(np.abs(reference).max()))
            rows.append({"ranker": name, **row, "tau": kendalltau(reference, scores["bfloat16"]).statistic})
    return rows


def latency(args: argparse.Namespace, device: torch.device, encoder: str) -> Rows:
    """Milliseconds of one query, pairs a second of many, and on a GPU MiB beyond the model, of every ranker."""
    given = {"encoder": encoder, "device": device.type, "rankers": args.rankers, "rounds": args.rounds}
    given |= {"precision": ["bfloat16" if device.type == "cuda" else "float32"], "peers": args.peers}
    given |= {"items": args.items, "saturated": [max(args.items)], "stages": [], "longest": args.longest}
    given["most_pairs"] = 50_000 if device.type == "cuda" else 100
    given |= {"real": None, "uncached": False, "exported": []}
    spec, found = argparse.Namespace(**given), {}
    found["matrix_peak_gflops"] = {name: matrix_peak(device, name, 2) / 1e9 for name in spec.precision}
    with tempfile.TemporaryDirectory() as folder:
        contenders = contenders_of(spec, Path(folder))
        latencies(spec, contenders, found)
        best = {row["name"]: row for row in throughputs(spec, contenders, max(args.items))}
        memory = {}
        for contender in contenders if device.type == "cuda" else ():
            lists = measured_lists(max(args.items), 1, 0)
            contender.prepare(lists)
            meter = MemoryMeter(device)
            contender.rank(lists)
            memory[contender.name] = meter.growth()
    rows = []
    for row in found["latency"]:
        many = best[row["name"]] if row["items"] == max(args.items) else {}
        kept = {
            key: row[key] for key in ("name", "items", "precision", "p50", "p99", "gflop", "share_of_peak")
        }
        kept |= {"saturated": many.get("pairs_per_second"), "queries": many.get("queries")}
        rows.append(kept | {"mib": memory.get(row["name"]) if many else None})
    return rows


def training(args: argparse.Namespace, device: torch.device, encoder: str) -> Rows:
    """Pairs a second and peak memory of optimiser steps, and the precision: see `benchmarks.training`."""
    precision = "bfloat16" if device.type == "cuda" else "float32"
    spec = {"encoder": encoder, "items": min(args.items), "batch_size": 2 if args.smoke else 8}
    spec |= {"precision": precision, "device": device.type, "threads": torch.get_num_threads()}
    systems = [name for name in _LEARNERS if name in (*args.rankers, *args.peers)]
    return [
        {"name": name, **spec, **measure_steps(spec | {"name": name, "steps": args.rounds})}
        for name in systems
    ]


def tuned(device: torch.device, encoder: str, name: str, items: int) -> Rows:
    """What `Reranker.tune` chooses for a ranker on simulated lists, with compiled candidates on a GPU."""
    reranker = Reranker(build_ranker(name, encoder), device)
    lists = list(simulate(2, items, seed=1))
    report = reranker.tune(lists, compile=device.type == "cuda", rounds=2)
    row = {"name": name, "items": items, "before": str(report.before), "chosen": str(report.chosen)}
    return [row | {"ms_before": report.milliseconds_before, "ms": report.milliseconds}]


def ddp(device: torch.device) -> Rows:
    """Validation metrics of the quick start's dev lists: one process, and one for each GPU (two on a CPU).

    Raises:
        NotRun: with one GPU.
    """
    count = torch.cuda.device_count() if device.type == "cuda" else 2
    if count < 2:
        raise NotRun("this machine has one GPU")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for processes in (1, count):
            out = Path(folder) / str(processes)
            trainer = {"devices": processes, "strategy": "ddp" if processes > 1 else "auto"}
            trainer |= {"accelerator": "gpu" if device.type == "cuda" else "cpu", "default_root_dir": out}
            command = [sys.executable, "-m", "crossjem_pl", "validate", "-c", "quickstart"]
            command += [f"--trainer.{key}={value}" for key, value in trainer.items()]
            command += ["--data.val.init_args.lists=33"]
            start = time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, timeout=180)
            if done.returncode:
                raise RuntimeError(f"{processes} processes failed: {done.stderr[-1000:]}")
            means = json.loads((out / "val_metrics.json").read_text(encoding="utf-8"))["means"]
            rows.append({"processes": processes, "seconds": time.monotonic() - start, "metrics": means})
    for row in rows:
        row["equal"] = all(abs(row["metrics"][k] - v) < 1e-6 for k, v in rows[0]["metrics"].items())
    return rows


_COLUMNS: dict[str, dict[str, Any]] = {
    "parity": {
        "ranker": "{ranker}",
        "float32: largest difference": "{float32:.1e}",
        "bfloat16: largest difference": "{bfloat16:.1e}",
        "bfloat16: tau": "{tau:.3f}",
        "float32 equal": lambda row: "yes" if row["equal"] else "**no**",
    },
    "latency": {
        "": "{name}",
        "items": "{items:d}",
        "precision": "{precision}",
        "p50 ms": "{p50:,.2f}",
        "p99 ms": "{p99:,.2f}",
        "GFLOP": "{gflop:,.2f}",
        "share of the peak": "{share_of_peak:.0%}",
        "pairs/s, many queries": "{saturated:,.0f}",
        "queries a batch": "{queries:d}",
        "MiB beyond the model": "{mib:,.0f}",
    },
    "tune": {
        "": "{name}",
        "items": "{items:d}",
        "before": "{before}",
        "ms before": "{ms_before:,.2f}",
        "chosen": "{chosen}",
        "ms": "{ms:,.2f}",
    },
    "DDP": {
        "processes": "{processes:d}",
        "seconds": "{seconds:.1f}",
        "metrics": lambda row: ", ".join(f"{name} {value:.6f}" for name, value in row["metrics"].items()),
        "equal to one process": lambda row: "yes" if row["equal"] else "**no**",
    },
    "training": {
        "": "{name}",
        "items": "{items:d}",
        "lists a step": "{batch_size:d}",
        "precision": "{precision}",
        "step ms": "{step_ms:,.1f}",
        "pairs/s": "{pairs_per_second:,.0f}",
        "peak MiB": "{peak_mib:,.0f}",
    },
}


def page(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    where = found.get("gpu", "the CPU")
    lines = ["# GPU", ""]
    if found["parts"]:
        smoke = " A smoke run: it shows that every part runs and says nothing of speed." * found["smoke"]
        lines += [f"Run on {where} in {found['minutes']:g} minutes.{smoke}", ""]
    for name, reason in found["not_run"].items():
        lines += [f"**Not run: {name}**: {reason}.", ""]
    for name, reason in found["failed"].items():
        lines += [f"**Failed: {name}**: {reason}", ""]
    for name, rows in found["parts"].items():
        lines += [f"## {name[0].upper()}{name[1:]}", "", *table(rows, _COLUMNS[name.partition(",")[0]]), ""]
    return lines


def _distilbert_shape(folder: Path, encoder: str) -> str:
    """A folder with a random DistilBERT of the papers' shape and the encoder's tokenizer."""
    from transformers import DistilBertConfig, DistilBertModel

    words = load_tokenizer(encoder)
    torch.manual_seed(0)
    config = DistilBertConfig(vocab_size=len(words), dim=768, n_layers=6, n_heads=12, hidden_dim=3072)
    DistilBertModel(config).save_pretrained(folder / "distilbert")
    words.save_pretrained(folder / "distilbert")
    return str(folder / "distilbert")


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.gpu", __doc__, "runs/gpu", encoder=PACKAGED)
    out.add_argument("--items", type=int, nargs="+", help="items a query (default 100 700)")
    out.add_argument("--rounds", type=int, help="counted lists a size, and steps (default 7)")
    out.add_argument("--rankers", nargs="+", help="that are timed (default: all of bench-latency)")
    out.add_argument("--peers", nargs="*", choices=[SENTENCE_TRANSFORMERS], default=[SENTENCE_TRANSFORMERS])
    out.add_argument(
        "--longest", type=float, default=5.0, help="seconds a query, then no larger sizes (default 5)"
    )
    out.add_argument(
        "--minutes", type=float, default=10.0, help="no part begins after 80%% of them (default 10)"
    )
    return out


main = partial(program, _options, run)

if __name__ == "__main__":
    raise SystemExit(main())
