"""The standalone HTML report of a study. Pure but for `write_report`, which writes two files."""

from gpuyard.report.page import render_study, write_report

__all__ = ["render_study", "write_report"]
