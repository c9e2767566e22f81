"""Predict every shape × nodes × batch × remedy × precision with the step model at once.

A shape has everything that a prediction depends on, without prices: the GPU, GPUs per machine, the topology, and the
network. Many offers share a shape, so each shape is predicted once. `find_compute_lines` is the only source of a
GPU's own speed, including calibrations. Exchanges use the default constants, because one table holds many kinds of
hardware.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.planner.machine_shapes import MachineShape, compute_machine_rates, load_fabric
from gpuyard.predictor import STRATEGIES, ComputeLine, Scenario
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.predictor.compute import ComputeLines, change_workload_precision, resolve_precision
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.interval import PredictionInterval, estimate_interval
from gpuyard.predictor.large.layout import Layout
from gpuyard.predictor.platform import Fleet
from gpuyard.predictor.power import cap_power
from gpuyard.predictor.scenario import find_compute_line
from gpuyard.predictor.software_stacks.posterior import (
    Posterior,
    has_published_framework,
    predict_with_framework,
)
from gpuyard.predictor.strategies.remedies import ACCUMULATED_STEPS, POWERSGD_RANK
from gpuyard.predictor.table import Floats, HardwareRates, Integers, chunks, compute_step_parts
from gpuyard.predictor.transport import (
    Networks,
    uses_trees,
)
from gpuyard.specs import (
    DEFAULT_EXCHANGE,
    DEFAULT_STRATEGY,
    ExchangeOptions,
    Network,
    Precision,
    StrategyName,
    Workload,
)
from gpuyard.specs.plan_candidates import RemedyName

_STACK_CHUNK_ROWS = 1024  # each row is predicted for every software stack, which takes memory
EXCHANGES: dict[RemedyName, ExchangeOptions] = {
    "none": DEFAULT_EXCHANGE,
    "fp16-gradients": ExchangeOptions(compress="fp16"),
    "accumulation": ExchangeOptions(accumulate=ACCUMULATED_STEPS),
    "powersgd": ExchangeOptions(compress=f"powersgd:{POWERSGD_RANK}"),
}


@dataclass(frozen=True)
class Throughputs:
    """Predictions, one entry per configuration, grouped by shape in the order of the shapes."""

    shape: Integers
    nodes: Integers
    batch_per_gpu: Integers
    remedy: Integers  # index into the remedies of the grid
    precision: Integers  # index into the precisions of its GPU in the compute line table
    gpus: Integers
    samples_per_second: Floats
    low: Floats
    high: Floats
    scaling_efficiency: Floats
    memory_bytes: Floats
    update_samples: Floats  # per update of the weights
    on_slow_network: Floats  # samples per second; differs only if the network is unknown
    on_fast_network: Floats
    layout: Integers  # index into `layouts`; -1: a whole copy of the model on every GPU
    layouts: tuple[Layout, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
class Grid:
    """The settings that are combined with every shape."""

    nodes: tuple[int, ...]
    batches: tuple[int, ...]
    remedies: tuple[RemedyName, ...]
    strategy: StrategyName = DEFAULT_STRATEGY


ComputeLineTable = dict[str, dict[Precision, ComputeLine]]
"""Compute lines by GPU and training precision, for all combinations with a known rate."""


def find_compute_lines(
    workload: Workload,
    profile: ModelProfile,
    gpus: Sequence[Gpu],
    calibration: Calibration | None = None,
    precisions: Sequence[Precision] = (),
) -> ComputeLineTable:
    """Find the single-GPU speed of each GPU in each precision, by default the workload's own.

    Precisions that a GPU computes as another one (tf32 as fp32) appear once.
    """
    lines: ComputeLineTable = {}
    for gpu in gpus:
        for precision, variant in _resolve_precisions(workload, profile, gpu, precisions).items():
            try:
                line = find_compute_line(variant, profile, gpu, calibration)
            except UserMistake:
                continue
            lines.setdefault(gpu.id, {})[precision] = line
    return lines


def cap_lines(
    lines: ComputeLineTable, gpus: Sequence[Gpu], power_cap: float | None
) -> ComputeLineTable:
    """Return slower lines for GPUs whose power is capped; those for which the cap is too low are left out."""
    capped = {
        gpu: {name: line.scale(1 / speed) for name, line in lines.get(gpu, {}).items()}
        for gpu, speed in find_capped_speeds(gpus, power_cap).items()
    }
    return {gpu: precisions for gpu, precisions in capped.items() if precisions}


def find_capped_speeds(gpus: Sequence[Gpu], power_cap: float | None) -> dict[str, float]:
    """Return the share of its computing speed that a cap leaves each GPU, without those for which it is too low."""
    if power_cap is None:
        return {gpu.id: 1.0 for gpu in gpus}
    speeds: dict[str, float] = {}
    for gpu in gpus:
        with contextlib.suppress(UserMistake):
            speeds[gpu.id] = cap_power(gpu, power_cap).speed
    return speeds


def find_missing_rates(
    lines: ComputeLineTable,
    workload: Workload,
    profile: ModelProfile,
    gpus: Sequence[Gpu],
    precisions: Sequence[Precision] = (),
) -> list[tuple[str, Precision]]:
    """Return the GPUs and precisions that have no compute line because their rate is unknown."""
    return [
        (gpu.id, precision)
        for gpu in gpus
        for precision in _resolve_precisions(workload, profile, gpu, precisions)
        if precision not in lines.get(gpu.id, {})
    ]


def _resolve_precisions(
    workload: Workload, profile: ModelProfile, gpu: Gpu, precisions: Sequence[Precision]
) -> dict[Precision, Workload]:
    """Return the workload in each precision, by the precision in which this GPU trains it."""
    variants = [change_workload_precision(workload, profile, precision) for precision in precisions]
    return {resolve_precision(gpu, variant, profile): variant for variant in variants or [workload]}


def predict_shapes(
    workload: Workload,
    profile: ModelProfile,
    shapes: Sequence[MachineShape],
    lines: ComputeLineTable,
    grid: Grid,
) -> Throughputs:
    """Predict all shapes: one machine without a network, two or more with one."""
    shape, fleet = _build_fleet(shapes, grid)
    entry, batch, remedy, rank = _build_rows(shapes, lines, grid)
    strategy = STRATEGIES[grid.strategy]
    gpus = (fleet.nodes * fleet.gpus_per_node)[entry]
    seconds, slow, fast, memory, passes, compute = (np.empty(len(entry)) for _ in range(6))
    for precision in dict.fromkeys(p for each in shapes for p in lines[each.gpu.id]):
        # an offer has no information about storage or the CPU cores that prepare samples
        variant = workload.model_copy(update={"dataset": None, "precision": precision})
        ranks, fixed, per_sample, sigma = _line_columns(shapes, lines, precision)[:, shape]
        in_precision = rank == ranks[entry]
        compute[in_precision] = (fixed[entry] + batch * per_sample[entry])[in_precision]
        for code, name in enumerate(grid.remedies):
            exchange = EXCHANGES[name]
            line = ComputeLines(fixed, per_sample)
            scenario = Scenario(variant, profile, fleet, line, strategy, exchange)
            chosen = np.flatnonzero(in_precision & (remedy == code))
            framework = workload.framework if has_published_framework(workload) else None
            for part in chunks(len(chosen), *([_STACK_CHUNK_ROWS] if framework else [])):
                rows = chosen[part]
                table = scenario.build_table(fleet.select_rows(entry[rows], batch[rows]))
                parts = compute_step_parts(table)
                interval = estimate_interval(table, parts, sigma[entry[rows]])
                posterior = Posterior(np.log(parts.step_seconds), interval)
                if framework is not None:
                    posterior = predict_with_framework(
                        table, parts.step_seconds, interval, sigma[entry[rows]], framework
                    )
                seconds[rows] = np.exp(posterior.log_seconds)
                slow[rows], fast[rows] = posterior.interval.slow, posterior.interval.fast
            passes[chosen] = exchange.accumulate
            memory[chosen] = strategy.memory_bytes(
                variant, profile, exchange, batch_per_gpu=batch[chosen], gpus=gpus[chosen]
            )
    rate = gpus * batch / seconds
    input_seconds = (
        batch * float(profile.input_bytes) / fleet.rates.host_to_gpu_bytes_per_second[entry]
    )
    low, high = PredictionInterval(slow, fast).bounds(rate)
    return Throughputs(
        shape=shape[entry],
        nodes=fleet.nodes[entry].astype(np.int64),
        batch_per_gpu=batch.astype(np.int64),
        remedy=remedy,
        precision=rank,
        gpus=gpus.astype(np.int64),
        samples_per_second=rate,
        low=low,
        high=high,
        scaling_efficiency=np.maximum(compute, input_seconds) / seconds,
        memory_bytes=memory,
        update_samples=gpus * batch * passes,
        on_slow_network=rate,
        on_fast_network=rate,
        layout=np.full(len(entry), -1, dtype=np.int64),
    )


def widen_intervals(
    predicted: Throughputs,
    shapes: Sequence[MachineShape],
    predict: Callable[[Sequence[MachineShape]], Throughputs],
    ends: tuple[Network, Network],
) -> Throughputs:
    """For unknown networks, widen the interval from the low end on a slow one to the high end on a fast one."""
    unknown = [number for number, shape in enumerate(shapes) if shape.network_assumed]
    if not unknown:
        return predicted
    slow, fast = (
        predict([replace(shapes[number], network=network) for number in unknown])
        for network in ends
    )
    rows = np.flatnonzero(np.isin(predicted.shape, unknown))

    def combine(column: Floats, values: Floats, choose: Callable[..., Floats]) -> Floats:
        changed = column.copy()
        changed[rows] = choose(column[rows], values)
        return changed

    return replace(
        predicted,
        low=combine(predicted.low, slow.low, np.minimum),
        high=combine(predicted.high, fast.high, np.maximum),
        on_slow_network=combine(predicted.samples_per_second, slow.samples_per_second, np.minimum),
        on_fast_network=combine(predicted.samples_per_second, fast.samples_per_second, np.maximum),
    )


def _line_columns(
    shapes: Sequence[MachineShape], lines: ComputeLineTable, precision: Precision
) -> Floats:
    """Return four values for each shape: the index of the precision, the line's two parts, and its σ.

    They are −1 and NaN if the GPU does not train in this precision.
    """
    columns = []
    for shape in shapes:
        line = lines[shape.gpu.id].get(precision)
        if line is None:
            columns.append((-1.0, np.nan, np.nan, np.nan))
            continue
        rank = float(list(lines[shape.gpu.id]).index(precision))
        columns.append(
            (rank, line.fixed_seconds, line.seconds_per_sample, line.relative_uncertainty)
        )
    return np.array(columns, dtype=float).reshape(-1, 4).T


def count_configurations(shape: MachineShape, lines: ComputeLineTable, grid: Grid) -> int:
    """Return the number of configurations of one shape."""
    settings = len(grid.batches) * len(_remedy_indices(shape, grid)) * len(lines[shape.gpu.id])
    return len(node_counts(shape, grid)) * settings


def _remedy_indices(shape: MachineShape, grid: Grid) -> list[int]:
    """Return the indices of the remedies to try; a single GPU exchanges no gradients and needs none."""
    if shape.gpus == 1 and shape.network is None:
        return [grid.remedies.index("none") if "none" in grid.remedies else 0]
    return list(range(len(grid.remedies)))


def node_counts(shape: MachineShape, grid: Grid) -> tuple[int, ...]:
    """Return the numbers of machines to try: one without a network, several with one."""
    return tuple(count for count in grid.nodes if (count > 1) == (shape.network is not None))


def _build_fleet(shapes: Sequence[MachineShape], grid: Grid) -> tuple[Integers, Fleet]:
    """Combine every shape with all its node counts; also return the shape index of each entry of the fleet."""
    nodes = [node_counts(shape, grid) for shape in shapes]
    entries_per_shape = np.array([len(counts) for counts in nodes], dtype=np.int64)
    shape_index = np.repeat(np.arange(len(shapes)), entries_per_shape)
    rates = [compute_machine_rates(shape.gpu, shape.gpus, shape.topology) for shape in shapes]
    fabrics = [load_fabric(shape.network) if shape.network else None for shape in shapes]

    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=float)[shape_index]

    counts = np.array([count for counts in nodes for count in counts], dtype=float)
    networks = Networks.from_fabrics(fabrics).select(shape_index)
    between, hop = networks.exchange_rates(counts, load_tuning())
    slots = column([m.slot_bytes_per_second * s.gpus for m, s in zip(rates, shapes, strict=True)])
    links = HardwareRates(
        column([machine.bytes_per_second for machine in rates]),
        column([machine.latency_seconds for machine in rates]),
        np.where(counts > 1, np.minimum(between, slots), between),
        hop,
        host_to_gpu_bytes_per_second=column([m.host_to_gpu_bytes_per_second for m in rates]),
        gpu_memory_bytes_per_second=column([s.gpu.memory_bytes_per_second for s in shapes]),
        switch_gain=column([machine.switch_gain for machine in rates]),
        trees=np.array(
            [
                uses_trees(fabric, machine.switch_gain)
                for machine, fabric in zip(rates, fabrics, strict=True)
            ],
            dtype=bool,
        )[shape_index],
        inside_low_share=column([machine.low_share for machine in rates]),
        inside_high_share=column([machine.high_share for machine in rates]),
    )
    return shape_index, Fleet(counts, column([shape.gpus for shape in shapes]), links)


def _build_rows(
    shapes: Sequence[MachineShape], lines: ComputeLineTable, grid: Grid
) -> tuple[Integers, Floats, Integers, Integers]:
    """Return four columns that identify each row: entry of the fleet, batch, remedy, and precision of its GPU."""
    columns: list[list[Floats]] = [[], [], [], []]
    blocks: dict[tuple[int, int, int], tuple[Floats, ...]] = {}
    first = 0
    for shape in shapes:
        count, remedies = len(node_counts(shape, grid)), _remedy_indices(shape, grid)
        precisions = len(lines[shape.gpu.id])
        key = count, len(remedies), precisions
        if key not in blocks:
            axes = range(count), grid.batches, remedies, range(precisions)
            mesh = np.meshgrid(*axes, indexing="ij")
            blocks[key] = tuple(axis.ravel().astype(float) for axis in mesh)
        entry, *others = blocks[key]
        for column, values in zip(columns, (first + entry, *others), strict=True):
            column.append(values)
        first += count
    entries, batches, codes, ranks = (np.concatenate([*column, np.zeros(0)]) for column in columns)
    return entries.astype(np.int64), batches, codes.astype(np.int64), ranks.astype(np.int64)
