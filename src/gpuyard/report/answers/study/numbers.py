"""The number tables of a study's answer, and how each number was obtained."""

from collections.abc import Iterator, Sequence

from gpuyard.predictor import Choke, Constant
from gpuyard.report import formats
from gpuyard.report.answer import (
    Bullets,
    Column,
    DefinitionList,
    Part,
    Section,
    Sentence,
    StyledText,
    Table,
    Text,
    Tone,
)
from gpuyard.report.figures.epoch_time import build_epoch_table
from gpuyard.report.figures.marks import get_local_platform
from gpuyard.study.result import PlatformCurve, StudyResult, WorkloadResult

CHOKES: dict[Choke, tuple[str, str, Tone]] = {  # the bottleneck, its symbol, and its tone
    "gpu": ("the GPUs", "▲", "good"),
    "network": ("the network", "■", "bad"),
    "pcie": ("PCIe", "■", "bad"),
    "storage": ("storage", "◆", "caution"),
    "host": ("the host", "◆", "caution"),
    "none": ("nothing in particular", "●", "plain"),
}


def number_sections(workloads: Sequence[WorkloadResult]) -> Iterator[Section]:
    for workload in workloads:
        facts = (
            f"{workload.model}, {formats.number(workload.parameters)} parameters, "
            f"{formats.size(workload.gradient_bytes)} of gradients per step, "
            f"{formats.number(workload.forward_flops / 1e9)} GFLOP forward per sample, "
            f"{workload.precision}"
        )
        tables: list[Part] = [Sentence(facts, "quiet")]
        if workload.measured:
            tables.append(_measured(workload))
        tables += map(_predicted, workload.curves)
        if workload.epoch_times:
            tables.append(_epochs(workload))
        if not workload.measured and not workload.curves:
            tables.append(Sentence("Nothing was measured or predicted for it.", "quiet"))
        yield Section(workload.name, tables)


def _measured(workload: WorkloadResult) -> Table:
    count = len(workload.measured)
    columns = ["workers", "batch per worker", "strategy", "samples/s", "95% interval", "efficiency",
               "compute", "exposed communication", "input", "measurement"]  # fmt: skip
    rows: list[list[StyledText]] = [
        [
            str(point.workers),
            str(point.batch_per_worker),
            point.strategy,
            Text(formats.number(point.samples_per_second), "strong"),
            f"{formats.number(point.low)} to {formats.number(point.high)}",
            formats.percent(point.scaling_efficiency),
            formats.seconds(point.compute_seconds),
            formats.seconds(point.exposed_communication_seconds),
            formats.seconds(point.input_seconds),
            point.measurement_id,
        ]
        for point in workload.measured
    ]
    if any(point.doubt for point in workload.measured):
        columns.append("doubtful")
        for row, point in zip(rows, workload.measured, strict=True):
            row.append(Text(point.doubt or "", "caution"))
    runs = f"{count} {'run' if count == 1 else 'runs'}"
    title = f"Measured on {get_local_platform(workload)}{_measured_in(workload)}: {runs}"
    return Table(title, columns, rows, folded=True)


def _measured_in(workload: WorkloadResult) -> str:
    """Format the precision of the runs, which the curve of this machine has."""
    precisions = [p.precision for curve in workload.curves if curve.here for p in curve.predictions]
    return f" in {precisions[0]}" if precisions else ""


def _predicted(curve: PlatformCurve) -> Table:
    here = " (this machine)" if curve.here and curve.platform != "this machine" else ""
    count = len(curve.predictions)
    columns = ("GPUs", "machines × GPUs", "batch per GPU", "strategy", "samples/s", "90% interval",
               "efficiency", "compute", "exposed communication", "input", "straggling", "waits for",
               "memory per GPU", "fits")  # fmt: skip
    rows: list[list[StyledText]] = [
        [
            str(p.gpus),
            f"{p.nodes} × {p.gpus_per_node}",
            str(p.batch_per_gpu),
            p.strategy,
            Text(formats.number(p.samples_per_second), "strong"),
            f"{formats.number(p.low)} to {formats.number(p.high)}",
            formats.percent(p.scaling_efficiency),
            formats.seconds(p.step.compute_seconds),
            formats.seconds(p.step.exposed_communication_seconds),
            formats.seconds(p.step.input_seconds),
            formats.seconds(p.step.straggler_seconds),
            CHOKES[p.choke][0],
            formats.size(p.memory_bytes),
            "unknown" if p.fits is None else ("yes" if p.fits else Text("no", "bad")),
        ]
        for p in curve.predictions
    ]
    configurations = "configuration" if count == 1 else "configurations"
    precision = " or ".join(sorted({p.precision for p in curve.predictions}))
    title = f"Predicted for {curve.platform}{here} in {precision}: {count} {configurations}"
    return Table(title, columns, rows, folded=True)


def _epochs(workload: WorkloadResult) -> Table:
    epochs, here = build_epoch_table(workload), get_local_platform(workload)

    def head(platform: str, gpus: int, basis: str) -> str:
        unit = "worker" if platform == here else "GPU"
        return f"{platform}, {gpus} {unit}{'s' if gpus != 1 else ''}, {basis}"

    columns = [Column("batch per GPU")] + [
        Column(head(column.platform, column.gpus, column.basis)) for column in epochs.columns
    ]
    rows = [[str(batch), *map(formats.seconds, times)] for batch, times in epochs.rows]
    samples = formats.number(workload.samples_per_epoch)
    title = f"Time for an epoch of {samples} samples in {workload.precision}"
    return Table(title, columns, rows, folded=True)


def method_parts(result: StudyResult) -> list[Part]:
    facts = [
        ("Measured throughput",
         f"Real training steps on {result.host}, after warm-up, over several windows. The interval is "
         "the 95% confidence interval of the mean over the windows."),
        ("Predicted throughput",
         "Per-GPU batch × GPUs ÷ step time. A step is compute, plus communication and input that do not "
         "overlap with it, plus waiting for the slowest worker. The interval contains 90% of the outcomes "
         "that the uncertainty of each part allows."),
        ("Compute",
         "A line in the batch size, t(b) = t₀ + b ÷ r, from the basis named for each platform below."),
        ("Exposed communication",
         "Measured: the time of a step less that of a step without gradient exchange. Predicted: the part "
         "of the exchange, bucket by bucket over the slowest link, that does not overlap with the backward "
         "pass."),
        ("Scaling efficiency",
         "Throughput ÷ (GPUs × throughput of one GPU at the same batch per GPU)."),
        ("What a step waits for",
         "The part whose doubling in speed would shorten the step most. Past the knee, where an added GPU "
         "gains less than half of one GPU's speed, it is never the GPUs."),
        ("Doubtful runs",
         "Every run is checked. It is doubtful if its windows differ by more than 20%, if other programs used "
         "its cores, if its loss is not a number, or if it is faster than the hardware can be. Doubtful runs "
         "are marked, left out of fits if there are valid runs, and ignored by verdicts."),
    ]  # fmt: skip
    if result.cost:
        facts.append(
            ("Break-even",
             "Price ÷ rent per hour. A speed lead is subtracted from the price for the rule of thumb only. "
             "In all payments the price is not reduced, and the faster machine runs for fewer hours. The "
             "horizon includes the running costs in the study's file; costs that it does not name are zero.")
        )  # fmt: skip
    parts: list[Part] = [DefinitionList(facts)]
    for workload in result.workloads:
        samples = formats.number(workload.samples_per_epoch)
        sources = [f"Samples per epoch: {samples} ({workload.samples_note})"]
        if workload.measured:
            sources.append(f"Data of the measured runs: {workload.data_source}")
        sources += [f"Compute on {curve.platform}: {curve.basis}" for curve in workload.curves]
        if workload.measured:
            ids = ", ".join(point.measurement_id for point in workload.measured)
            sources.append(f"Measurements: {ids}")
        parts.append(Section(workload.name, [Bullets(sources)]))
    if used := _constants(result):
        rows = [
            [x.name, formats.constant(x.value, x.unit), x.basis, x.source, ", ".join(platforms)]
            for x, platforms in used.items()
        ]
        title = f"Constants used: {len(used)}"
        columns = ("constant", "value", "basis", "source", "used for")
        parts.append(Table(title, columns, rows, folded=True))
    return parts


def _constants(result: StudyResult) -> dict[Constant, list[str]]:
    """Return each constant with the platforms whose predictions use it."""
    used: dict[Constant, list[str]] = {}
    for workload in result.workloads:
        for curve in workload.curves:
            for constant in curve.constants:
                platforms = used.setdefault(constant, [])
                if curve.platform not in platforms:
                    platforms.append(curve.platform)
    return used
