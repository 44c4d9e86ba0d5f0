"""Renders the templates beside this module as an HTML page or as Markdown, and writes numbers as tables show them."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cache
from typing import Any

import jinja2

__all__ = ["escape_markdown", "p_value", "parameters", "render", "training_time"]


def render(report: Any, ending: str, folder: str | None = None) -> str:
    """The report through `templates/report.jinja`, which holds its text, and `templates/blocks.<ending>`.

    All texts of the runs are escaped. The HTML page holds its plots, loads nothing and has no script.

    Args:
        report: see `crossjem_pl.evaluation.report.Report`.
        ending: "html" or "md".
        folder: in which Markdown links the plots, as `<folder>/<name>.svg`; without it, Markdown has none.
    """
    environment = _environment()
    blocks = environment.get_template(f"blocks.{ending}").make_module({"folder": folder})
    text = environment.get_template("report.jinja").render(report=report, page=blocks)
    return text if ending == "html" else re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def p_value(p: float) -> str:
    """.0312 for 0.03124."""
    return "<.0001" if p < 0.0001 else "1.0" if p >= 0.99995 else f"{p:.4f}"[1:]


def parameters(count: float | None) -> str:
    """22.7M for 22,713,216, 7B for 7,000,000,000."""
    if count is None:
        return "–"
    return f"{count / 1e6:.3g}M" if count < 999.5e6 else f"{count / 1e9:.3g}B"


def training_time(seconds: float | None) -> str:
    """1:02:05 for 3,725 seconds."""
    return "–" if seconds is None else str(timedelta(seconds=round(seconds)))


def escape_markdown(text: object) -> str:
    """The text as it is, whatever Markdown or HTML it holds, on one line."""
    return re.sub(r"([\\`*_{}<>#|~$&]|\](?=[(\[:]))", r"\\\1", " ".join(str(text).split()))


def _fence(text: str) -> str:
    """Back-ticks around code in Markdown, more than any row of them in the text."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("crossjem_pl.evaluation"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(md=escape_markdown, anchor=_anchor, fence=_fence)
    return environment
