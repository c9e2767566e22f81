"""Benches that time real training, collectives, links, and storage, and the store of their results."""

from gpuyard.measure.collectives.records import CollectivesBench
from gpuyard.measure.kind import to_json_lines
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.reading import Results, read_results
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.records import (
    MeasuredStep,
    Measurement,
    Provenance,
    Rejection,
    Window,
)
from gpuyard.measure.training.run import run_sweep
from gpuyard.measure.training.sweep import Sweep, SweepEvent

__all__ = [
    "CollectivesBench",
    "LinkBench",
    "MeasuredStep",
    "Measurement",
    "Provenance",
    "Rejection",
    "Results",
    "ResultsStore",
    "Sweep",
    "SweepEvent",
    "Window",
    "plan_sweep",
    "read_results",
    "run_sweep",
    "to_json_lines",
]
