"""Estimate a job's work before it runs: its scaling curve on the available GPUs and its number of samples.

The predictor covers the catalog's models on the catalog's GPUs. Runs measured on this machine correct the prediction, or
replace it if there is none. A job without either gets the GPUs that it requests.
"""

import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.jobs.curve_correction import correct_curve, interpolate_curve
from gpuyard.policies.curve import Curve, StepParts
from gpuyard.reporting.windows import StepWindow
from gpuyard.specs import DEFAULT_EXCHANGE, Cluster, Workload
from gpuyard.specs.job import JobSpec

if TYPE_CHECKING:
    from gpuyard.measure.job_runs.records import JobRun

_MAX_GPUS = 1024


@dataclass(frozen=True)
class WorkEstimate:
    """The estimated work of a job; speeds are in samples per second."""

    curve: Curve | None = None
    samples: float | None = None
    basis: str = ""
    """A short description of where the curve comes from."""

    def document(self) -> dict[str, Any]:
        """Return the JSON form for a store."""
        curve = None
        if self.curve is not None:
            curve = {
                "speeds": [float(speed) for speed in self.curve.packed],
                "low": self.curve.low,
                "high": self.curve.high,
                "parts": [(gpus, *astuple(part)) for gpus, part in self.curve.parts.items()],
            }
        return {"curve": curve, "samples": self.samples, "basis": self.basis}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "WorkEstimate":
        curve = document["curve"]
        if curve is not None:
            parts = {gpus: StepParts(*part) for gpus, *part in curve.get("parts", ())}
            speeds = np.array(curve["speeds"])
            curve = Curve(speeds, low=curve["low"], high=curve["high"], parts=parts)
        return cls(curve, document["samples"], document["basis"])


def estimate_work(
    spec: JobSpec,
    *,
    gpu: str | None,
    gpus: int,
    cluster: Cluster | None = None,
    slurm: str | None = None,
) -> WorkEstimate:
    """Estimate the work on one machine with `gpus` GPUs; `gpu` is their catalog id, or None if they have none.

    With `slurm`, estimate it on the `cluster`, corrected by reports of earlier jobs on the Slurm cluster of that name.
    """
    if spec.workload is None:
        return WorkEstimate(samples=spec.samples)
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.jobs.curve_prediction import predict_curve

    workload = read_workload(spec.workload)
    if slurm is not None:
        predicted = (
            None if cluster is None else predict_curve(workload, cluster, min(gpus, _MAX_GPUS))
        )
        runs = _read_slurm_runs(workload, slurm)
    else:
        predicted = None if gpu is None else _predict_on(workload, gpu, min(gpus, _MAX_GPUS))
        runs = _read_local_runs(workload, None if gpu is None else "cuda")
    curve = interpolate_curve(runs)
    if predicted is not None:
        curve = correct_curve(predicted, runs, gpus=min(gpus, spec.gpus.max))
    basis = ["predicted"] if predicted is not None else []
    if runs:
        counts = sorted({run.gpus for run in runs})
        basis.append(f"measured with {', '.join(map(str, counts))} GPUs")
    return WorkEstimate(curve, spec.samples or _count_samples(workload), " and ".join(basis))


def _count_samples(workload: Workload) -> float | None:
    return None if workload.dataset is None else float(workload.epochs * workload.dataset.samples)


def _predict_on(workload: Workload, gpu: str, gpus: int) -> Curve | None:
    """Return the predicted curve, or None if there is no prediction."""
    from gpuyard.hardware.clusters import read_cluster

    try:
        from gpuyard.jobs.curve_prediction import predict_curve

        return predict_curve(workload, read_cluster(f"{gpus}x{gpu}"), gpus)
    except GpuyardError:
        return None


def _read_local_runs(workload: Workload, device: str | None) -> list[StepWindow]:
    """Return this machine's runs of the workload, each as a job would have reported it.

    Runs on its CPU do not count for its GPUs. Without a `device`, all runs count.
    """
    from gpuyard.measure.job_runs.records import JobRun
    from gpuyard.measure.store import ResultsStore
    from gpuyard.measure.training.records import Measurement

    path = files.results_file()
    if not path.exists():
        return []
    store, here = ResultsStore(path), os.uname().nodename
    jobs = [
        _window_from_run(run)
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
    return jobs or benches  # the job's own loop is closer to the next run than a benchmark


def _read_slurm_runs(workload: Workload, cluster: str) -> list[StepWindow]:
    """Return the reports of this workload's jobs on that cluster, on any node."""
    from gpuyard.measure.job_runs.records import JobRun
    from gpuyard.measure.store import ResultsStore

    path = files.results_file()
    if not path.exists():
        return []
    return [
        _window_from_run(run)
        for run in ResultsStore(path).records(JobRun, workload.name)
        if run.handle.startswith(f"slurm://{cluster}/") and run.doubt is None
    ]


def _window_from_run(run: "JobRun") -> StepWindow:
    return StepWindow(
        steps=run.steps,
        samples=run.clock_samples_per_second * run.seconds,
        seconds=run.seconds,
        step_seconds=run.step_seconds,
        gpus=run.gpus,
        nodes=run.nodes,
    )
