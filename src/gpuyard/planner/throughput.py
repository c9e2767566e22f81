"""Every shape × nodes × batch × remedy through the step model at once.

`usable_lines` is the one place where a GPU's own speed comes from, a calibration's included. The
constants of an exchange are the defaults: one table holds many kinds of hardware.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.planner.shapes import Shape, fabric_of, inside_of
from gpuyard.predict import Calibration, ComputeLine
from gpuyard.predict import constants as c
from gpuyard.predict.calibration.applied import calibrated_line
from gpuyard.predict.explain.general import ACCUMULATED_STEPS
from gpuyard.predict.platform.transport import between_hop, between_rate
from gpuyard.predict.predictor import relative_uncertainty
from gpuyard.predict.step import Configurations, Floats, StepParts, Traffic, step_parts
from gpuyard.predict.strategies import powersgd
from gpuyard.predict.strategies.buckets import bucket_caps, pack
from gpuyard.predict.sweep import CHUNK_ROWS
from gpuyard.predict.tables import memory_needed_bytes
from gpuyard.predict.tuning import fitted, spread
from gpuyard.specs import Workload
from gpuyard.specs.plan import RemedyName

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Throughputs:
    """One entry a configuration; those of one shape stand together, in the order of the shapes."""

    shape: Integers
    nodes: Integers
    batch_per_gpu: Integers
    remedy: Integers  # index into the remedies that were asked for
    gpus: Integers
    samples_per_second: Floats
    low: Floats
    high: Floats
    scaling_efficiency: Floats
    memory_bytes: Floats
    update_samples: Floats  # what one update of the weights sees

    @property
    def rows(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
class Grid:
    """What is combined with every shape."""

    nodes: tuple[int, ...]
    batches: tuple[int, ...]
    remedies: tuple[RemedyName, ...]


def usable_lines(
    workload: Workload,
    profile: ModelProfile,
    gpus: Sequence[Gpu],
    calibration: Calibration | None = None,
) -> dict[str, ComputeLine]:
    """Each GPU's speed alone; one that lacks the workload's precision has none."""
    lines: dict[str, ComputeLine] = {}
    for gpu in gpus:
        try:
            lines[gpu.id] = calibrated_line(workload, profile, gpu, calibration)
        except UserMistake:
            continue
    return lines


def predict_shapes(
    workload: Workload,
    profile: ModelProfile,
    shapes: Sequence[Shape],
    lines: dict[str, ComputeLine],
    grid: Grid,
) -> Throughputs:
    """Predict them all. A shape without a network is one machine, one with it is two or more."""
    index, nodes, batch, remedy = _rows(shapes, grid)
    per_node = np.array([shape.gpus for shape in shapes], dtype=float)[index]
    table = _table(shapes, lines, index, nodes, batch)
    compute_sigma = np.array([lines[s.gpu.id].relative_uncertainty for s in shapes])[index]
    rates = {shape.gpu.id: shape.gpu.memory_bytes_per_second for shape in shapes}
    compressing = {gpu: powersgd.seconds(profile, rate) for gpu, rate in rates.items()}
    compression = np.array([compressing[shape.gpu.id] for shape in shapes], dtype=float)[index]
    parts_of = _Exchange(profile, compression)
    seconds, sigma = np.empty(len(index)), np.empty(len(index))
    for code, name in enumerate(grid.remedies):
        chosen = np.flatnonzero(remedy == code)
        for start in range(0, len(chosen), CHUNK_ROWS):
            rows = chosen[start : start + CHUNK_ROWS]
            part = _take(table, rows)
            parts = parts_of.parts(part, rows, name)
            seconds[rows] = parts.step_seconds
            sigma[rows] = relative_uncertainty(part, parts, compute_sigma[rows], "assumed link")
    gpus = nodes * per_node
    rate = gpus * batch / seconds
    compute = table.fixed_seconds + batch * table.seconds_per_sample
    fed = batch * float(profile.input_bytes) / table.host_to_gpu_bytes_per_second
    low, high = spread().ends(rate, sigma)
    accumulated = np.array([ACCUMULATED_STEPS if r == "accumulation" else 1 for r in grid.remedies])
    extra = np.array(
        [profile.gradient_bytes if r == "powersgd" else 0.0 for r in grid.remedies]
    )  # the error that is fed back
    return Throughputs(
        shape=index,
        nodes=nodes.astype(np.int64),
        batch_per_gpu=batch.astype(np.int64),
        remedy=remedy,
        gpus=gpus.astype(np.int64),
        samples_per_second=rate,
        low=low,
        high=high,
        scaling_efficiency=np.maximum(compute, fed) / seconds,
        memory_bytes=_memory(profile, workload, batch) + extra[remedy],
        update_samples=gpus * batch * accumulated[remedy],
    )


def _rows(shapes: Sequence[Shape], grid: Grid) -> tuple[Integers, Floats, Floats, Integers]:
    """The four columns that say which row is what."""
    several = [count for count in grid.nodes if count > 1]
    columns: list[list[npt.NDArray[np.float64]]] = [[], [], [], []]
    blocks: dict[tuple[bool, bool], tuple[Floats, ...]] = {}
    none = grid.remedies.index("none") if "none" in grid.remedies else 0
    for joined in (False, True):
        for alone in (False, True):
            nodes = several if joined else [1] if 1 in grid.nodes else []
            # one GPU exchanges nothing: no remedy changes that
            codes = [none] if alone and not joined else list(range(len(grid.remedies)))
            mesh = np.meshgrid(nodes, grid.batches, codes, indexing="ij")
            blocks[joined, alone] = tuple(axis.ravel().astype(float) for axis in mesh)
    for position, shape in enumerate(shapes):
        block = blocks[shape.network is not None, shape.gpus == 1]
        columns[0].append(np.full(len(block[0]), float(position)))
        for column, values in zip(columns[1:], block, strict=True):
            column.append(values)
    index, node, batch, remedy = (np.concatenate([*column, np.zeros(0)]) for column in columns)
    return index.astype(np.int64), node, batch, remedy.astype(np.int64)


def _memory(profile: ModelProfile, workload: Workload, batch: Floats) -> Floats:
    """`memory_needed_bytes` is linear in the batch."""
    none = memory_needed_bytes(profile, workload, 0)
    return none + batch * (memory_needed_bytes(profile, workload, 1) - none)


def _table(
    shapes: Sequence[Shape],
    lines: dict[str, ComputeLine],
    index: Integers,
    nodes: Floats,
    batch: Floats,
) -> Configurations:
    inside = [inside_of(shape.gpu, shape.gpus, shape.topology) for shape in shapes]
    fabrics = [fabric_of(shape.network) if shape.network else None for shape in shapes]

    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=float)[index]

    tcp = np.array([fabric is not None and fabric.tcp for fabric in fabrics], dtype=bool)[index]
    wire = column([f.wire_bytes_per_second if f else np.inf for f in fabrics])
    flow = column([f.flow_bytes_per_second if f else np.inf for f in fabrics])
    given = column(
        [f.latency_seconds if f and f.latency_seconds is not None else np.nan for f in fabrics]
    )
    hop = between_hop(tcp, nodes, fitted())
    alone = [lines[shape.gpu.id] for shape in shapes]
    return Configurations(
        nodes=nodes,
        gpus_per_node=column([shape.gpus for shape in shapes]),
        inside_bytes_per_second=column([i.bytes_per_second for i in inside]),
        inside_latency_seconds=column([i.latency_seconds for i in inside]),
        between_bytes_per_second=between_rate(wire, tcp, flow, nodes, fitted()),
        between_latency_seconds=np.where(np.isnan(given), hop, given),
        batch_per_gpu=batch,
        fixed_seconds=column([line.fixed_seconds for line in alone]),
        seconds_per_sample=column([line.seconds_per_sample for line in alone]),
        host_to_gpu_bytes_per_second=column([i.host_to_gpu_bytes_per_second for i in inside]),
        storage_bytes_per_second=np.full(len(index), np.inf),
        host_overhead_seconds=np.zeros(len(index)),
    )


def _take(table: Configurations, rows: Integers) -> Configurations:
    columns = {
        name: column[rows] if column.ndim else column for name, column in vars(table).items()
    }
    return Configurations(**columns)


class _Exchange:
    """The parts of a step under each remedy."""

    def __init__(self, profile: ModelProfile, compression: Floats) -> None:
        self._compression = compression
        self._traffic = Traffic(
            strategy="ddp",
            buckets=pack(profile, "ddp"),
            input_bytes_per_sample=profile.input_bytes,
            storage_bytes_per_sample=0.0,
            overlap=c.default_overlap("ddp").value,
            overlap_between=c.default_overlap_between("ddp").value,
            backward_share=c.BACKWARD_SHARE.value,
            variation=c.GPU_VARIATION.value,
            slowdown=c.SLOWDOWN.value,
            slowdown_between=c.default_slowdown_between("ddp"),
            launch_seconds=c.LAUNCH.value,
        )
        self._compressed = powersgd.compressed(profile, bucket_caps("ddp"))

    def parts(self, table: Configurations, rows: Integers, remedy: RemedyName) -> StepParts:
        """Seconds of one pass over a batch; an accumulated exchange is shared out over its passes."""
        match remedy:
            case "none":
                return step_parts(table, self._traffic)
            case "fp16-gradients":
                return step_parts(replace(table, sent_share=np.array(0.5)), self._traffic)
            case "accumulation":
                seldom = replace(table, accumulate=np.array(float(ACCUMULATED_STEPS)))
                return step_parts(seldom, self._traffic)
            case "powersgd":
                cost = np.where(table.gpus > 1, self._compression[rows], 0.0)
                slower = replace(table, fixed_seconds=table.fixed_seconds + cost)
                return step_parts(slower, replace(self._traffic, buckets=self._compressed))
