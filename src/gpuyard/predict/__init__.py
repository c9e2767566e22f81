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
    default_overlap,
)
from gpuyard.predict.fabric import Pipe
from gpuyard.predict.knee import Knee, find_knee
from gpuyard.predict.layouts import LayoutPrediction, compare_layouts
from gpuyard.predict.placement import Placement, place
from gpuyard.predict.platform import Platform, machine_of, platform_of
from gpuyard.predict.prediction import Choke, ClusterPrediction, Prediction, Step
from gpuyard.predict.predictor import (
    Question,
    predict,
    predict_cluster,
    relieve,
)
from gpuyard.predict.relief import Relief
from gpuyard.predict.remedies import Knees, relieve_cluster
from gpuyard.predict.timeline import Bar, TimeLine
from gpuyard.predict.why import Why, explain

__all__ = [
    "CALIBRATED",
    "CPU_VARIATION",
    "GLOO_OVERLAP",
    "GPU_VARIATION",
    "HOP_HERE",
    "LINK_HERE",
    "Bar",
    "Calibration",
    "Choke",
    "ClusterPrediction",
    "ComputeLine",
    "Constant",
    "Knee",
    "Knees",
    "LayoutPrediction",
    "Pipe",
    "Placement",
    "Platform",
    "Prediction",
    "Question",
    "Relief",
    "Step",
    "TimeLine",
    "Why",
    "calibration_from_json",
    "compare_layouts",
    "compute_line",
    "default_overlap",
    "explain",
    "find_knee",
    "fit_line",
    "machine_of",
    "measured_constants",
    "place",
    "platform_of",
    "predict",
    "predict_cluster",
    "relieve",
    "relieve_cluster",
]
