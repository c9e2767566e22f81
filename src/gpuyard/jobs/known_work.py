"""What is known of a job's work before it runs: its scaling curve on this machine's GPUs, and how many samples it trains.

The predictor knows models of the catalog on GPUs of the catalog. Runs that were measured on this machine correct it, and
do where it knows nothing. A job of which neither knows anything gets the GPUs that it asks for.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.jobs.curve import Curve
from gpuyard.jobs.progress import corrected_curve
from gpuyard.specs import DEFAULT_EXCHANGE, Cluster, Workload
from gpuyard.specs.job import JobSpec
from gpuyard.steps.windows import StepWindow

if TYPE_CHECKING:
    from gpuyard.measure.job_runs.records import JobRun

_MOST_GPUS = 1024


@dataclass(frozen=True)
class KnownWork:
    """Speeds are in samples a second."""

    curve: Curve | None = None
    samples: float | None = None
    basis: str = ""
    """What the curve stands on, in a few words."""

    def document(self) -> dict[str, Any]:
        """For a store."""
        curve = None
        if self.curve is not None:
            curve = {
                "speeds": [float(speed) for speed in self.curve.packed],
                "low": self.curve.low,
                "high": self.curve.high,
            }
        return {"curve": curve, "samples": self.samples, "basis": self.basis}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "KnownWork":
        curve = document["curve"]
        if curve is not None:
            curve = Curve(np.array(curve["speeds"]), low=curve["low"], high=curve["high"])
        return cls(curve, document["samples"], document["basis"])


def known_work(
    spec: JobSpec,
    *,
    gpu: str | None,
    gpus: int,
    cluster: Cluster | None = None,
    slurm: str | None = None,
) -> KnownWork:
    """On one machine with so many GPUs of a kind; `gpu` is its row in the catalog, None where it has none.

    Or on a `cluster`, corrected by what jobs have reported on the Slurm of this name.
    """
    if spec.workload is None:
        return KnownWork(samples=spec.samples)
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.jobs.predicted import predicted_curve

    workload = read_workload(spec.workload)
    if slurm is not None:
        predicted = (
            None if cluster is None else predicted_curve(workload, cluster, min(gpus, _MOST_GPUS))
        )
        runs = _on_slurm(workload, slurm)
    else:
        predicted = None if gpu is None else _predicted(workload, gpu, min(gpus, _MOST_GPUS))
        runs = _measured(workload, None if gpu is None else "cuda")
    curve = corrected_curve(predicted, runs, gpus=min(gpus, spec.gpus.max))
    basis = ["predicted"] if predicted is not None else []
    if runs:
        counts = sorted({run.gpus for run in runs})
        basis.append(f"measured with {', '.join(map(str, counts))} GPUs")
    return KnownWork(curve, spec.samples or _samples(workload), " and ".join(basis))


def _samples(workload: Workload) -> float | None:
    return None if workload.dataset is None else float(workload.epochs * workload.dataset.samples)


def _predicted(workload: Workload, gpu: str, gpus: int) -> Curve | None:
    """None where nobody can say."""
    from gpuyard.hardware.clusters import read_cluster

    try:
        from gpuyard.jobs.predicted import predicted_curve

        return predicted_curve(workload, read_cluster(f"{gpus}x{gpu}"), gpus)
    except GpuyardError:
        return None


def _measured(workload: Workload, device: str | None) -> list[StepWindow]:
    """Runs of this workload on this machine, each as what a job would have reported of it.

    What its CPU does says nothing of its GPUs; without a GPU that is known, everything counts.
    """
    from gpuyard.measure.job_runs.records import JobRun
    from gpuyard.measure.store import ResultsStore
    from gpuyard.measure.training.records import Measurement

    path = files.results_file()
    if not path.exists():
        return []
    store, here = ResultsStore(path), os.uname().nodename
    jobs = [
        _window(run)
        for run in store.records(JobRun, workload.name)
        if run.provenance.host == here
        and run.nodes == 1
        and device in (None, run.device)
        and run.doubt is None
    ]
    benches = [
        StepWindow(
            steps=sum(window.steps for window in run.windows),
            samples=run.samples_per_second * sum(window.seconds for window in run.windows),
            seconds=sum(window.seconds for window in run.windows),
            step_seconds=run.step.step_seconds,
            gpus=run.workers,
        )
        for run in store.records(Measurement, workload.name)
        if run.provenance.host == here
        and run.place.kind == "here"
        and run.strategy == "ddp"
        and run.batch_per_worker == workload.batch_per_gpu
        and device in (None, run.device)
        and run.remedy == DEFAULT_EXCHANGE
        and (run.synthetic, run.doubt) == (None, None)
    ]
    return jobs or benches  # what it did in its own loop is nearer than a bench


def _on_slurm(workload: Workload, cluster: str) -> list[StepWindow]:
    """What jobs of this workload have reported there, on whatever nodes."""
    from gpuyard.measure.job_runs.records import JobRun
    from gpuyard.measure.store import ResultsStore

    path = files.results_file()
    if not path.exists():
        return []
    return [
        _window(run)
        for run in ResultsStore(path).records(JobRun, workload.name)
        if run.handle.startswith(f"slurm://{cluster}/") and run.doubt is None
    ]


def _window(run: "JobRun") -> StepWindow:
    return StepWindow(
        steps=run.steps,
        samples=run.clock_samples_per_second * run.seconds,
        seconds=run.seconds,
        step_seconds=run.step_seconds,
        gpus=run.gpus,
        nodes=run.nodes,
    )
