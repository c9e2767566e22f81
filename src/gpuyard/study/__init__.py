"""The main job: describe, measure here, predict elsewhere, price, and say what to do."""

from gpuyard.study.result import StudyResult, study_result_from_json
from gpuyard.study.run import run_study

__all__ = ["StudyResult", "run_study", "study_result_from_json"]
