"""Validation of predictions against all published tables, based on their single-GPU figures alone."""

from gpuyard.predictor.validation.points import PointsScore
from gpuyard.predictor.validation.report import Report, report
from gpuyard.predictor.validation.score import (
    PredictedRow,
    Score,
    SourceScore,
    TableScore,
    Validation,
    validate,
)

__all__ = [
    "PointsScore",
    "PredictedRow",
    "Report",
    "Score",
    "SourceScore",
    "TableScore",
    "Validation",
    "report",
    "validate",
]
