"""Real training runs, collectives and the links of this machine, timed, and the store of what they gave."""

from gpuyard.measure.collectives.records import CollectivesBench
from gpuyard.measure.export import collectives_to_csv, links_to_csv, to_csv, to_json_lines
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.measurement import Measurement, Provenance, StepParts, Window
from gpuyard.measure.rejection import Rejection
from gpuyard.measure.run import run_sweep
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.sweep import Point, Sweep, SweepEvent, plan_sweep

__all__ = [
    "CollectivesBench",
    "LinkBench",
    "Measurement",
    "Point",
    "Provenance",
    "Rejection",
    "ResultsStore",
    "StepParts",
    "Sweep",
    "SweepEvent",
    "Window",
    "collectives_to_csv",
    "links_to_csv",
    "plan_sweep",
    "run_sweep",
    "to_csv",
    "to_json_lines",
]
