"""A simulated sponsored-search log: queries, keywords, graded relevance, clicks (docs/simulator.md)."""

from crossjem_pl.data.simulator.intents import SPLITS, Split
from crossjem_pl.data.simulator.log import (
    Session,
    click_probability,
    quick_back_probability,
    simulate,
    simulate_sessions,
)

__all__ = ["SPLITS", "Session", "Split", "click_probability", "quick_back_probability", "simulate",
           "simulate_sessions"]  # fmt: skip
