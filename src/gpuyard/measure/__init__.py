"""Real training runs, timed, and the store of what they gave."""

from gpuyard.measure.export import to_csv, to_json_lines
from gpuyard.measure.measurement import Measurement, Provenance, StepParts, Window
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.sweep import Point, Sweep, SweepEvent, plan_sweep, run_sweep

__all__ = [
    "Measurement",
    "Point",
    "Provenance",
    "ResultsStore",
    "StepParts",
    "Sweep",
    "SweepEvent",
    "Window",
    "plan_sweep",
    "run_sweep",
    "to_csv",
    "to_json_lines",
]
