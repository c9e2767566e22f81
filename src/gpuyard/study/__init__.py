"""A study measures workloads here, predicts them on other clusters, prices them, and recommends what to do."""

from gpuyard.study.result import StudyResult, parse_study_result
from gpuyard.study.run import run_study

__all__ = ["StudyResult", "parse_study_result", "run_study"]
