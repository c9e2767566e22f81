"""Apply a calibration: constants measured on the hardware replace the defaults."""

from dataclasses import replace

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.hardware import MachineGraph
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.calibration.document import (
    CalibratedLine,
    Calibration,
    ConstantName,
    HardwareCalibration,
)
from gpuyard.predictor.compute import (
    ComputeLine,
    describe_scaling,
    estimate_compute_line,
    resolve_figure_precision,
    resolve_precision,
)
from gpuyard.predictor.constants import CALIBRATED, Constant
from gpuyard.predictor.platform import Platform, create_platform
from gpuyard.predictor.transport import Pipe
from gpuyard.specs import Cluster, KnownThroughput, Workload

# these constants depend on the wiring of a machine, the others on the GPU and its software
_LINK_CONSTANTS: tuple[ConstantName, ...] = ("link_inside", "hop_latency")
_REPLACED_BY_LINK = {"link_inside", "staged_memory_share"}


def calibrated_platform(
    cluster: Cluster,
    calibration: Calibration,
    *,
    same_links: bool = True,
    graph: MachineGraph | None = None,
) -> Platform:
    """Return the cluster's platform; machines with as many of the same GPUs as a measured one get its links."""
    platform = create_platform(cluster, graph)
    gpu, machine = resolve_machine(cluster)
    entry = _find_best_entry(calibration, gpu, machine.gpus)
    if entry is None:
        return platform
    measured = measured_constants(entry)
    platform = replace(
        platform, measured=tuple(c for c in measured if c.name not in _LINK_CONSTANTS)
    )
    if same_links and entry.count == machine.gpus:
        platform = _apply_links(platform, measured)
    return platform


def measured_constants(entry: HardwareCalibration) -> tuple[Constant, ...]:
    """Return the constants of one kind of hardware as a prediction lists them."""
    source = describe_source(entry)
    return tuple(Constant(c.name, c.value, c.unit, "measured", source) for c in entry.constants)


def describe_source(entry: HardwareCalibration) -> str:
    return f"{CALIBRATED} {entry.runs} runs on {entry.hardware.label}"


def calibrated_line(
    workload: Workload, profile: ModelProfile, gpu: Gpu, calibration: Calibration
) -> ComputeLine:
    """Return the best compute line.

    In order, it comes from the workload's figures for this GPU and precision, the calibration of this GPU, figures of
    other precisions or GPUs, or a roofline.
    """
    precision = resolve_precision(gpu, workload, profile)
    own_figures = [
        (figure.gpu, resolve_figure_precision(figure.gpu, figure.precision, workload, profile))
        for figure in workload.single_gpu_measurements
    ]
    has_own = (gpu.id, precision) in own_figures
    match = None if has_own else _find_line(calibration, workload, profile, gpu)
    if match is not None:
        entry, line = match
        if (entry.processor, line.precision) == (gpu.id, precision):
            source = describe_source(entry)
            return ComputeLine(line.fixed_seconds, line.seconds_per_sample, "measured", source)
    if own_figures or match is None:
        return estimate_compute_line(workload, profile, gpu)
    figures = _convert_to_figures(entry.processor, line)
    scaled = estimate_compute_line(workload.model_copy(update={"measured": figures}), profile, gpu)
    scaling = describe_scaling(gpu, precision, entry.processor, line.precision)
    return replace(scaled, source=f"{describe_source(entry)}, {scaling}")


def _apply_links(platform: Platform, measured: tuple[Constant, ...]) -> Platform:
    by_name = {constant.name: constant for constant in measured if constant.name in _LINK_CONSTANTS}
    link, hop = (by_name.get(name) for name in _LINK_CONSTANTS)
    default = platform.inside

    def inside(gpus_used: int) -> Pipe:
        pipe = default(gpus_used)
        return Pipe(
            link.value if link else pipe.bytes_per_second,
            hop.value if hop else pipe.latency_seconds,
            f"{pipe.name}, measured" if link else pipe.name,
        )

    over_tcp = any(constant.name == "tcp_hop" for constant in platform.constants)
    replaced = (_REPLACED_BY_LINK if link else set()) | (
        {"hop_factor"} if hop and (platform.between is None or over_tcp) else set()
    )
    return replace(
        platform,
        inside=inside,
        constants=(*(c for c in platform.constants if c.name not in replaced), *by_name.values()),
        # the network between machines is still that of the catalog
        link_basis="measured link" if link and platform.nodes == 1 else platform.link_basis,
    )


def _find_best_entry(calibration: Calibration, gpu: Gpu, count: int) -> HardwareCalibration | None:
    """Find the entry of the same GPU, preferably with as many GPUs, then with the most runs."""
    entries = [
        entry
        for entry in calibration.hardware
        if entry.device == "cuda" and entry.processor == gpu.id
    ]
    return max(entries, key=lambda entry: (entry.count == count, entry.runs), default=None)


def _find_line(
    calibration: Calibration, workload: Workload, profile: ModelProfile, gpu: Gpu
) -> tuple[HardwareCalibration, CalibratedLine] | None:
    """Find the best calibrated line of the workload.

    Lines of this GPU come before those of other catalog GPUs, then lines in the workload's precision, then those with
    the most runs.
    """
    candidates = [
        (entry, line)
        for entry in calibration.hardware
        for line in entry.lines
        if (line.model, line.gradient_bytes) == (workload.model_name, profile.gradient_bytes)
        and entry.device == "cuda"
        and (entry.processor == gpu.id or entry.hardware.gpu is not None)
    ]

    def rank(pair: tuple[HardwareCalibration, CalibratedLine]) -> tuple[bool, bool, int]:
        entry, line = pair
        precision = resolve_precision(entry.hardware.gpu, workload, profile)
        return entry.processor == gpu.id, line.precision == precision, line.runs

    return max(candidates, key=rank, default=None)


def _convert_to_figures(gpu: str, line: CalibratedLine) -> tuple[KnownThroughput, ...]:
    """Return two figures through which the line can be fitted again."""
    small, large = line.smallest_batch, max(line.largest_batch, 2 * line.smallest_batch)
    return tuple(
        KnownThroughput(
            gpu=gpu,
            batch_per_gpu=batch,
            samples_per_second=batch / (line.fixed_seconds + batch * line.seconds_per_sample),
            precision=line.precision,
        )
        for batch in (small, large)
    )
