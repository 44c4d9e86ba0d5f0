"""How a comparison's numbers and its method are worded, the same in Markdown, HTML and plots."""

from __future__ import annotations

from crossjem_pl.evaluation.results import Comparison

__all__ = ["method", "number", "p_value", "parameters", "signed", "training_time", "where"]

_INTERVALS = (
    "Intervals are 95% bootstrap intervals over queries: they say how much the choice of queries matters, "
    "and nothing about training again with another seed."
)
_TESTS = (
    "Differences are paired, query by query. p: two-sided randomisation test; in brackets the paired t-test. "
    "Both are Holm-corrected over the systems compared with the baseline on the same metric; the uncorrected "
    "values are in compare.csv. * marks a corrected randomisation p below .05.",
    "Win/tie/loss: queries on which the system is better than, equal to and worse than the baseline.",
)


def method(comparison: Comparison) -> tuple[str, ...]:
    """How the numbers came about, one paragraph each."""
    return (_INTERVALS, *_TESTS) if len(comparison.systems) > 1 else (_INTERVALS,)


def where(comparison: Comparison) -> str:
    """Which queries the numbers are from."""
    split = "" if comparison.split is None else f" of the {comparison.split} split"
    return f"{comparison.queries:,} {'query' if comparison.queries == 1 else 'queries'}{split}"


def number(value: float) -> str:
    return f"{value:.4f}"


def signed(value: float) -> str:
    return f"{value:+.4f}"


def p_value(p: float) -> str:
    return "<.0001" if p < 0.0001 else "1.0" if p > 0.99995 else f"{p:.4f}"[1:]


def parameters(count: int | None) -> str:
    """22,713,216 is 22.7M."""
    if count is None:
        return "–"
    for size, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "K")):
        # 999,900 is 1M, not 1000K
        if count >= 0.9995 * size:
            scaled = count / size
            return f"{scaled:,.0f}{unit}" if scaled >= 999.5 else f"{scaled:.3g}{unit}"
    return str(count)


def training_time(seconds: float | None) -> str:
    """3,725 is 1 h 02 min."""
    if seconds is None:
        return "–"
    if seconds < 59.5:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"
