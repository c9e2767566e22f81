"""Of a study, every number, and how each was obtained."""

from collections.abc import Iterator, Sequence

from gpuyard.predict import Choke, Constant
from gpuyard.report import formats
from gpuyard.report.answer import (
    Bullets,
    Column,
    DefinitionList,
    Part,
    Section,
    Sentence,
    Table,
    Text,
    Tone,
    Words,
)
from gpuyard.report.figures.epoch_time import epoch_table
from gpuyard.report.figures.marks import here_platform
from gpuyard.study.result import PlatformCurve, StudyResult, WorkloadResult

CHOKES: dict[Choke, tuple[str, str, Tone]] = {  # what is waited for, a sign of it, and its tone
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
    columns = ["workers", "batch per worker", "strategy", "samples/s", "95 % interval", "efficiency",
               "compute", "exposed communication", "input", "measurement"]  # fmt: skip
    rows: list[list[Words]] = [
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
    title = f"Measured on {here_platform(workload)}{_measured_in(workload)}: {runs}"
    return Table(title, columns, rows, folded=True)


def _measured_in(workload: WorkloadResult) -> str:
    """The curve of this machine has the precision of its runs."""
    there = [p.precision for curve in workload.curves if curve.here for p in curve.predictions]
    return f" in {there[0]}" if there else ""


def _predicted(curve: PlatformCurve) -> Table:
    here = " (this machine)" if curve.here and curve.platform != "this machine" else ""
    count = len(curve.predictions)
    columns = ("GPUs", "machines × GPUs", "batch per GPU", "strategy", "samples/s", "90 % interval",
               "efficiency", "compute", "exposed communication", "input", "straggling", "waits for",
               "memory per GPU", "fits")  # fmt: skip
    rows: list[list[Words]] = [
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
    epochs, here = epoch_table(workload), here_platform(workload)

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
         "the 95 % confidence interval of the mean over the windows."),
        ("Predicted throughput",
         "Per-GPU batch × GPUs ÷ step. A step is compute, plus the communication and input that do not "
         "hide behind it, plus waiting for the slowest worker. The interval holds 90 % of what the "
         "uncertainty of each part allows."),
        ("Compute",
         "A line in the batch size, t(b) = t₀ + b ÷ r, from the basis named for each platform below."),
        ("Exposed communication",
         "Measured: a step less a step without exchange of gradients. Predicted: gradients exchanged "
         "bucket by bucket on the slowest link while backward goes on; what is left over."),
        ("Scaling efficiency",
         "Throughput ÷ (GPUs × throughput of one GPU at the same batch per GPU)."),
        ("What a step waits for",
         "The part whose doubling in speed would shorten the step most. Past the knee, where an added GPU "
         "brings less than half of what one does alone, it is not the GPUs."),
        ("Doubtful runs",
         "Every run is judged: windows that differ by more than 20 %, other programs on the cores, a loss "
         "that is not a number or a speed beyond the hardware's make it doubtful. It is marked, left out of "
         "fits where there are credible runs, and no verdict stands on it."),
    ]  # fmt: skip
    if result.cost:
        facts.append(
            ("Break-even",
             "Price ÷ rent per hour. A speed lead is taken off the price for the rule of thumb alone; in "
             "all payments the price is whole, and the faster machine is under load for fewer hours. Over "
             "the horizon, the running costs that the study gives are in as well; what it does not give "
             "costs nothing.")
        )  # fmt: skip
    parts: list[Part] = [DefinitionList(facts)]
    for workload in result.workloads:
        samples = formats.number(workload.samples_per_epoch)
        said = [f"Samples per epoch: {samples} ({workload.samples_note})"]
        if workload.measured:
            said.append(f"Measured runs were fed with: {workload.data_source}")
        said += [f"Compute on {curve.platform}: {curve.basis}" for curve in workload.curves]
        if workload.measured:
            ids = ", ".join(point.measurement_id for point in workload.measured)
            said.append(f"Measurements: {ids}")
        parts.append(Section(workload.name, [Bullets(said)]))
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
    """Each constant once, with the platforms whose predictions it entered."""
    used: dict[Constant, list[str]] = {}
    for workload in result.workloads:
        for curve in workload.curves:
            for constant in curve.constants:
                platforms = used.setdefault(constant, [])
                if curve.platform not in platforms:
                    platforms.append(curve.platform)
    return used
