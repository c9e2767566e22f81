"""Published rows as the vectorised core takes them: once compiled, they can be predicted with any
constants, which is what a fit needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gpuyard.catalog import gpus, models
from gpuyard.catalog.published import VARIABLE_INPUTS, published_profile
from gpuyard.catalog.published_rows import PublishedRow, PublishedStrategy
from gpuyard.hardware import all_reduce, machine_graph
from gpuyard.predict import constants as c
from gpuyard.predict.compute import MOST_FIXED, roofline
from gpuyard.predict.platform.transport import Truths, between_hop, between_rate, inside_rate
from gpuyard.predict.step import Configurations, Exchange, Floats, StepParts, Traffic, step_parts
from gpuyard.predict.strategies.buckets import Buckets, pack
from gpuyard.predict.tuning import Tuning
from gpuyard.specs import Precision, StrategyName, Topology

_ANCHOR_ROUNDS = 4
# a synthetic GPU sleeps for the last two thirds of its step while its gradients go out. Nothing
# disturbs a sleep, and it leaves the host's cores to the network
SYNTHETIC_BACKWARD = 2 / 3
_BUCKETS_AS: dict[Exchange, StrategyName] = {
    "ddp": "ddp",
    "none": "ddp",
    "horovod": "horovod",
    "parameter-server": "parameter-server",
    "distributed-replicated": "parameter-server",
}


@dataclass(frozen=True)
class _Place:
    """GPUs on machines, one entry a row."""

    nodes: Floats
    gpus: Floats
    link_bytes_per_second: Floats
    hop_seconds: Floats
    staged: Truths
    across_sockets: Truths


@dataclass(frozen=True)
class Cases:
    """Rows of one model, strategy and width of gradients."""

    rows: tuple[PublishedRow, ...]
    published: PublishedStrategy
    strategy: Exchange
    buckets: Buckets
    variable_inputs: bool
    place: _Place
    anchor_place: _Place
    batch: Floats
    anchor_batch: Floats
    anchor_seconds: Floats
    fixed_seconds: Floats  # by the roofline
    wire_bytes_per_second: Floats
    flow_bytes_per_second: Floats
    tcp: Truths
    measured_seconds: Floats

    def predicted(self, tuning: Tuning) -> StepParts:
        """Every row from its anchor: one GPU's step, or, where the anchor has several GPUs, the compute
        that makes the model give the anchor's step."""
        tuning = self._tuned(tuning)
        compute = self.anchor_seconds
        if np.any(self.anchor_place.gpus > 1):
            for _ in range(_ANCHOR_ROUNDS):
                parts = self._parts(self.anchor_place, compute, tuning)
                compute = compute * self.anchor_seconds / parts.step_seconds
        fixed = np.minimum(self.fixed_seconds, MOST_FIXED * compute)
        compute = fixed + (compute - fixed) * self.batch / self.anchor_batch
        return self._parts(self.place, compute, tuning)

    def no_overlap_seconds(self, tuning: Tuning) -> Floats:
        """The formula p·Tcomp/(Tcomm+Tcomp): the anchor's step and all of the exchange after it."""
        compute = self.anchor_seconds * self.batch / self.anchor_batch
        parts = self._parts(self.place, compute, self._tuned(tuning))
        return compute + parts.communication_seconds

    @property
    def perfect_seconds(self) -> Floats:
        return self.anchor_seconds * self.batch / self.anchor_batch

    def _tuned(self, tuning: Tuning) -> Tuning:
        """Where the set-up says more than the constants do."""
        match self.published:
            case "ddp-after-backward":
                return replace(tuning, overlap_inside=0.0, overlap_between=0.0)
            case "ddp-synthetic":
                return replace(
                    tuning,
                    backward_share=SYNTHETIC_BACKWARD,
                    overlap_between=1.0,
                    slowdown=0.0,
                    slowdown_between=0.0,
                    tcp_host_bytes_per_second=np.inf,
                )
            case "ddp-cpu":
                return replace(
                    tuning,
                    overlap_between=c.GLOO_OVERLAP.value,
                    slowdown=0.0,
                    slowdown_between=0.0,
                    variation=c.CPU_VARIATION.value,
                )
            case _:
                return tuning

    def _parts(self, place: _Place, compute: Floats, tuning: Tuning) -> StepParts:
        endless, nothing = np.full_like(compute, np.inf), np.zeros_like(compute)
        between = between_rate(
            self.wire_bytes_per_second, self.tcp, self.flow_bytes_per_second, place.nodes, tuning
        )
        table = Configurations(
            nodes=place.nodes,
            gpus_per_node=place.gpus / place.nodes,
            inside_bytes_per_second=inside_rate(
                place.link_bytes_per_second, place.staged, place.across_sockets, tuning
            ),
            inside_latency_seconds=place.hop_seconds * tuning.hop_factor,
            between_bytes_per_second=between,
            between_latency_seconds=between_hop(self.tcp, place.nodes, tuning),
            batch_per_gpu=nothing,
            fixed_seconds=compute,
            seconds_per_sample=nothing,
            host_to_gpu_bytes_per_second=endless,
            storage_bytes_per_second=endless,
            host_overhead_seconds=nothing,
        )
        return step_parts(table, self._traffic(tuning))

    def _traffic(self, tuning: Tuning) -> Traffic:
        server = self.strategy in ("parameter-server", "distributed-replicated")
        overlap = (tuning.overlap_inside, tuning.overlap_between)
        if server:
            overlap = (tuning.overlap_parameter_server, tuning.overlap_parameter_server)
        variation = tuning.variation_variable if self.variable_inputs else tuning.variation
        return Traffic(
            strategy=self.strategy,
            buckets=self.buckets,
            input_bytes_per_sample=0.0,
            storage_bytes_per_sample=0.0,
            overlap=overlap[0],
            overlap_between=overlap[1],
            backward_share=tuning.backward_share,
            variation=0.0 if self.strategy == "none" else variation,
            slowdown=0.0 if self.strategy == "none" else tuning.slowdown,
            slowdown_between=tuning.slowdown_between if self.strategy == "ddp" else 0.0,
            launch_seconds=tuning.launch_seconds,
        )


def compiled(rows: Sequence[PublishedRow]) -> list[Cases]:
    """Rows that share a model, a strategy and a width of gradients become one table."""
    alike: dict[tuple[str, PublishedStrategy, int], list[PublishedRow]] = {}
    for row in rows:
        alike.setdefault((row.model, row.strategy, row.gradient_bits), []).append(row)
    return [_cases(*key, tuple(members)) for key, members in alike.items()]


def _cases(
    model: str, published: PublishedStrategy, bits: int, rows: tuple[PublishedRow, ...]
) -> Cases:
    strategy: Exchange
    match published:
        case "ddp-after-backward" | "ddp-synthetic" | "ddp-cpu":
            strategy = "ddp"
        case _:
            strategy = published

    def column(read: Callable[[PublishedRow], float]) -> Floats:
        return np.array([read(row) for row in rows], dtype=float)

    def wire(row: PublishedRow) -> float:
        network = row.machines.network
        return (network.rate or 0.0) * network.rails if network else np.inf

    def flow(row: PublishedRow) -> float:
        network = row.machines.network
        return network.per_flow if network and network.per_flow else np.inf

    packed = pack(published_profile(model), _BUCKETS_AS[strategy])
    return Cases(
        rows=rows,
        published=published,
        strategy=strategy,
        buckets=Buckets(packed.size_bytes * bits / 32, packed.ready_share),
        variable_inputs=model in VARIABLE_INPUTS,
        place=_place([(row, row.nodes, row.gpus) for row in rows]),
        anchor_place=_place([(row, row.anchor.nodes, row.anchor.gpus) for row in rows]),
        batch=column(lambda row: row.batch_per_gpu),
        anchor_batch=column(lambda row: row.anchor.batch_per_gpu),
        anchor_seconds=column(lambda row: row.anchor.step_seconds),
        fixed_seconds=column(lambda row: _fixed_seconds(model, row.machines.gpu, row.precision)),
        wire_bytes_per_second=column(wire),
        flow_bytes_per_second=column(flow),
        tcp=np.array(
            [(n := row.machines.network) is not None and n.protocol == "tcp" for row in rows]
        ),
        measured_seconds=column(lambda row: row.gpus * row.batch_per_gpu / row.samples_per_second),
    )


def _place(spots: Sequence[tuple[PublishedRow, int, int]]) -> _Place:
    rings = [
        _ring(row.machines.gpu, row.machines.topology, row.machines.peer_to_peer, -(-gpus // nodes))
        for row, nodes, gpus in spots
    ]
    return _Place(
        nodes=np.array([nodes for _, nodes, _ in spots], dtype=float),
        gpus=np.array([gpus for _, _, gpus in spots], dtype=float),
        link_bytes_per_second=np.array([ring[0] for ring in rings]),
        hop_seconds=np.array([ring[1] for ring in rings]),
        staged=np.array([ring[2] for ring in rings]),
        across_sockets=np.array([ring[3] for ring in rings]),
    )


@lru_cache(maxsize=1024)
def _ring(gpu: str, topology: Topology, peers: bool, count: int) -> tuple[float, float, bool, bool]:
    """Rate and hop of a ring through the first GPUs, whether it is staged, and across sockets."""
    if count == 1:
        return np.inf, 0.0, False, False
    fact = gpus().get(gpu)
    if (
        not peers
    ):  # then NVLink carries nothing either, and what is left is the PCIe of a usual host
        fact = fact.model_copy(update={"nvlink_generation": None, "nvlink_links": None})
        topology = "workstation" if count <= 4 else "dual-socket"
    ring = all_reduce(machine_graph(topology, fact, count), [f"GPU{i}" for i in range(count)])
    return (
        ring.wires_bytes_per_second,
        ring.latency_seconds,
        ring.staged or not peers,
        ring.kind == "socket",
    )


@lru_cache(maxsize=1024)
def _fixed_seconds(model: str, gpu: str, precision: Precision) -> float:
    if model not in models() or not gpu or gpus().get(gpu).peak_flops(precision) is None:
        return 0.0
    return roofline(models().get(model), gpus().get(gpu), precision).fixed_seconds
