"""How a step's time comes together on hardware that may not be here. Pure: specs in, values out."""

from gpuyard.predict.calibration.applied import CALIBRATED, measured_constants
from gpuyard.predict.calibration.defaults import HOP_HERE, LINK_HERE
from gpuyard.predict.calibration.document import Calibration, calibration_from_json
from gpuyard.predict.compute import ComputeLine, compute_line, fit_line
from gpuyard.predict.constants import (
    CPU_VARIATION,
    GLOO_OVERLAP,
    GPU_VARIATION,
    Constant,
)
from gpuyard.predict.platform import Platform, platform_of
from gpuyard.predict.prediction import (
    Choke,
    ClusterPrediction,
    Prediction,
    predict,
    predict_cluster,
)
from gpuyard.predict.scenario import PlatformScenario, Scenario, scenario_of
from gpuyard.predict.strategies import STRATEGIES, Strategy
from gpuyard.predict.strategies.remedies import Remedy
from gpuyard.predict.table import Placement, Step, place
from gpuyard.predict.transport import Pipe

__all__ = [
    "CALIBRATED",
    "CPU_VARIATION",
    "GLOO_OVERLAP",
    "GPU_VARIATION",
    "HOP_HERE",
    "LINK_HERE",
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
    "compute_line",
    "fit_line",
    "measured_constants",
    "place",
    "platform_of",
    "predict",
    "predict_cluster",
    "scenario_of",
]
