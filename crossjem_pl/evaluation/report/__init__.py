"""One report of one or several runs: curves, tables, kinds of lists, calibration, latency, examples, settings."""

from crossjem_pl.evaluation.report.build import STEPS, build_report, write_report
from crossjem_pl.evaluation.report.contents import Report

__all__ = ["STEPS", "Report", "build_report", "write_report"]
