"""From stored measurements to the rows that a calibration is fitted to, and from the fit to its document."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from pydantic import ValidationError

from gpuyard import __version__
from gpuyard.catalog import ModelProfile
from gpuyard.errors import GpuyardError
from gpuyard.hardware.product_names import catalog_gpu
from gpuyard.measure.credible import Credibility
from gpuyard.measure.job_runs.records import JobRun
from gpuyard.measure.job_runs.summary import doubt_of
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.training.records import Measurement
from gpuyard.predict import Calibration
from gpuyard.predict.calibration.calibrate import Calibrated
from gpuyard.predict.calibration.document import HardwareCalibration
from gpuyard.predict.calibration.rows import Hardware, LinkRates, TrainingRow
from gpuyard.specs import Workload
from gpuyard.workloads.profiles import catalog_profile

_SIGMAS_OF_95 = 1.96
_MOST_REASONS = 3  # in one note; each has its own figures


@dataclass(frozen=True)
class CalibrationRows:
    """The rows, where each came from, and what could not be used."""

    rows: tuple[TrainingRow, ...]
    measurements: tuple[Measurement | JobRun, ...]  # one for each row
    links: dict[Hardware, LinkRates]
    benches: tuple[LinkBench, ...]
    notes: tuple[str, ...]


def calibration_rows(
    measurements: Sequence[Measurement | JobRun],
    benches: Sequence[LinkBench],
    *,
    doubtful_too: bool = False,
) -> CalibrationRows:
    """What can't be used, because nobody kept its model's profile or it was not plain training on
    one machine, is left out, and a note says so; so is what is not credible, unless asked for.

    Runs are judged again: those of other stores and earlier versions may never have been. No code that a run
    names is looked for: runs may come from anybody."""
    unusable: list[str] = []
    rows, used = [], []
    others = Counter(filter(None, map(_not_plain, measurements)))
    notes = [
        f"{count} run{'s are' if count > 1 else ' is'} left out: {reason}"
        for reason, count in others.items()
    ]
    plain = [m for m in measurements if _not_plain(m) is None]
    doubts: list[str] = []
    if not doubtful_too:
        doubts += [m.doubt for m in plain if m.doubt]
        plain = [m for m in plain if not m.doubt]
        notes += _left_out("bench of links", [bench.doubt for bench in benches if bench.doubt])
        benches = [bench for bench in benches if not bench.doubt]
    for measurement in plain:
        try:
            workload = Workload.model_validate(measurement.spec)
            profile = catalog_profile(workload) or measurement.profile
        except (GpuyardError, ValidationError) as problem:
            said = problem if isinstance(problem, GpuyardError) else "its spec can't be read"
            unusable.append(f"Runs of {measurement.workload} are left out: {said}")
            continue
        if profile is None:
            why = (
                f"a job keeps no profile of {workload.model}; measure it with: gpuyard bench train"
                if isinstance(measurement, JobRun)
                else f"an older gpuyard kept no profile of {workload.model} with them; measure them "
                "again with --fresh"
            )
            unusable.append(f"Runs of {measurement.workload} are left out: {why}")
            continue
        if not doubtful_too and (doubt := doubt_about(measurement, workload)):
            doubts.append(doubt)
            continue
        row = _row(measurement, workload, profile)
        if row.step_seconds <= 0 or (row.busy_seconds is not None and row.busy_seconds <= 0):
            notes.append(f"Run {measurement.id} is left out: it has no time for compute")
            continue
        rows.append(row)
        used.append(measurement)
    notes += [*dict.fromkeys(unusable), *_left_out("run", doubts)]
    links = _links({row.hardware for row in rows}, benches)
    return CalibrationRows(tuple(rows), tuple(used), links, tuple(benches), tuple(notes))


def doubt_about(m: Measurement | JobRun, workload: Workload) -> str | None:
    """Judged again: why a run is not credible; None: it is."""
    return doubt_of(m, workload) if isinstance(m, JobRun) else Credibility(workload)(m, None)


def _not_plain(m: Measurement | JobRun) -> str | None:
    """Constants are of one machine that computes and exchanges in the usual way."""
    if isinstance(m, JobRun):
        return _not_plain_job(m)
    if m.synthetic is not None:
        return "computing was emulated, with a synthetic GPU"
    if not m.remedy.plain:
        return "a remedy changed the exchange"
    # one machine elsewhere will do where it has said which GPUs it has
    elsewhere = m.device == "cuda" and len(m.place.nodes) == 1 and bool(m.place.gpus)
    if m.place.kind != "here" and not elsewhere:
        return "its workers were on several machines, and a calibration is of one"
    return None


def _not_plain_job(run: JobRun) -> str | None:
    if run.nodes > 1:
        return "its workers were on several machines, and a calibration is of one"
    if not run.provenance.known:
        return "the job did not say what it ran on"
    if run.device == "cuda" and run.workers != run.gpus:
        return "the job's processes were not one for each GPU"
    if run.device == "cpu" and not run.provenance.threads_per_worker:
        return "the job did not say how many cores each worker used"
    return None


def _left_out(what: str, reasons: Sequence[str]) -> list[str]:
    if not reasons:
        return []
    many = len(reasons)
    noun = what if many == 1 else what.replace("run", "runs").replace("bench", "benches")
    different = list(dict.fromkeys(reasons))
    told = "; ".join(different[:_MOST_REASONS])
    more = f"; and {len(different) - _MOST_REASONS} more" if len(different) > _MOST_REASONS else ""
    return [
        f"{many} {noun} {'are' if many > 1 else 'is'} left out as not credible ({told}{more}); "
        f"--doubtful uses {'them' if many > 1 else 'it'} anyway"
    ]


def hardware_of(measurement: Measurement | JobRun) -> Hardware:
    host = measurement.provenance
    if measurement.device == "cuda":
        # what the nodes said they have; this machine may have none
        there = measurement.place.gpus if isinstance(measurement, Measurement) else ()
        names = there or host.gpus
        return Hardware("cuda", _gpu_name(names), len(names))
    return Hardware("cpu", host.cpu_model, host.cores, host.threads_per_worker)


def is_of(hardware: Hardware, bench: LinkBench) -> bool:
    """Whether a bench of links was made on such a machine."""
    if hardware.device == "cuda":
        same = (hardware.processor, hardware.count)
        return bool(bench.host.gpus) and same == (_gpu_name(bench.host.gpus), len(bench.host.gpus))
    return (hardware.processor, hardware.count) == (bench.host.cpu_model, bench.host.cores)


def _gpu_name(gpus: Sequence[str]) -> str:
    names = sorted(set(gpus))
    known = catalog_gpu(names[0]) if len(names) == 1 else None
    return known.id if known else ", ".join(names)


def _row(m: Measurement | JobRun, workload: Workload, profile: ModelProfile) -> TrainingRow:
    busy_seconds: float | None
    if isinstance(m, JobRun):  # nobody stopped a job to time the parts of its steps
        step_seconds = m.step_seconds
        busy_seconds = m.step_seconds if m.workers == 1 else None
        all_reduce_seconds = None
    else:
        step_seconds = m.step.step_seconds
        busy_seconds = m.step.compute_seconds + m.step.input_seconds
        all_reduce_seconds = m.all_reduce_seconds
    return TrainingRow(
        hardware=hardware_of(m),
        workload=workload,
        profile=profile,
        strategy=m.strategy,
        workers=m.workers,
        batch_per_worker=m.batch_per_worker,
        step_seconds=step_seconds,
        busy_seconds=busy_seconds,
        all_reduce_seconds=all_reduce_seconds,
        noise=(m.high - m.low) / (2 * _SIGMAS_OF_95) / m.samples_per_second,
    )


def _links(hardware: set[Hardware], benches: Sequence[LinkBench]) -> dict[Hardware, LinkRates]:
    """A ring crosses every link, so the slowest between two GPUs counts; gloo goes over loopback."""
    found = {}
    for kind in hardware:
        wanted = "gpu-gpu" if kind.device == "cuda" else "loopback"
        slowest = []
        for bench in benches:
            rates = [
                link.measured.bytes_per_second
                for link in bench.links
                if link.measured.kind == wanted and link.measured.direction == "one-way"
            ]
            if is_of(kind, bench) and rates:
                slowest.append(min(rates))
        if slowest:
            many = f"{len(slowest)} bench{'es' if len(slowest) > 1 else ''} of links"
            found[kind] = LinkRates(median(slowest), many)
    return found


def calibration_document(calibrated: Sequence[Calibrated], rows: CalibrationRows) -> Calibration:
    """What is written: the constants, and which runs of which machines they stand on."""
    return Calibration(
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        gpuyard=__version__,
        hardware=tuple(_entry(one, rows) for one in calibrated),
    )


def _entry(one: Calibrated, rows: CalibrationRows) -> HardwareCalibration:
    used = [m for m in rows.measurements if hardware_of(m) == one.hardware]
    dates = sorted(m.created_at for m in used)
    return HardwareCalibration(
        device=one.hardware.device,
        processor=one.hardware.processor,
        count=one.hardware.count,
        cores_per_worker=one.hardware.cores_per_worker,
        hosts=tuple(dict.fromkeys(m.provenance.host for m in used)),
        runs=len(used),
        link_benches=sum(is_of(one.hardware, bench) for bench in rows.benches),
        first_run=dates[0],
        last_run=dates[-1],
        torch=tuple(dict.fromkeys(m.provenance.torch for m in used)),
        constants=one.constants,
        lines=one.lines,
        points=one.points,
        errors=one.errors,
    )
