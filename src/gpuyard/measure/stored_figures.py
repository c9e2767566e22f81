"""Runs of several GPUs in the results store as figures that a prediction stands on, each with where it is from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from gpuyard.catalog import ModelProfile, gpus
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.calibration import doubt_about, hardware_of
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.reading import read_results
from gpuyard.measure.training.records import Measurement
from gpuyard.predict.compute import precision_on
from gpuyard.specs import DEFAULT_STRATEGY, KnownThroughput, Precision, StrategyName, Workload
from gpuyard.workloads.profiles import catalog_profile

Run = Measurement | JobRun
_NAMED = 2  # machines of a run


@dataclass(frozen=True)
class StoredRuns:
    """Training runs and jobs on several GPUs."""

    runs: tuple[Run, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "StoredRuns":
        """Of a store, or of an export of one."""
        try:
            found = read_results([path])
        except UserMistake as mistake:
            raise UserMistake(f"{mistake}; or leave its runs out with --results none") from None
        every: list[Run] = [*found.of(Measurement), *found.of(JobRun)]
        return cls(tuple(run for run in every if _counts(run)))

    def added_to(
        self, workload: Workload, profile: ModelProfile, strategy: StrategyName = DEFAULT_STRATEGY
    ) -> Workload:
        """The workload with what is stored of it under one strategy: of runs of the same configuration the
        median, and none of a configuration that it has a figure of."""
        alike: dict[tuple[object, ...], list[tuple[KnownThroughput, Run]]] = {}
        given = {_configuration(known, known.precision) for known in workload.measured}
        for run in self.runs:
            found = _figure(run, workload, profile) if run.strategy == strategy else None
            if found is None or given & {_configuration(found, p) for p in (found.precision, None)}:
                continue
            alike.setdefault(_configuration(found, found.precision), []).append((found, run))
        figures = [_one_of(members) for members in alike.values()]
        return workload.model_copy(update={"measured": (*workload.measured, *figures)})


def _configuration(known: KnownThroughput, precision: Precision | None) -> tuple[object, ...]:
    return known.gpu, known.gpus, known.nodes, known.batch_per_gpu, precision


def _counts(run: Run) -> bool:
    """Whether several GPUs trained in the usual way, as far as the record says."""
    if run.device != "cuda" or run.workers < 2:
        return False
    if isinstance(run, JobRun):
        return run.workers == run.gpus and not run.doubt
    return run.synthetic is None and run.remedy.plain and run.place.dilation == 1 and not run.doubt


def _figure(run: Run, workload: Workload, profile: ModelProfile) -> KnownThroughput | None:
    """None where it trained something else or on a GPU that nobody knows, or is not credible."""
    try:
        ran = Workload.model_validate(run.spec)
        own = catalog_profile(ran) or run.profile
        same = ran.model == workload.model and own is not None
        if not same or own is None or own.gradient_bytes != profile.gradient_bytes:
            return None
        gpu = gpus().get(hardware_of(run).processor)
        if doubt_about(run, ran):
            return None
    except (GpuyardError, ValidationError):
        return None
    found = KnownThroughput(
        gpu=gpu.id,
        gpus=run.workers,
        nodes=run.nodes if isinstance(run, JobRun) else max(1, len(run.place.nodes)),
        batch_per_gpu=run.batch_per_worker,
        samples_per_second=run.samples_per_second,
        precision=precision_on(gpu, ran, own),
        source=f"run {run.id[:8]} of {run.created_at[:10]} on {_machines(run)}",
    )
    rate = None if isinstance(run, JobRun) else run.place.link_bytes_per_second
    return found.model_copy(update={"network": rate})


def _machines(run: Run) -> str:
    nodes = () if isinstance(run, JobRun) else run.place.nodes
    if not nodes:
        return run.provenance.host
    more = len(nodes) - _NAMED
    return ", ".join(nodes[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _one_of(members: Sequence[tuple[KnownThroughput, Run]]) -> KnownThroughput:
    figures = [known for known, _ in members]
    rate = median(known.samples_per_second for known in figures)
    source = figures[-1].source
    if len(figures) > 1:
        source = f"the median of {len(figures)} runs, the last {source}"
    return figures[-1].model_copy(update={"samples_per_second": rate, "source": source})
