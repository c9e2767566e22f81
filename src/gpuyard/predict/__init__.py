"""Predict how long a training step takes on hardware that need not exist here.

The package is pure: it turns specs into values and touches neither files nor devices.
"""

from gpuyard.predict.calibration.applied import CALIBRATED, measured_constants
from gpuyard.predict.calibration.defaults import GLOO_HOP, GLOO_LINK
from gpuyard.predict.calibration.document import Calibration, calibration_from_json
from gpuyard.predict.compute import ComputeLine, estimate_compute_line, fit_line
from gpuyard.predict.constants import (
    CPU_VARIATION,
    GLOO_OVERLAP,
    GPU_VARIATION,
    Constant,
)
from gpuyard.predict.platform import Platform, create_platform
from gpuyard.predict.prediction import (
    Choke,
    ClusterPrediction,
    Prediction,
    predict,
    predict_cluster,
)
from gpuyard.predict.scenario import PlatformScenario, Scenario, create_scenario
from gpuyard.predict.strategies import STRATEGIES, Strategy
from gpuyard.predict.strategies.remedies import Remedy
from gpuyard.predict.table import Placement, Step, place
from gpuyard.predict.transport import Pipe

__all__ = [
    "CALIBRATED",
    "CPU_VARIATION",
    "GLOO_HOP",
    "GLOO_LINK",
    "GLOO_OVERLAP",
    "GPU_VARIATION",
    "STRATEGIES",
    "Calibration",
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
    "calibration_from_json",
    "create_platform",
    "create_scenario",
    "estimate_compute_line",
    "fit_line",
    "measured_constants",
    "place",
    "predict",
    "predict_cluster",
]
