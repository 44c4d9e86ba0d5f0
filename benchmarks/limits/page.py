"""The page on limits and its plot, from the content of the JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.limits.candidates import OWN
from benchmarks.limits.scoring import METRICS
from benchmarks.measuring.charts import chart, logarithmic
from benchmarks.measuring.pages import describe_conditions, markdown_table
from crossjem_pl.evaluation.page import p_value

__all__ = ["page", "plot"]


def page(found: Mapping[str, Any]) -> list[str]:
    """Markdown lines of the content of the JSON file."""
    return [
        "# Where accuracy is lost",
        "",
        *describe_conditions(found["conditions"]),
        f"Lists: {found['lists']['file']}, {found['lists']['all']:,} of them. Models: {', '.join(found['models'])}; "
        f"matrix products in {found['precision']}, {found['conditions']['threads']} "
        f"thread{'s' * (found['conditions']['threads'] > 1)}. RR@10 and AP@10 take labels of at least 1 for relevant. "
        "In brackets: 95% bootstrap intervals over lists; they say nothing about training again with another seed. p: "
        "two-sided paired randomisation test, Holm-corrected over the models that are compared with the same one on "
        "the same metric and lists.",
        "",
        *(["A smoke run: it shows that every step runs and says little of quality.", ""] * found["smoke"]),
        *_candidates(found),
        "",
        *_passes(found),
        "",
        *_kinds(found),
    ]


def plot(found: Mapping[str, Any], path: Path) -> None:
    """RR@10 with its intervals, and milliseconds, against the number of candidates."""
    rows = found["by_items"]
    sizes = sorted({row["items"] for row in rows})
    title = f"{found['conditions']['machine']}, {found['precision']}, {found['sample']['lists']} lists"
    with chart(path, title, panels=2, width=5.0, height=3.8) as (accuracy, time):
        for name in found["models"]:
            own = [row for row in rows if row["model"] == name]
            x, cells = [row["items"] for row in own], [row["RR@10"] for row in own]
            (line,) = accuracy.plot(x, [cell["mean"] for cell in cells], marker="o", ms=3, label=name)
            low, high = ([cell[end] for cell in cells] for end in ("low", "high"))
            accuracy.fill_between(x, low, high, color=line.get_color(), alpha=0.12, lw=0)
            time.plot(x, [row["milliseconds"] for row in own], marker="o", ms=3, label=name)
        logarithmic(time, sizes, "candidates", "milliseconds a list")
        logarithmic(accuracy, sizes, "candidates", "RR@10")
        accuracy.set_yscale("linear")
        accuracy.legend(frameon=False, fontsize=7)


def _candidates(found: Mapping[str, Any]) -> list[str]:
    sample, corpus = found["sample"], found["corpus"]
    baseline, largest = found["models"][0], max(found["items"])
    order = "the column `first_stage`" if found["lists"]["first_stage"] else "the order in the file"
    columns = ["model", "candidates", *METRICS]
    columns += [f"{metric} against {baseline} (p)" for metric in METRICS] + ["median ms a list"]
    rows = [
        [row["model"], str(row["items"]), *_figures(row), f"{row['milliseconds']:,.1f}"]
        for row in found["by_items"]
    ]
    left_out = found["lists"]["all"] - sample["measurable"]
    return [
        "## Number of candidates",
        "",
        f"{sample['lists']:,} lists, drawn with seed {found['seed']} from the {sample['measurable']:,} with at least "
        f"one relevant item and fewer than {min(found['items'])} ({left_out:,} are not such lists). A list of N "
        f"candidates holds its relevant items, then its own others in the first stage's order ({order}), then BM25's "
        f"best of a corpus, cut at N: the lists are nested and the relevant items the same for every N. At {largest} "
        f"candidates {sample['added']:.0f} of them are added ones, {sample['unmatched']:.0f} of these without a word "
        "of the query (means).",
        "",
        f"Corpus: the {corpus['texts']:,} different item texts of {', '.join(corpus['files'])} (neither case nor "
        "outer white space counts). A text that a list has already, or that equals its query, is not added. **An added "
        "text counts as not relevant though nobody has judged it**: some may be relevant, which takes from every "
        "model, and the more the better it is.",
        "",
        "Models see the items in an order that tells nothing of them; equal scores are ranked by a digest of id and "
        "text. Time: one list at a time, texts to scores, the models taking turns on every list and nothing "
        "remembered of texts that were scored before.",
        "",
        *markdown_table(columns, rows),
    ]


def _passes(found: Mapping[str, Any]) -> list[str]:
    heading = ["## One pass against several", ""]
    if not found["by_passes"]:
        return [*heading, "None of the models is a CROSS-JEM that splits lists into passes."]
    columns = ["model", "items a pass", "union tokens a pass", "passes a list", *METRICS]
    columns += [f"{metric} against {OWN} limits (p)" for metric in METRICS] + ["median ms a list"]
    rows, held = [], []
    for row in found["by_passes"]:
        own = row["limits"] == OWN
        items = f"{row['items_per_pass']}" + f" ({OWN})" * own
        sizes = [items, f"{row['union_tokens']:,}", f"{row['passes']:.1f}"]
        rows.append([row["model"], *sizes, *_figures(row), f"{row['milliseconds']:,.1f}"])
        if not own and row["needed"] > row["union_tokens"]:
            held.append(
                f"{row['model']} at {row['items_per_pass']} items a pass: the union would have up to "
                f"{row['needed']:,} tokens, more than the encoder's positions allow; its limit stays at "
                f"{row['union_tokens']:,}, so that passes hold fewer items."
            )
    return [
        *heading,
        f"The same lists of {max(found['items'])} candidates, split in other ways by the same weights. The limit of "
        "the union is raised to what the largest pass needs, where the encoder's positions allow it.",
        "",
        *markdown_table(columns, rows),
        *(line for text in held for line in ("", text)),
    ]


def _kinds(found: Mapping[str, Any]) -> list[str]:
    names, same, kinds = found["models"], found["same_sets"], found["kinds"]
    cut_off = ", ".join(f"{name} {count:,}" for name, count in found["truncated"].items())
    lines = [
        "## Kinds of lists",
        "",
        f"{kinds['lists']:,} of the file's {found['lists']['all']:,} lists, as they are; {kinds['without_relevant']:,} "
        f"of them have no relevant item and count as 0. {kinds['metric']}; tokens are those of {found['tokens_of']}, "
        "each item cut to its limit. Groups differ in more than the property, so a difference between groups is an "
        f"observation and not an effect. Texts that the models cut to their limits: {cut_off}.",
    ]
    for number, breakdown in enumerate(found["breakdowns"]):
        heading = breakdown["property"][0].upper() + breakdown["property"][1:]
        rows = [
            [
                bucket["label"],
                f"{bucket['queries']:,}",
                *(_interval(*bucket["means"][name]) for name in names),
            ]
            for bucket in breakdown["buckets"]
        ]
        lines += ["", *markdown_table([heading, "lists", *names], rows)]
        if breakdown["left_out"]:
            lines += ["", f"{breakdown['left_out']:,} lists have no such value."]
        if number == 0:
            lines += [
                "",
                "Word pieces a word: of the query and the relevant items together, punctuation left out. Quarters by "
                "tokens in the union and by words of the query are as even as equal values allow.",
            ]
    lines += ["", "### Items with one set of tokens", ""]
    if not same["pairs"]:
        return [*lines, "No list has two items of different text with one set of tokens."]
    rows = [
        [name, f"{same['equal'][name]:,}", f"{100 * same['equal'][name] / same['pairs']:.1f}%"]
        for name in names
    ]
    return [
        *lines,
        f"{same['pairs']:,} pairs of items of one list, in {same['lists']:,} lists, differ in their text and hold the "
        f"same set of tokens; {same['same_order']:,} of the pairs have the tokens in the same order, too, and "
        f"{same['decisive']:,} are a relevant and another item. How many of the pairs a model gives equal scores (less "
        "than 0.000001 apart):",
        "",
        *markdown_table(["model", "pairs with equal scores", "of all pairs"], rows),
    ]


def _figures(row: Mapping[str, Any]) -> list[str]:
    """Both metrics with their intervals, then both differences."""
    means = [_interval(row[metric]["mean"], row[metric]["low"], row[metric]["high"]) for metric in METRICS]
    return [*means, *(_difference(row["against"][metric]) for metric in METRICS)]


def _interval(mean: float, low: float, high: float) -> str:
    return f"{mean:.4f} [{low:.4f}, {high:.4f}]"


def _difference(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    return f"{found['mean']:+.4f} [{found['low']:+.4f}, {found['high']:+.4f}] ({p_value(found['p'])})"
