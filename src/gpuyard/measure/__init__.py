"""Real training runs, collectives and the links of this machine, timed, and the store of what they gave."""

from gpuyard.measure.calibration import CalibrationRows, calibration_rows, hardware_of
from gpuyard.measure.collectives.records import CollectivesBench
from gpuyard.measure.export import collectives_to_csv, links_to_csv, to_csv, to_json_lines
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.reading import Results, read_results
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.measurement import Measurement, Provenance, StepParts, Window
from gpuyard.measure.training.rejection import Rejection
from gpuyard.measure.training.run import run_sweep
from gpuyard.measure.training.sweep import Point, Sweep, SweepEvent, plan_sweep

__all__ = [
    "CalibrationRows",
    "CollectivesBench",
    "LinkBench",
    "Measurement",
    "Point",
    "Provenance",
    "Rejection",
    "Results",
    "ResultsStore",
    "StepParts",
    "Sweep",
    "SweepEvent",
    "Window",
    "calibration_rows",
    "collectives_to_csv",
    "hardware_of",
    "links_to_csv",
    "plan_sweep",
    "read_results",
    "run_sweep",
    "to_csv",
    "to_json_lines",
]
