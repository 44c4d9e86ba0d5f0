"""Pairs a second and peak memory of one optimiser step, on the same lists.

    python -m benchmarks.training --items 10 30 100 --batch-sizes 1 8 --out runs/training

CROSS-JEM and monoBERT with the ranking probability loss against sentence-transformers' CrossEncoder with its
ListNetLoss (model and loss in the same loop: its trainer's overhead is left out). Every measurement runs in a fresh
process, whose peak memory is its own: VmHWM minus the resident size before the first step, on a GPU torch's peak.

Writes training.json and training.md.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.contenders import SENTENCE_TRANSFORMERS, build_ranker, overlays
from benchmarks.measuring import MemoryMeter
from benchmarks.pages import provenance, table, write
from benchmarks.program import PRECISIONS, defaults, fresh, parser, program, torch_device
from crossjem_pl.data.simulator import simulate
from crossjem_pl.inference.timing import milliseconds
from crossjem_pl.lists import RankingList
from crossjem_pl.losses import RankingProbabilityLoss
from crossjem_pl.progress import track
from crossjem_pl.rankers.encoders import resolve
from crossjem_pl.training.module import adamw

SYSTEMS = ("crossjem", "crossjem-best", "monobert", SENTENCE_TRANSFORMERS)
BASELINES = ("monobert", SENTENCE_TRANSFORMERS)
WARMUP = 1
"""Steps that come first and are not counted; AdamW makes its moments in the first."""
_SETTING = ("items", "batch_size", "precision")


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    device = torch_device(args.device)
    systems = [name for name in SYSTEMS if not (args.smoke and name == "crossjem-best")]
    full = {"items": [10, 30, 100], "batch_sizes": [1, 8], "steps": 10, "systems": systems}
    defaults(args, full, {"items": [10], "batch_sizes": [2], "steps": 2})
    if "float16" in args.precision and device.type == "cpu":
        raise ValueError("--precision float16 is for training on a GPU; use bfloat16 on a CPU")
    about = provenance(device, args.command)
    rows = []
    settings = list(itertools.product(args.precision, args.batch_sizes, args.items, args.systems))
    common = {"encoder": args.encoder, "device": device.type, "threads": torch.get_num_threads()}
    common["steps"] = args.steps
    for precision, batch_size, items, name in track(settings, description="training steps"):
        row = {"name": name, "items": items, "batch_size": batch_size, "precision": precision}
        rows.append(row | fresh(measure_steps, row | common))
    found = {"provenance": about, "encoder": args.encoder, "steps": args.steps}
    found["rows"] = with_ratios(rows, [name for name in BASELINES if name in args.systems])
    write(found, page(found), args.out, "training")


class Learner:
    """A model in training mode with AdamW over all its weights, learning rate 1e-5.

    Args:
        name: of an overlay in `experiments/rankers/`, trained with the ranking probability loss on the teacher's
            scores; or sentence-transformers: its CrossEncoder and its ListNetLoss, 32 pairs at a time like monoBERT,
            which tokenises the texts at every step.
        encoder: of the model.
        device: where it is.
        precision: float32, or what autocast multiplies in; float16 scales its gradients on a GPU.
    """

    def __init__(self, name: str, encoder: str, device: torch.device, precision: str) -> None:
        self.device, self.precision = device, precision
        if name == SENTENCE_TRANSFORMERS:
            from sentence_transformers import CrossEncoder
            from sentence_transformers.cross_encoder.losses import ListNetLoss

            model = CrossEncoder(resolve(encoder), num_labels=1, device=device.type)
            self.criterion: Any = ListNetLoss(model, mini_batch_size=32)
            self.collate: Any = None
        else:
            model = build_ranker(name, encoder)
            self.criterion, self.collate = RankingProbabilityLoss(), model.collate
        self.module: nn.Module = model.train().to(device)
        weights = [w for w in model.parameters() if w.requires_grad]
        self.optimizer = adamw([{"params": weights}], lr=1e-5, weight_decay=0.01)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")

    def step(self, lists: Sequence[RankingList]) -> None:
        """One optimiser step on lists of one length: tokenising, forward, loss, backward, AdamW."""
        lower = self.precision != "float32"
        dtype = getattr(torch, self.precision) if lower else None
        with torch.autocast(self.device.type, dtype=dtype, enabled=lower):
            loss = self._loss(lists)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def _loss(self, lists: Sequence[RankingList]) -> Tensor:
        scores = [torch.tensor(ranking_list.scores or ()) for ranking_list in lists]
        if self.collate is None:
            texts = [[one.query for one in lists], [list(one.items) for one in lists]]
            return self.criterion(texts, scores)
        batch = self.collate(lists).to(self.device)
        targets = torch.zeros(batch.item_mask.shape, device=self.device)
        targets[batch.item_mask] = torch.cat(scores).to(self.device)
        return self.criterion(self.module(batch), targets, batch.item_mask)


def measure_steps(spec: Mapping[str, Any]) -> dict[str, float]:
    """Medians over the steps of one system, and its peak memory, in this process.

    Args:
        spec: `name`, `encoder`, `items`, `batch_size` (lists a step), `precision`, `device`, `threads`, `steps`.

    Returns:
        `step_ms` and `pairs_per_second` (tokenising included), `peak_mib` (beyond the resident model).
    """
    torch.manual_seed(0)
    torch.set_num_threads(spec["threads"])
    device, size, steps = torch.device(spec["device"]), spec["batch_size"], spec["steps"] + WARMUP
    learner = Learner(spec["name"], spec["encoder"], device, spec["precision"])
    lists = list(simulate(steps * size, spec["items"], seed=3))
    meter = MemoryMeter(device)
    times = [milliseconds(learner.step, lists[i * size : (i + 1) * size]) for i in range(steps)]
    step = float(np.median(times[WARMUP:]))
    return {
        "step_ms": step,
        "pairs_per_second": 1000 * size * spec["items"] / step,
        "peak_mib": meter.growth(),
    }


def with_ratios(rows: Sequence[Mapping[str, Any]], baselines: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with `faster` and `leaner`: baseline -> its step over this one's, its peak over this one's."""
    out = []
    for row in rows:
        same = {other["name"]: other for other in rows if all(other[key] == row[key] for key in _SETTING)}
        others = {name: same[name] for name in baselines if name != row["name"] and name in same}
        speed, memory = row["pairs_per_second"], max(row["peak_mib"], 1e-9)
        faster = {name: speed / other["pairs_per_second"] for name, other in others.items()}
        out.append(
            {**row, "faster": faster, "leaner": {n: o["peak_mib"] / memory for n, o in others.items()}}
        )
    return out


def page(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    baselines = [name for name in BASELINES if any(name in row["faster"] for row in found["rows"])]
    columns = {"": "{name}", "items": "{items:d}", "lists": "{batch_size:d}", "precision": "{precision}"}
    columns |= {"step ms": "{step_ms:,.1f}", "pairs/s": "{pairs_per_second:,.0f}"}
    columns["peak MiB"] = "{peak_mib:,.0f}"
    columns |= {f"pairs/s, {name} = 1": f"{{faster[{name}]:.2f}}x" for name in baselines}
    columns |= {f"{name}'s peak": f"{{leaner[{name}]:.2f}}x" for name in baselines}
    return [
        "# Training",
        "",
        f"One optimiser step: tokenising, forward, loss, backward, AdamW. Encoder {found['encoder']}, all weights "
        f"trained, the models' own dropout; medians of {found['steps']} steps on simulated lists after one that is not "
        "counted; every line in a process of its own. Peak: memory beyond the resident model before the first step, "
        "so it holds gradients, AdamW's moments and activations. A ratio above 1 is in favour of the line's system.",
        "",
        "CROSS-JEM and monoBERT learn with RPL. sentence-transformers: its CrossEncoder and its ListNetLoss (32 "
        "pairs at a time, as monoBERT) in the same loop; its trainer's own overhead is left out, and it has no RPL.",
        "",
        *table(found["rows"], columns),
    ]


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.training", __doc__, "runs/training")
    names = [*overlays(), SENTENCE_TRANSFORMERS]
    out.add_argument("--precision", nargs="+", choices=PRECISIONS, default=["float32"])
    out.add_argument("--systems", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    out.add_argument("--items", type=int, nargs="+", help="items a list (default 10 30 100)")
    out.add_argument("--batch-sizes", type=int, nargs="+", help="lists a step (default 1 8)")
    out.add_argument("--steps", type=int, help="counted steps (default 10)")
    return out


main = partial(program, _options, run)

if __name__ == "__main__":
    raise SystemExit(main())
