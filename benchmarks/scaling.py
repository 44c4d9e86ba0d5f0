"""Cost against the number of items and against the size of the token union, with fitted exponents.

    python -m benchmarks.scaling --items 10 30 100 300 700 1400 --out runs/scaling

Beside the measured latency: the counted operations, and the cost formula of the CROSS-JEM paper (section 5.2):

    joint:      (L_q + L_k N / C)^2 L        one pass over all items
    pointwise:  (L_q + L_k)^2 L N

L_q, L_k: tokens of the query and of an item; L: layers; N: items; C = L_k N / |union|, the compression. Both count the
square of a sequence's length, which is the attention. The matrices of a layer cost in proportion to the length; with
short sequences they are most of it.

Writes scaling.json, scaling.md and scaling.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track

from benchmarks.charts import chart, logarithmic
from benchmarks.contenders import WARMUP, OwnRanker, build_ranker, measured_lists, time_in_turn
from benchmarks.pages import provenance, table, write
from benchmarks.program import PRECISIONS, defaults, parser, torch_device
from benchmarks.program import run as run_program
from crossjem_pl.inference import Reranker
from crossjem_pl.lists import RankingList
from crossjem_pl.rankers.encoders import load_tokenizer
from crossjem_pl.text import ShortTextTokenizer

ONE_PASS, BASELINE = "crossjem, one pass", "monobert"
SYSTEMS = ("crossjem", "crossjem-best", ONE_PASS, BASELINE)
KINDS = {"ms": "measured", "gflop": "operations", "paper_cost": "paper's formula"}
"""The costs of a row, and what they are called on the page."""
WORDS_PER_ITEM, WORDS_PER_QUERY = 4, 3
_EVERYTHING = 1_000_000
"""More items and union tokens than a list has."""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after a mistake in the input."""
    return run_program(_options(), argv, run)


def run(args: argparse.Namespace) -> None:
    """Measures, prints and writes everything that `args` asks for."""
    full = {"items": [10, 30, 100, 300, 700, 1400], "pools": [25, 50, 100, 200, 400, 1600], "rounds": 10}
    smoke = {"items": [10, 30, 100], "pools": [30, 100, 300], "rounds": 1, "union_items": 50}
    defaults(args, full | {"union_items": 100}, smoke)
    for name in ("items", "pools"):
        setattr(args, name, sorted(set(getattr(args, name))))
        if len(getattr(args, name)) < 2:
            raise ValueError(f"--{name}: an exponent needs at least two sizes")
    device = torch_device(args.device)
    found: dict[str, Any] = {"provenance": provenance(device, args.command), "encoder": args.encoder}
    found |= {"precision": args.precision, "rounds": args.rounds, "union_items": args.union_items}
    contenders = [_contender(name, args.encoder, device, args.precision) for name in SYSTEMS]
    tokenizer = ShortTextTokenizer(load_tokenizer(args.encoder))
    found["by_items"] = [
        row
        for items in track(args.items, description="items")
        for row in measure(contenders, measured_lists(items, args.rounds), items)
    ]
    found["by_union"] = [
        row
        for pool in track(args.pools, description="unions")
        for row in measure(
            contenders, pooled_lists(tokenizer, args.rounds + WARMUP, args.union_items, pool), pool
        )
    ]
    found["tail"] = sorted(args.items)[-max(len(args.items) * 2 // 3, 2)]
    tail = [row for row in found["by_items"] if row["size"] >= found["tail"]]
    found["exponents"] = {
        "items": exponents(found["by_items"], "items"),
        "tail": exponents(tail, "items"),
        "union": exponents(found["by_union"], "union"),
    }
    write(found, page(found), args.out, "scaling")
    plot(found, args.out / "scaling.png")


def measure(contenders: Sequence[OwnRanker], lists: Sequence[RankingList], size: int) -> list[dict[str, Any]]:
    """A row for every system on lists of one size, of which the first `WARMUP` are not counted.

    `size`: what is varied; `ms`: median latency; `gflop`: 10^9 counted operations a list; `paper_cost`: of section
    5.2, in squared tokens times layers, joint systems as one pass; `items`, `query`, `item`, `union`: numbers of items
    and tokens (means); `rounds`: milliseconds of every list.
    """
    times = time_in_turn(contenders, [[ranking_list] for ranking_list in lists])
    rows = []
    for contender in contenders:
        ranker: Any = contender.reranker.ranker
        tokens = count_tokens(ranker, lists[WARMUP:])
        layers = ranker.encoder_config.num_hidden_layers
        cost = paper_cost(tokens, layers, joint=contender.name != BASELINE)
        gflop = float(np.median([contender.flops([one]) or 0 for one in lists[WARMUP:]])) / 1e9
        row = {"name": contender.name, "size": size, "ms": times[contender.name].median, "gflop": gflop}
        rows.append({**row, "paper_cost": cost, **tokens, "rounds": list(times[contender.name].rounds)})
    return rows


def count_tokens(ranker: Any, lists: Sequence[RankingList]) -> dict[str, float]:
    """`items`, and the tokens of `query`, an `item` and the `union` (means), with the ranker's limits."""
    counted = []
    for ranking_list in lists:
        tokens = ranker.encode_items([ranking_list]).tokens
        query = ranker.encode_queries([ranking_list]).tokens.lengths[0]
        counted.append((query, tokens.lengths.mean(), len(np.unique(tokens.values))))
    means = np.mean(counted, axis=0).tolist()
    return {"items": len(lists[0]), **dict(zip(("query", "item", "union"), means, strict=True))}


def paper_cost(tokens: Mapping[str, float], layers: int, joint: bool) -> float:
    """Section 5.2 of the paper: see the module."""
    query, item, items = tokens["query"], tokens["item"], tokens["items"]
    if not joint:
        return (query + item) ** 2 * layers * items
    compression = item * items / tokens["union"]
    return (query + item * items / compression) ** 2 * layers


def exponents(
    rows: Sequence[Mapping[str, Any]], over: str
) -> dict[str, dict[str, tuple[float, float | None]]]:
    """System -> kind of cost -> (k, its standard error) of cost = a size^k; `over`: the field with the size."""
    found: dict[str, dict[str, tuple[float, float | None]]] = {}
    for name in dict.fromkeys(row["name"] for row in rows):
        of_system = [row for row in rows if row["name"] == name]
        sizes = [row[over] for row in of_system]
        found[name] = {kind: fit_exponent(sizes, [row[kind] for row in of_system]) for kind in KINDS}
    return found


def fit_exponent(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float | None]:
    """k of cost = a size^k by least squares on the logarithms, and its standard error (None from two points).

    Raises:
        ValueError: for fewer than two different sizes, or numbers that are not above 0.
    """
    x, y = np.asarray(sizes, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    if len(x) != len(y) or len(np.unique(x)) < 2 or (x <= 0).any() or (y <= 0).any():
        raise ValueError("an exponent needs at least two different sizes, and sizes and costs above 0")
    from scipy.stats import linregress

    fit = linregress(np.log(x), np.log(y))
    error = 0.0 if np.ptp(y) == 0 else float(fit.stderr)  # no spread in the costs: linregress has no error
    return float(fit.slope), error if len(x) > 2 else None


def words_of(tokenizer: ShortTextTokenizer, seed: int = 7) -> list[str]:
    """The lower-case words of at least three letters that are one token each, in a shuffled order."""
    words = sorted(
        word for word in tokenizer.hf.get_vocab() if word.isalpha() and word.islower() and len(word) > 2
    )
    lengths = tokenizer.encode(words, 2**31).tokens.lengths if words else np.empty(0)
    single = [word for word, length in zip(words, lengths, strict=True) if length == 1]
    return [single[i] for i in np.random.default_rng(seed).permutation(len(single))]


def pooled_lists(
    tokenizer: ShortTextTokenizer, count: int, items: int, pool: int, seed: int = 7
) -> list[RankingList]:
    """Lists of different items, of `WORDS_PER_ITEM` words drawn from a pool of `pool` words; the query likewise.

    A small pool gives keywords that say nearly the same, a large one unrelated texts. Every word is one token, so a
    pointwise ranker's cost is the same everywhere, while the union grows with the pool.

    Raises:
        ValueError: if the vocabulary has fewer words, or the pool is too small for so many different items.
    """
    words = words_of(tokenizer, seed)
    if pool > len(words):
        raise ValueError(f"a pool of {pool} words was asked for, the tokenizer has {len(words)} of one token")
    if pool < WORDS_PER_ITEM or pool**2 < items:
        raise ValueError(f"a pool of {pool} words is too small for {items} items of {WORDS_PER_ITEM} words")
    draw = np.random.default_rng(seed)

    def text(length: int) -> str:
        return " ".join(words[i] for i in draw.choice(pool, size=length, replace=False))

    lists = []
    for number in range(count):
        texts: dict[str, None] = {}
        while len(texts) < items:
            texts[text(WORDS_PER_ITEM)] = None
        lists.append(RankingList.from_texts(text(WORDS_PER_QUERY), list(texts), f"pool-{pool}-{number}"))
    return lists


def page(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    fits, everything = found["exponents"], {"all sizes": "items", f"{found['tail']} items and more": "tail"}
    return [
        "# Scaling",
        "",
        f"Encoder {found['encoder']}, {found['precision']}; {found['rounds']} lists a size after {WARMUP} that are not "
        "counted, the systems in turn on each; cold token caches. `crossjem` and `crossjem-best` split lists into "
        f"passes at their limits; `{ONE_PASS}` reads all items at once (a token's position is that in its item), as "
        "the cost formula of the paper's section 5.2 has it: (L_q + L_k N/C)^2 L against (L_q + L_k)^2 L N. GFLOP: "
        "matrix products and attentions that torch counts.",
        "",
        "## Number of items",
        "",
        *_table(found["by_items"], "items"),
        "",
        "Exponents k of cost = a N^k (least squares on logarithms, with standard errors). The formula's is that of "
        "one pass.",
        "",
        *_exponents({label: fits[key] for label, key in everything.items()}),
        "",
        f"## Size of the union, {found['union_items']} items",
        "",
        f"Items of {WORDS_PER_ITEM} words, queries of {WORDS_PER_QUERY}, drawn from pools of words that are one token "
        "each: all lists have as many tokens, the union is as large as the pool makes it.",
        "",
        *_table(found["by_union"], "words in the pool"),
        "",
        "Exponents over the size of the union:",
        "",
        *_exponents({"": fits["union"]}),
    ]


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Latency against items and against the union; dashed lines: operations, scaled to the last point."""
    title = f"{found['provenance']['machine']}, {found['precision']}"
    sides = (
        ("by_items", "items", "items of the query"),
        ("by_union", "union", "distinct tokens of all items"),
    )
    with chart(path, title, panels=2, width=5.2, height=4.0) as panels:
        for axes, (key, size, label) in zip(panels, sides, strict=True):
            for name in SYSTEMS:
                rows = [row for row in found[key] if row["name"] == name]
                x, ms, gflop = (np.array([row[field] for row in rows]) for field in (size, "ms", "gflop"))
                (line,) = axes.plot(x, ms, marker="o", ms=3, label=name)
                axes.plot(x, gflop * ms[-1] / gflop[-1], lw=0.7, ls="--", color=line.get_color())
            ticks = sorted({round(row[size]) for row in found[key]})
            logarithmic(axes, ticks, label, "milliseconds (dashed: operations, scaled)")
        panels[0].legend(frameon=False, fontsize=7)


def _table(rows: Sequence[Mapping[str, Any]], size: str) -> list[str]:
    at = {(row["name"], row["size"]): row for row in rows}

    def ratio(kind: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: (
            "" if row["name"] == BASELINE else f"{at[BASELINE, row['size']][kind] / row[kind]:.2f}x"
        )

    columns: dict[str, Any] = {"": "{name}", size: "{size:d}", "union": "{union:.0f}"}
    columns["C"] = lambda row: f"{row['item'] * row['items'] / row['union']:.1f}"
    columns |= {"p50 ms": "{ms:,.1f}", "GFLOP": "{gflop:,.2f}", "paper's cost": "{paper_cost:,.0f}"}
    return table(rows, columns | {f"{BASELINE} / this: {KINDS[kind]}": ratio(kind) for kind in KINDS})


def _exponents(fits: Mapping[str, Mapping[str, Mapping[str, tuple[float, float | None]]]]) -> list[str]:
    def text(kind: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: f"{row[kind][0]:.2f}" + ("" if row[kind][1] is None else f" ± {row[kind][1]:.2f}")

    rows = [
        {"name": name, "over": over, **fit} for over, by_name in fits.items() for name, fit in by_name.items()
    ]
    return table(
        rows, {"": "{name}", "over": "{over}", **{title: text(kind) for kind, title in KINDS.items()}}
    )


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


if __name__ == "__main__":
    raise SystemExit(main())
