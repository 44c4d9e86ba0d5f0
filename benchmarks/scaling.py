"""Cost against the number of items and against the size of the token union, with fitted exponents.

    python -m benchmarks.scaling --items 10 30 100 300 700 1400 --out runs/scaling

Latency and counted operations of CROSS-JEM as in the paper, of the recommended form, of one pass over all items, and of
monoBERT. Writes scaling.json, scaling.md and scaling.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.charts import chart, logarithmic
from benchmarks.contenders import WARMUP, OwnRanker, build_ranker, measured_lists, time_in_turn
from benchmarks.latency.__main__ import rows_of
from benchmarks.pages import provenance, table, write
from benchmarks.program import PRECISIONS, defaults, parser, program, torch_device
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.progress import track
from crossjem_pl.rankers.encoders import load_tokenizer

ONE_PASS, BASELINE = "crossjem, one pass", "monobert"
SYSTEMS = ("crossjem", "crossjem-best", ONE_PASS, BASELINE)
WORDS_PER_ITEM, WORDS_PER_QUERY = 4, 3
SIZES = {"by_items": "items", "by_union": "union"}
"""The two measurements, and what each varies."""
COSTS = ("p50", "gflop")
_EVERYTHING = 1_000_000
"""More items and union tokens than a list has."""


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    full = {"items": [10, 30, 100, 300, 700, 1400], "pools": [25, 50, 100, 200, 400, 1600], "rounds": 10}
    smoke = {"items": [10, 30, 100], "pools": [30, 100, 300], "rounds": 1, "union_items": 50}
    defaults(args, full | {"union_items": 100}, smoke)
    if min(len(set(args.items)), len(set(args.pools))) < 2:
        raise ValueError("--items and --pools: an exponent needs at least two sizes")
    device = torch_device(args.device)
    found: dict[str, Any] = {"provenance": provenance(device, args.command), "encoder": args.encoder}
    found |= {"precision": args.precision, "rounds": args.rounds, "union_items": args.union_items}
    lists = {
        "by_items": [measured_lists(items, args.rounds) for items in sorted(set(args.items))],
        "by_union": [
            pooled_lists(args.encoder, args.rounds + WARMUP, args.union_items, pool)
            for pool in sorted(set(args.pools))
        ],
    }
    contenders = [_contender(name, args.encoder, device, args.precision) for name in SYSTEMS]
    for key, groups in lists.items():
        found[key] = [row for group in track(groups, key) for row in measure(contenders, group)]
    found["exponents"] = {key: exponents(found[key], size) for key, size in SIZES.items()}
    write(found, page(found), args.out, "scaling")
    plot(found, args.out / "scaling.png")


def measure(contenders: Sequence[OwnRanker], lists: Sequence[RankingList]) -> list[dict[str, Any]]:
    """A row for every system on lists of one size, of which the first `WARMUP` are not counted.

    What `rows_of` gives, and `union`: distinct tokens of all items (mean); `rounds`: milliseconds of every list.
    """
    times, counted = time_in_turn(contenders, [[ranking_list] for ranking_list in lists]), lists[WARMUP:]
    rows = rows_of(contenders, times, counted, [BASELINE])
    for contender, row in zip(contenders, rows, strict=True):
        encode: Any = contender.reranker.ranker.encode_items  # type: ignore[attr-defined]
        row["union"] = float(np.mean([len(np.unique(encode([one]).tokens.values)) for one in counted]))
        row["rounds"] = list(times[contender.name].rounds)
    return rows


def exponents(rows: Sequence[Mapping[str, Any]], size: str) -> list[dict[str, Any]]:
    """k of cost = a size^k for every system, `p50` and `gflop`, by least squares on the logarithms, and the standard
    errors, `p50 error` and `gflop error`; `size`: the field that was varied."""
    from scipy.stats import linregress

    found = []
    for name in dict.fromkeys(row["name"] for row in rows):
        own = [row for row in rows if row["name"] == name]
        fit: dict[str, Any] = {"name": name}
        for cost in COSTS:
            line = linregress(np.log([row[size] for row in own]), np.log([row[cost] for row in own]))
            fit |= {cost: float(line.slope), f"{cost} error": float(np.nan_to_num(line.stderr))}
        found.append(fit)
    return found


def pooled_lists(encoder: str, count: int, items: int, pool: int, seed: int = 7) -> list[RankingList]:
    """Lists of different items, of `WORDS_PER_ITEM` words drawn from a pool of `pool` words; the query likewise.

    A small pool gives keywords that say nearly the same, a large one unrelated texts. Every word is a token of the
    encoder's vocabulary, so a pointwise ranker's cost is the same everywhere, while the union grows with the pool.

    Raises:
        ValueError: if the vocabulary has fewer words, or the pool is too small for so many different items.
    """
    draw = np.random.default_rng(seed)
    known = load_tokenizer(encoder).get_vocab()
    words = draw.permutation(
        sorted(word for word in known if word.isalpha() and word.islower() and len(word) > 2)
    )
    if not items <= pool**2 or not WORDS_PER_ITEM <= pool <= len(words):
        raise ValueError(f"--pools: no {items} items of {pool} words; the vocabulary has {len(words)} words")

    def text(length: int) -> str:
        return " ".join(draw.choice(words[:pool], size=length, replace=False))

    lists = []
    for number in range(count):
        texts: set[str] = set()
        while len(texts) < items:
            texts.add(text(WORDS_PER_ITEM))
        lists.append(RankingList.from_texts(text(WORDS_PER_QUERY), sorted(texts), f"pool-{pool}-{number}"))
    return lists


def page(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    lines = [
        "# Scaling",
        "",
        f"Encoder {found['encoder']}, {found['precision']}; {found['rounds']} lists a size after {WARMUP} that are not "
        "counted, the systems in turn on each; cold token caches. `crossjem` and `crossjem-best` split lists into "
        f"passes at their limits; `{ONE_PASS}` reads all items at once (a token's position is that in its item). "
        "GFLOP: matrix products and attentions that torch counts. k: exponent of cost = a size^k, with its standard "
        "error.",
    ]
    titles = {
        "by_items": "Number of items",
        "by_union": f"Size of the union: {found['union_items']} items of {WORDS_PER_ITEM} words drawn from a pool",
    }
    for key, title in titles.items():
        columns = {"": "{name}", "items": "{items:d}", "union": "{union:.0f}", "p50 ms": "{p50:,.1f}"}
        columns |= {f"{BASELINE} takes": f"{{ratios[{BASELINE}]:.2f}}x", "GFLOP": "{gflop:,.2f}"}
        lines += ["", f"## {title}", "", *table(found[key], columns), ""]
        fits = {
            "": "{name}",
            "k of ms": "{p50:.2f} ± {p50 error:.2f}",
            "k of GFLOP": "{gflop:.2f} ± {gflop error:.2f}",
        }
        lines += table(found["exponents"][key], fits)
    return lines


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Latency against items and against the union; dashed lines: operations, scaled to the last point."""
    labels = {"by_items": "items of the query", "by_union": "distinct tokens of all items"}
    title = f"{found['provenance']['machine']}, {found['precision']}"
    with chart(path, title, panels=2, width=5.2, height=4.0) as panels:
        for axes, (key, size) in zip(panels, SIZES.items(), strict=True):
            for name in SYSTEMS:
                rows = [row for row in found[key] if row["name"] == name]
                x, ms, gflop = (np.array([row[field] for row in rows]) for field in (size, "p50", "gflop"))
                (line,) = axes.plot(x, ms, marker="o", ms=3, label=name)
                axes.plot(x, gflop * ms[-1] / gflop[-1], lw=0.7, ls="--", color=line.get_color())
            ticks = sorted({round(row[size]) for row in found[key]})
            logarithmic(axes, ticks, labels[key], "milliseconds (dashed: operations, scaled)")
        panels[0].legend(frameon=False, fontsize=7)


def _contender(name: str, encoder: str, device: torch.device, precision: str) -> OwnRanker:
    limits = {"max_items_per_pass": _EVERYTHING, "max_union_tokens": _EVERYTHING, "union_positions": "item"}
    ranker = build_ranker("crossjem", encoder, limits) if name == ONE_PASS else build_ranker(name, encoder)
    return OwnRanker(name, Reranker(ranker, device, precision), precision=precision)  # type: ignore[arg-type]


def _options() -> argparse.ArgumentParser:
    out = parser("benchmarks.scaling", __doc__, "runs/scaling")
    out.add_argument("--precision", choices=PRECISIONS, default="float32")
    out.add_argument("--items", type=int, nargs="+", help="default 10 30 100 300 700 1400")
    out.add_argument("--pools", type=int, nargs="+", help="words to draw items from (default 25 to 1600)")
    out.add_argument("--union-items", type=int, help="items of the lists with different unions (default 100)")
    out.add_argument("--rounds", type=int, help="counted lists a size (default 10)")
    return out


main = partial(program, _options, run)

if __name__ == "__main__":
    raise SystemExit(main())
