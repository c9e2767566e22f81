"""Turns stored multi-GPU runs into measured figures for predictions, each with its source."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from gpuyard.catalog import ModelProfile, gpus
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.calibration import find_run_doubt, identify_hardware
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.reading import read_results
from gpuyard.measure.training.records import Measurement
from gpuyard.predictor.compute import resolve_precision
from gpuyard.specs import DEFAULT_STRATEGY, KnownThroughput, Precision, StrategyName, Workload
from gpuyard.workloads.profiles import catalog_profile

Run = Measurement | JobRun
_MAX_NAMED_NODES = 2


@dataclass(frozen=True)
class StoredRuns:
    """Training runs and jobs on several GPUs."""

    runs: tuple[Run, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "StoredRuns":
        """Read the runs of a store, or of an export of one."""
        try:
            results = read_results([path])
        except UserMistake as mistake:
            raise UserMistake(f"{mistake}; or leave its runs out with --results none") from None
        runs: list[Run] = [*results.select(Measurement), *results.select(JobRun)]
        return cls(tuple(run for run in runs if _is_usable(run)))

    def add_figures(
        self, workload: Workload, profile: ModelProfile, strategy: StrategyName = DEFAULT_STRATEGY
    ) -> Workload:
        """Return the workload with the stored figures of one strategy.

        Runs of the same configuration count as their median. The workload's own figures take precedence.
        """
        groups: dict[tuple[object, ...], list[KnownThroughput]] = {}
        own = {_get_configuration(figure, figure.precision) for figure in workload.measured}
        for run in self.runs:
            figure = _build_figure(run, workload, profile) if run.strategy == strategy else None
            if figure is None or own & {
                _get_configuration(figure, p) for p in (figure.precision, None)
            }:
                continue
            groups.setdefault(_get_configuration(figure, figure.precision), []).append(figure)
        figures = [_take_median(group) for group in groups.values()]
        return workload.model_copy(update={"measured": (*workload.measured, *figures)})


def _get_configuration(figure: KnownThroughput, precision: Precision | None) -> tuple[object, ...]:
    return figure.gpu, figure.gpus, figure.nodes, figure.batch_per_gpu, precision


def _is_usable(run: Run) -> bool:
    """Return whether several GPUs trained in the usual way, according to the record."""
    if run.device != "cuda" or run.workers < 2:
        return False
    if isinstance(run, JobRun):
        return run.workers == run.gpus and not run.doubt
    return (
        run.synthetic is None
        and run.remedy.is_default
        and run.place.dilation == 1
        and not run.doubt
    )


def _build_figure(run: Run, workload: Workload, profile: ModelProfile) -> KnownThroughput | None:
    """Return None if the run trained another model, used a GPU outside the catalog, or is doubtful."""
    try:
        ran = Workload.model_validate(run.spec)
        own = catalog_profile(ran) or run.profile
        if ran.model != workload.model_name or own is None:
            return None
        if own.gradient_bytes != profile.gradient_bytes:
            return None
        gpu = gpus().get(identify_hardware(run).processor)
        if find_run_doubt(run, ran):
            return None
    except (GpuyardError, ValidationError):
        return None
    figure = KnownThroughput(
        gpu=gpu.id,
        gpus=run.workers,
        nodes=run.nodes if isinstance(run, JobRun) else max(1, len(run.place.nodes)),
        batch_per_gpu=run.batch_per_worker,
        samples_per_second=run.samples_per_second,
        precision=resolve_precision(gpu, ran, own),
        source=f"run {run.id[:8]} of {run.created_at[:10]} on {_describe_machines(run)}",
    )
    rate = None if isinstance(run, JobRun) else run.place.link_bytes_per_second
    return figure.model_copy(update={"network": rate})


def _describe_machines(run: Run) -> str:
    nodes = () if isinstance(run, JobRun) else run.place.nodes
    if not nodes:
        return run.provenance.host
    more = len(nodes) - _MAX_NAMED_NODES
    return ", ".join(nodes[:_MAX_NAMED_NODES]) + (f" and {more} more" if more > 0 else "")


def _take_median(figures: Sequence[KnownThroughput]) -> KnownThroughput:
    rate = median(figure.samples_per_second for figure in figures)
    source = figures[-1].source
    if len(figures) > 1:
        source = f"the median of {len(figures)} runs, the last {source}"
    return figures[-1].model_copy(update={"samples_per_second": rate, "source": source})
