"""Turns stored measurements into the rows that a calibration is fitted to, and the fit into a calibration document."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import cast

from pydantic import ValidationError

from gpuyard.catalog import ModelProfile
from gpuyard.errors import GpuyardError
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.job_runs.summary import find_doubt
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.validity import ValidityCheck
from gpuyard.predictor.calibration.calibrate import Calibrated
from gpuyard.predictor.calibration.document import Calibration, HardwareCalibration
from gpuyard.predictor.calibration.rows import Hardware, LinkRates, TrainingRow
from gpuyard.specs import StrategyName, Workload
from gpuyard.version import __version__
from gpuyard.workloads.profiles import catalog_profile

_SIGMAS_OF_95 = 1.96
_MAX_REASONS = 3  # per note; each reason has its own figures
_SEVERAL_MACHINES = "its workers were on several machines, and a calibration is for one"


@dataclass(frozen=True)
class CalibrationRows:
    """The rows, their measurements, and notes about runs that could not be used."""

    rows: tuple[TrainingRow, ...]
    measurements: tuple[Measurement | JobRun, ...]  # one for each row
    links: dict[Hardware, LinkRates]
    benches: tuple[LinkBench, ...]
    notes: tuple[str, ...]


def build_calibration_rows(
    measurements: Sequence[Measurement | JobRun],
    benches: Sequence[LinkBench],
    *,
    include_doubtful: bool = False,
) -> CalibrationRows:
    """Build a row for each usable run, and a note for each reason why others are left out.

    A run is usable if its model's profile is known and it was plain training on one machine. Doubtful runs are left
    out unless `include_doubtful` is set. All runs are checked again, as other gpuyard versions may have stored them.
    No model code that a run names is ever imported, as runs may come from anyone.
    """
    unusable: list[str] = []
    rows, used = [], []
    special = Counter(filter(None, map(_find_special_setup, measurements)))
    notes = [
        f"{count} run{'s are' if count > 1 else ' is'} left out: {reason}"
        for reason, count in special.items()
    ]
    plain = [m for m in measurements if _find_special_setup(m) is None]
    doubts: list[str] = []
    if not include_doubtful:
        doubts += [m.doubt for m in plain if m.doubt]
        plain = [m for m in plain if not m.doubt]
        notes += _note_doubtful("link bench", [bench.doubt for bench in benches if bench.doubt])
        benches = [bench for bench in benches if not bench.doubt]
    for measurement in plain:
        try:
            workload = Workload.model_validate(measurement.spec)
            profile = catalog_profile(workload) or measurement.profile
        except (GpuyardError, ValidationError) as error:
            reason = error if isinstance(error, GpuyardError) else "the spec is not valid"
            unusable.append(f"Runs of {measurement.workload} are left out: {reason}")
            continue
        if profile is None:
            why = (
                f"a job stores no profile of {workload.model_name}; measure it with: gpuyard bench train"
                if isinstance(measurement, JobRun)
                else f"an older gpuyard stored no profile of {workload.model_name} with them; measure them "
                "again with --fresh"
            )
            unusable.append(f"Runs of {measurement.workload} are left out: {why}")
            continue
        if not include_doubtful and (doubt := find_run_doubt(measurement, workload)):
            doubts.append(doubt)
            continue
        row = _build_row(measurement, workload, profile)
        if row.step_seconds <= 0 or (row.busy_seconds is not None and row.busy_seconds <= 0):
            notes.append(f"Run {measurement.id} is left out: its compute time is not above 0")
            continue
        rows.append(row)
        used.append(measurement)
    notes += [*dict.fromkeys(unusable), *_note_doubtful("run", doubts)]
    links = _find_link_rates({row.hardware for row in rows}, benches)
    return CalibrationRows(tuple(rows), tuple(used), links, tuple(benches), tuple(notes))


def find_run_doubt(m: Measurement | JobRun, workload: Workload) -> str | None:
    """Check a run again: return why it is doubtful, or None if it is valid."""
    return find_doubt(m, workload) if isinstance(m, JobRun) else ValidityCheck(workload)(m, None)


def _find_special_setup(m: Measurement | JobRun) -> str | None:
    """Return why a run was not plain training on one machine, or None if it was."""
    if isinstance(m, JobRun):
        return _find_special_job_setup(m)
    if m.synthetic is not None:
        return "compute was emulated with a synthetic GPU"
    if not m.remedy.is_default:
        return "a remedy changed the exchange"
    if m.strategy in ("fsdp", "tensor", "pipeline"):
        return "the model was divided among the workers"
    # another machine is fine if it is one whose GPUs are recorded
    one_remote_machine = m.device == "cuda" and len(m.place.nodes) == 1 and bool(m.place.gpus)
    if m.place.kind != "here" and not one_remote_machine:
        return _SEVERAL_MACHINES
    return None


def _find_special_job_setup(run: JobRun) -> str | None:
    if run.nodes > 1:
        return _SEVERAL_MACHINES
    if not run.provenance.is_known:
        return "the job did not report its hardware"
    if run.device == "cuda" and run.workers != run.gpus:
        return "the job did not run one process per GPU"
    if run.device == "cpu" and not run.provenance.threads_per_worker:
        return "the job did not report the number of cores per worker"
    return None


def _note_doubtful(noun: str, reasons: Sequence[str]) -> list[str]:
    if not reasons:
        return []
    count = len(reasons)
    plural = noun if count == 1 else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    distinct = list(dict.fromkeys(reasons))
    described = "; ".join(distinct[:_MAX_REASONS])
    more = f"; and {len(distinct) - _MAX_REASONS} more" if len(distinct) > _MAX_REASONS else ""
    return [
        f"{count} {plural} {'are' if count > 1 else 'is'} left out as doubtful ({described}{more}); "
        f"--doubtful uses {'them' if count > 1 else 'it'} anyway"
    ]


def identify_hardware(measurement: Measurement | JobRun) -> Hardware:
    host = measurement.provenance
    if measurement.device == "cuda":
        # the GPUs of the nodes, if they are recorded; this machine may have none
        node_gpus = measurement.place.gpus if isinstance(measurement, Measurement) else ()
        names = node_gpus or host.gpus
        return Hardware("cuda", _name_gpu(names), len(names))
    return Hardware("cpu", host.cpu_model, host.cores, host.threads_per_worker)


def matches_hardware(hardware: Hardware, bench: LinkBench) -> bool:
    """Return whether a link bench ran on such a machine."""
    host = bench.host
    if hardware.device == "cuda":
        if not host.gpus:
            return False
        return (hardware.processor, hardware.count) == (_name_gpu(host.gpus), len(host.gpus))
    return (hardware.processor, hardware.count) == (host.cpu_model, host.cores)


def _name_gpu(gpus: Sequence[str]) -> str:
    names = sorted(set(gpus))
    gpu = find_catalog_gpu(names[0]) if len(names) == 1 else None
    return gpu.id if gpu else ", ".join(names)


def _build_row(m: Measurement | JobRun, workload: Workload, profile: ModelProfile) -> TrainingRow:
    busy_seconds: float | None
    if isinstance(m, JobRun):  # the parts of a job's steps are not timed
        step_seconds = m.step_seconds
        busy_seconds = m.step_seconds if m.workers == 1 else None
        all_reduce_seconds = None
    else:
        step_seconds = m.step.step_seconds
        busy_seconds = m.step.compute_seconds + m.step.input_seconds
        all_reduce_seconds = m.all_reduce_seconds
    return TrainingRow(
        hardware=identify_hardware(m),
        workload=workload,
        profile=profile,
        strategy=cast("StrategyName", m.strategy),  # a special setup is left out
        workers=m.workers,
        batch_per_worker=m.batch_per_worker,
        step_seconds=step_seconds,
        busy_seconds=busy_seconds,
        all_reduce_seconds=all_reduce_seconds,
        noise=(m.high - m.low) / (2 * _SIGMAS_OF_95) / m.samples_per_second,
    )


def _find_link_rates(
    hardware: set[Hardware], benches: Sequence[LinkBench]
) -> dict[Hardware, LinkRates]:
    """Find the slowest link of each machine, which limits a ring; gloo uses loopback."""
    rates: dict[Hardware, LinkRates] = {}
    for machine in hardware:
        link_kind = "gpu-gpu" if machine.device == "cuda" else "loopback"
        slowest = []
        for bench in benches:
            bench_rates = [
                link.measured.bytes_per_second
                for link in bench.links
                if link.measured.kind == link_kind and link.measured.direction == "one-way"
            ]
            if matches_hardware(machine, bench) and bench_rates:
                slowest.append(min(bench_rates))
        if slowest:
            source = f"{len(slowest)} link bench{'es' if len(slowest) > 1 else ''}"
            rates[machine] = LinkRates(median(slowest), source)
    return rates


def build_calibration(calibrated: Sequence[Calibrated], rows: CalibrationRows) -> Calibration:
    """Build the document to write: the constants, and the runs and machines behind them."""
    return Calibration(
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        gpuyard=__version__,
        hardware=tuple(_build_entry(fit, rows) for fit in calibrated),
    )


def _build_entry(fit: Calibrated, rows: CalibrationRows) -> HardwareCalibration:
    used = [m for m in rows.measurements if identify_hardware(m) == fit.hardware]
    dates = sorted(m.created_at for m in used)
    return HardwareCalibration(
        device=fit.hardware.device,
        processor=fit.hardware.processor,
        count=fit.hardware.count,
        cores_per_worker=fit.hardware.cores_per_worker,
        hosts=tuple(dict.fromkeys(m.provenance.host for m in used)),
        runs=len(used),
        link_benches=sum(matches_hardware(fit.hardware, bench) for bench in rows.benches),
        first_run=dates[0],
        last_run=dates[-1],
        torch=tuple(dict.fromkeys(m.provenance.torch for m in used)),
        constants=fit.constants,
        lines=fit.lines,
        points=fit.points,
        errors=fit.errors,
    )
