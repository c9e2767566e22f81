"""Predict how long a training step takes on hardware that need not exist here.

The package is pure: it turns specs into values and touches neither files nor devices. Calibrations and explanations are
imported from their own modules, so that a plain prediction does not load them.
"""

from gpuyard.predictor.compute import ComputeLine, estimate_compute_line, fit_line
from gpuyard.predictor.constants import (
    CPU_VARIATION,
    GLOO_OVERLAP,
    GPU_VARIATION,
    Constant,
)
from gpuyard.predictor.placement import Placement, place
from gpuyard.predictor.platform import Platform, create_platform
from gpuyard.predictor.predicted import Choke, ClusterPrediction, Prediction
from gpuyard.predictor.prediction import predict, predict_cluster
from gpuyard.predictor.scenario import PlatformScenario, Scenario, create_scenario
from gpuyard.predictor.strategies import STRATEGIES, Strategy
from gpuyard.predictor.strategies.remedies import Remedy
from gpuyard.predictor.table import Step
from gpuyard.predictor.transport import Pipe

__all__ = [
    "CPU_VARIATION",
    "GLOO_OVERLAP",
    "GPU_VARIATION",
    "STRATEGIES",
    "Choke",
    "ClusterPrediction",
    "ComputeLine",
    "Constant",
    "Pipe",
    "Placement",
    "Platform",
    "PlatformScenario",
    "Prediction",
    "Remedy",
    "Scenario",
    "Step",
    "Strategy",
    "create_platform",
    "create_scenario",
    "estimate_compute_line",
    "fit_line",
    "place",
    "predict",
    "predict_cluster",
]
