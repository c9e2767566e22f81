"""A calibration where it applies: the constants of hardware that was measured, in place of defaults."""

from dataclasses import replace

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.hardware import MachineGraph
from gpuyard.hardware.clusters import machine_of
from gpuyard.predict.calibration.document import (
    CalibratedLine,
    Calibration,
    ConstantName,
    HardwareCalibration,
)
from gpuyard.predict.compute import (
    ComputeLine,
    compute_line,
    figure_precision,
    precision_on,
    scaled_words,
)
from gpuyard.predict.constants import Constant
from gpuyard.predict.platform import Platform, platform_of
from gpuyard.predict.transport import Pipe
from gpuyard.specs import Cluster, KnownThroughput, Workload

CALIBRATED = "calibrated with"  # how the source of such a constant begins
# these belong to how a machine's GPUs hang together, the others to the GPU and its software
_OF_LINKS: tuple[ConstantName, ...] = ("link_inside", "hop_latency")
_REPLACED_BY_LINK = {"link_inside", "staged_rate", "staged_socket_share"}


def calibrated_platform(
    cluster: Cluster,
    calibration: Calibration,
    *,
    same_links: bool = True,
    graph: MachineGraph | None = None,
) -> Platform:
    """The cluster's platform; machines with as many of the same GPUs as a measured one get its links."""
    platform = platform_of(cluster, graph)
    gpu, machine = machine_of(cluster)
    entry = _best_entry(calibration, gpu, machine.gpus)
    if entry is None:
        return platform
    own = measured_constants(entry)
    platform = replace(platform, own=tuple(c for c in own if c.name not in _OF_LINKS))
    if same_links and entry.count == machine.gpus:
        platform = _with_links(platform, own)
    return platform


def measured_constants(entry: HardwareCalibration) -> tuple[Constant, ...]:
    """Those of one kind of hardware, as a prediction lists them."""
    source = source_of(entry)
    return tuple(Constant(c.name, c.value, c.unit, "measured", source) for c in entry.constants)


def source_of(entry: HardwareCalibration) -> str:
    return f"{CALIBRATED} {entry.runs} runs on {entry.hardware.label}"


def calibrated_line(
    workload: Workload, profile: ModelProfile, gpu: Gpu, calibration: Calibration
) -> ComputeLine:
    """The best that is known: figures that the workload gives for this GPU and precision, then what was
    measured on it, then figures of other precisions or GPUs, then a roofline."""
    precision = precision_on(gpu, workload, profile)
    given = [
        (known.gpu, figure_precision(known.gpu, known.precision, workload, profile))
        for known in workload.measured_alone
    ]
    found = None if (gpu.id, precision) in given else _line(calibration, workload, profile, gpu)
    if found is not None:
        entry, line = found
        if (entry.processor, line.precision) == (gpu.id, precision):
            source = source_of(entry)
            return ComputeLine(line.fixed_seconds, line.seconds_per_sample, "measured", source)
    if given or found is None:
        return compute_line(workload, profile, gpu)
    figures = _figures(entry.processor, line)
    scaled = compute_line(workload.model_copy(update={"measured": figures}), profile, gpu)
    words = scaled_words(gpu, precision, entry.processor, line.precision)
    return replace(scaled, source=f"{source_of(entry)}, {words}")


def _with_links(platform: Platform, own: tuple[Constant, ...]) -> Platform:
    by_name = {constant.name: constant for constant in own if constant.name in _OF_LINKS}
    link, hop = (by_name.get(name) for name in _OF_LINKS)
    default = platform.inside

    def inside(gpus_used: int) -> Pipe:
        pipe = default(gpus_used)
        return Pipe(
            link.value if link else pipe.bytes_per_second,
            hop.value if hop else pipe.latency_seconds,
            f"{pipe.name}, measured" if link else pipe.name,
        )

    over_tcp = any(constant.name == "tcp_hop" for constant in platform.constants)
    gone = (_REPLACED_BY_LINK if link else set()) | (
        {"hop_factor"} if hop and (platform.between is None or over_tcp) else set()
    )
    return replace(
        platform,
        inside=inside,
        constants=(*(c for c in platform.constants if c.name not in gone), *by_name.values()),
        # between machines the network is still the catalog's
        link_basis="measured link" if link and platform.nodes == 1 else platform.link_basis,
    )


def _best_entry(calibration: Calibration, gpu: Gpu, count: int) -> HardwareCalibration | None:
    """Of the same GPU; in a machine with as many of them if there is one, else with most runs."""
    entries = [
        entry
        for entry in calibration.hardware
        if entry.device == "cuda" and entry.processor == gpu.id
    ]
    return max(entries, key=lambda entry: (entry.count == count, entry.runs), default=None)


def _line(
    calibration: Calibration, workload: Workload, profile: ModelProfile, gpu: Gpu
) -> tuple[HardwareCalibration, CalibratedLine] | None:
    """On this GPU before others that the catalog knows, in the precision that the workload has there before
    others; of equals the one with most runs."""
    found = [
        (entry, line)
        for entry in calibration.hardware
        for line in entry.lines
        if (line.model, line.gradient_bytes) == (workload.model, profile.gradient_bytes)
        and entry.device == "cuda"
        and (entry.processor == gpu.id or entry.hardware.gpu is not None)
    ]

    def near(pair: tuple[HardwareCalibration, CalibratedLine]) -> tuple[bool, bool, int]:
        entry, line = pair
        there = precision_on(entry.hardware.gpu, workload, profile)
        return entry.processor == gpu.id, line.precision == there, line.runs

    return max(found, key=near, default=None)


def _figures(gpu: str, line: CalibratedLine) -> tuple[KnownThroughput, ...]:
    """Two points that a line is drawn through again."""
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
