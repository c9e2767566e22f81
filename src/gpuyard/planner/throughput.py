"""Every shape × nodes × batch × remedy × precision through the step model at once.

A shape is what a prediction depends on, without any price: GPU, GPUs in a machine, how they are joined, the
network. Many offers share one shape, so each is predicted once. `usable_lines` is the one place where a GPU's
own speed comes from, a calibration's included. The constants of an exchange are the defaults: one table holds
many kinds of hardware.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.catalog import gpus as gpus_table
from gpuyard.errors import UserMistake
from gpuyard.predict import STRATEGIES, Calibration, ComputeLine, Scenario
from gpuyard.predict.compute import ComputeLines, at_precision, precision_on
from gpuyard.predict.constants import fitted
from gpuyard.predict.interval import Reach, reach_of
from gpuyard.predict.platform import Fleet
from gpuyard.predict.scenario import line_of
from gpuyard.predict.stacks.posterior import Posterior, described, under_framework
from gpuyard.predict.strategies.remedies import ACCUMULATED_STEPS, POWERSGD_RANK
from gpuyard.predict.table import Floats, HardwareRates, Integers, chunks, step_parts
from gpuyard.predict.transport import Fabric, InMachine, Networks, between_machines
from gpuyard.specs import (
    DEFAULT_EXCHANGE,
    DEFAULT_STRATEGY,
    ExchangeOptions,
    Network,
    Precision,
    StrategyName,
    Topology,
    Workload,
)
from gpuyard.specs.plan import RemedyName


@dataclass(frozen=True)
class MachineShape:
    """Machines of one kind and how they are joined; without a network it is one machine."""

    gpu: Gpu
    gpus: int
    topology: Topology
    network: Network | None
    network_assumed: bool = False


@dataclass(frozen=True)
class Inside:
    """What full use of one machine gets of its links."""

    bytes_per_second: float
    latency_seconds: float
    host_to_gpu_bytes_per_second: float


def inside_of(gpu: Gpu, gpus: int, topology: Topology) -> Inside:
    """Through the machine graph; GPUs that are wired alike share one."""
    return _inside_like(_wired_alike()[_wiring(gpu)], gpus, topology)


def _wiring(gpu: Gpu) -> tuple[object, ...]:
    """All that a machine graph knows of a GPU."""
    return (
        gpu.pcie_generation,
        gpu.pcie_lanes,
        gpu.released if gpu.pcie_generation == 3 else None,  # decides the link between sockets
        gpu.pcie_peer_to_peer,
        gpu.own_link,
        gpu.own_links,
        gpu.nvlink_bridge,
        gpu.fabric_topology,
        gpu.form_factor,
        gpu.nvswitch_gpus,
        gpu.mesh_gpus,
    )


@functools.cache
def _wired_alike() -> dict[tuple[object, ...], str]:
    """One GPU for each wiring."""
    return {_wiring(gpu): gpu.id for gpu in gpus_table()}


@functools.cache
def _inside_like(gpu: str, gpus: int, topology: Topology) -> Inside:
    machine = InMachine.of(gpus_table().get(gpu), gpus, topology)
    pipe = machine.pipe(gpus)
    to_gpu = machine.host_to_gpu_bytes_per_second(gpus)
    return Inside(pipe.bytes_per_second, pipe.latency_seconds, to_gpu)


@functools.cache
def fabric_of(network: Network) -> Fabric:
    return between_machines(network)[0]


def network_name(network: Network) -> str:
    """As people would say it: "8 × infiniband-ndr", "10 Gbit/s"."""
    rails = f"{network.rails} × " if network.rails > 1 else ""
    name = network.link or f"{(network.rate or 0.0) * 8 / 1e9:g} Gbit/s"
    return f"{rails}{name}"


_ROWS_BY_STACK = 1024  # at a time, each with what every software stack makes of it
EXCHANGES: dict[RemedyName, ExchangeOptions] = {
    "none": DEFAULT_EXCHANGE,
    "fp16-gradients": ExchangeOptions(compress="fp16"),
    "accumulation": ExchangeOptions(accumulate=ACCUMULATED_STEPS),
    "powersgd": ExchangeOptions(compress=f"powersgd:{POWERSGD_RANK}"),
}


@dataclass(frozen=True)
class Throughputs:
    """One spot a configuration; those of one shape stand together, in the order of the shapes."""

    shape: Integers
    nodes: Integers
    batch_per_gpu: Integers
    remedy: Integers  # index into the remedies that were asked for
    precision: Integers  # index into those of its GPU, in the order in which they were asked for
    gpus: Integers
    samples_per_second: Floats
    low: Floats
    high: Floats
    scaling_efficiency: Floats
    memory_bytes: Floats
    update_samples: Floats  # what one update of the weights sees
    on_slow_network: Floats  # samples per second; as above where the network is known
    on_fast_network: Floats

    @property
    def rows(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
class Grid:
    """What is combined with every shape."""

    nodes: tuple[int, ...]
    batches: tuple[int, ...]
    remedies: tuple[RemedyName, ...]
    strategy: StrategyName = DEFAULT_STRATEGY


Lines = dict[str, dict[Precision, ComputeLine]]
"""By GPU and by what it trains in; of both only those that a rate is known for."""


def usable_lines(
    workload: Workload,
    profile: ModelProfile,
    gpus: Sequence[Gpu],
    calibration: Calibration | None = None,
    precisions: Sequence[Precision] = (),
) -> Lines:
    """Each GPU's speed alone in each of the precisions or, without any, in the workload's own. What a GPU
    computes as another (tf32 as fp32) is there once."""
    lines: Lines = {}
    for gpu in gpus:
        for precision, trained in _trained(workload, profile, gpu, precisions).items():
            try:
                line = line_of(trained, profile, gpu, calibration)
            except UserMistake:
                continue
            lines.setdefault(gpu.id, {})[precision] = line
    return lines


def unrated(
    lines: Lines,
    workload: Workload,
    profile: ModelProfile,
    gpus: Sequence[Gpu],
    precisions: Sequence[Precision] = (),
) -> list[tuple[str, Precision]]:
    """Which GPUs were left out for lack of a rate, and in what."""
    return [
        (gpu.id, precision)
        for gpu in gpus
        for precision in _trained(workload, profile, gpu, precisions)
        if precision not in lines.get(gpu.id, {})
    ]


def _trained(
    workload: Workload, profile: ModelProfile, gpu: Gpu, precisions: Sequence[Precision]
) -> dict[Precision, Workload]:
    tried = [at_precision(workload, profile, precision) for precision in precisions] or [workload]
    return {precision_on(gpu, one, profile): one for one in tried}


def predict_shapes(
    workload: Workload,
    profile: ModelProfile,
    shapes: Sequence[MachineShape],
    lines: Lines,
    grid: Grid,
) -> Throughputs:
    """Predict them all. A shape without a network is one machine, one with it is two or more."""
    shape, fleet = _fleet(shapes, grid)
    spot, batch, remedy, rank = _rows(shapes, lines, grid)
    strategy = STRATEGIES[grid.strategy]
    gpus = (fleet.nodes * fleet.gpus_per_node)[spot]
    seconds, slow, fast, memory, passes, compute = (np.empty(len(spot)) for _ in range(6))
    for precision in dict.fromkeys(p for one in shapes for p in lines[one.gpu.id]):
        # an offer says nothing of storage, nor of the cores that prepare samples
        trained = workload.model_copy(update={"dataset": None, "precision": precision})
        ranks, fixed, per_sample, unsure = _alone(shapes, lines, precision)[:, shape]
        here = rank == ranks[spot]
        compute[here] = (fixed[spot] + batch * per_sample[spot])[here]
        for code, name in enumerate(grid.remedies):
            exchange = EXCHANGES[name]
            line = ComputeLines(fixed, per_sample)
            scenario = Scenario(trained, profile, fleet, line, strategy, exchange)
            chosen = np.flatnonzero(here & (remedy == code))
            for part in chunks(len(chosen), *([_ROWS_BY_STACK] if described(workload) else [])):
                rows = chosen[part]
                table = scenario.table(fleet.rows(spot[rows], batch[rows]))
                parts = step_parts(table)
                reach = reach_of(table, parts, unsure[spot[rows]])
                found = Posterior(np.log(parts.step_seconds), reach)
                if workload.framework is not None and described(workload):
                    found = under_framework(
                        table, parts.step_seconds, reach, unsure[spot[rows]], workload.framework
                    )
                seconds[rows] = np.exp(found.log_seconds)
                slow[rows], fast[rows] = found.reach.slow, found.reach.fast
            passes[chosen] = exchange.accumulate
            memory[chosen] = strategy.memory_bytes(
                trained, profile, exchange, batch_per_gpu=batch[chosen], gpus=gpus[chosen]
            )
    rate = gpus * batch / seconds
    fed = batch * float(profile.input_bytes) / fleet.of_spots.host_to_gpu_bytes_per_second[spot]
    low, high = Reach(slow, fast).ends(rate)
    return Throughputs(
        shape=shape[spot],
        nodes=fleet.nodes[spot].astype(np.int64),
        batch_per_gpu=batch.astype(np.int64),
        remedy=remedy,
        precision=rank,
        gpus=gpus.astype(np.int64),
        samples_per_second=rate,
        low=low,
        high=high,
        scaling_efficiency=np.maximum(compute, fed) / seconds,
        memory_bytes=memory,
        update_samples=gpus * batch * passes,
        on_slow_network=rate,
        on_fast_network=rate,
    )


def widened(
    predicted: Throughputs,
    shapes: Sequence[MachineShape],
    predict: Callable[[Sequence[MachineShape]], Throughputs],
    ends: tuple[Network, Network],
) -> Throughputs:
    """Where nobody knows the network, the interval is from the low end on a slow one to the high end on a fast one."""
    unknown = [number for number, shape in enumerate(shapes) if shape.network_assumed]
    if not unknown:
        return predicted
    slow, fast = (
        predict([replace(shapes[number], network=network) for number in unknown])
        for network in ends
    )
    rows = np.flatnonzero(np.isin(predicted.shape, unknown))

    def put(column: Floats, values: Floats, worst: Callable[..., Floats]) -> Floats:
        changed = column.copy()
        changed[rows] = worst(column[rows], values)
        return changed

    return replace(
        predicted,
        low=put(predicted.low, slow.low, np.minimum),
        high=put(predicted.high, fast.high, np.maximum),
        on_slow_network=put(predicted.samples_per_second, slow.samples_per_second, np.minimum),
        on_fast_network=put(predicted.samples_per_second, fast.samples_per_second, np.maximum),
    )


def _alone(shapes: Sequence[MachineShape], lines: Lines, precision: Precision) -> Floats:
    """Of each shape's GPU in one precision: which of its precisions that is, the line's two parts and its σ;
    −1 and nothing known where the GPU does not train in it."""
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


def configurations(shape: MachineShape, lines: Lines, grid: Grid) -> int:
    """How many there are of one shape."""
    settings = len(grid.batches) * len(_codes(shape, grid)) * len(lines[shape.gpu.id])
    return len(_nodes(shape, grid)) * settings


def _codes(shape: MachineShape, grid: Grid) -> list[int]:
    """Indices of the remedies to try: one GPU exchanges nothing, and no remedy changes that."""
    if shape.gpus == 1 and shape.network is None:
        return [grid.remedies.index("none") if "none" in grid.remedies else 0]
    return list(range(len(grid.remedies)))


def _nodes(shape: MachineShape, grid: Grid) -> tuple[int, ...]:
    return tuple(count for count in grid.nodes if (count > 1) == (shape.network is not None))


def _fleet(shapes: Sequence[MachineShape], grid: Grid) -> tuple[Integers, Fleet]:
    """Every shape with every number of machines that it may have, and which shape each spot is."""
    nodes = [_nodes(shape, grid) for shape in shapes]
    many = np.array([len(counts) for counts in nodes], dtype=np.int64)
    of = np.repeat(np.arange(len(shapes)), many)
    inside = [inside_of(shape.gpu, shape.gpus, shape.topology) for shape in shapes]
    fabrics = [fabric_of(shape.network) if shape.network else None for shape in shapes]

    def column(values: list[float]) -> Floats:
        return np.array(values, dtype=float)[of]

    counts = np.array([count for counts in nodes for count in counts], dtype=float)
    links = HardwareRates(
        column([i.bytes_per_second for i in inside]),
        column([i.latency_seconds for i in inside]),
        *Networks.of(fabrics).take(of).between(counts, fitted()),
        host_to_gpu_bytes_per_second=column([i.host_to_gpu_bytes_per_second for i in inside]),
        gpu_memory_bytes_per_second=column([s.gpu.memory_bytes_per_second for s in shapes]),
    )
    return of, Fleet(counts, column([shape.gpus for shape in shapes]), links)


def _rows(
    shapes: Sequence[MachineShape], lines: Lines, grid: Grid
) -> tuple[Integers, Floats, Integers, Integers]:
    """The columns that say which row is what: spot of the fleet, batch, remedy, and precision of its GPU."""
    columns: list[list[Floats]] = [[], [], [], []]
    blocks: dict[tuple[int, int, int], tuple[Floats, ...]] = {}
    first = 0
    for shape in shapes:
        count, codes = len(_nodes(shape, grid)), _codes(shape, grid)
        precisions = len(lines[shape.gpu.id])
        like = count, len(codes), precisions
        if like not in blocks:
            axes = range(count), grid.batches, codes, range(precisions)
            mesh = np.meshgrid(*axes, indexing="ij")
            blocks[like] = tuple(axis.ravel().astype(float) for axis in mesh)
        spot, *others = blocks[like]
        for column, values in zip(columns, (first + spot, *others), strict=True):
            column.append(values)
        first += count
    spots, batches, codes_, ranks = (np.concatenate([*column, np.zeros(0)]) for column in columns)
    return spots.astype(np.int64), batches, codes_.astype(np.int64), ranks.astype(np.int64)
