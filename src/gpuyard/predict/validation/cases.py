"""Published rows as the vectorised core takes them: once compiled, they can be predicted with any
constants, which is what a fit needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gpuyard.catalog import ModelProfile, gpus, models
from gpuyard.catalog.published import VARIABLE_INPUTS, published_profile
from gpuyard.catalog.published_rows import PublishedRow, PublishedStrategy
from gpuyard.hardware import all_reduce, build_preset
from gpuyard.predict import constants as c
from gpuyard.predict.compute import MOST_FIXED, ComputeLines, roofline
from gpuyard.predict.constants import Tuning
from gpuyard.predict.platform import Fleet
from gpuyard.predict.scenario import Scenario
from gpuyard.predict.stacks.posterior import step_seconds
from gpuyard.predict.strategies import STRATEGIES, Strategy
from gpuyard.predict.table import Floats, HardwareRates, StepParts, StepTable, Truths, step_parts
from gpuyard.predict.transport import Networks, inside_rate
from gpuyard.specs import ExchangeOptions, Precision, Topology, Workload

_ANCHOR_ROUNDS = 4
# a synthetic GPU sleeps for the last two thirds of its step while its gradients go out. Nothing
# disturbs a sleep, and it leaves the host's cores to the network
SYNTHETIC_BACKWARD = 2 / 3
_SAYS_MORE: dict[PublishedStrategy, dict[str, float]] = {
    "ddp-after-backward": {"overlap_inside": 0.0, "overlap_between": 0.0},
    "ddp-synthetic": {
        "backward_share": SYNTHETIC_BACKWARD,
        "overlap_between": 1.0,
        "slowdown": 0.0,
        "slowdown_between": 0.0,
        "tcp_host_bytes_per_second": np.inf,
    },
    "ddp-cpu": {
        "overlap_between": c.GLOO_OVERLAP.value,
        "slowdown": 0.0,
        "slowdown_between": 0.0,
        "variation": c.CPU_VARIATION.value,
    },
}
"""Set-ups of DDP that say more than the constants do."""


@dataclass(frozen=True)
class _Spots:
    """GPUs on machines, one entry a row."""

    nodes: Floats
    gpus: Floats
    link_bytes_per_second: Floats
    hop_seconds: Floats
    staged: Truths
    across_sockets: Truths

    def fleet(self, networks: Networks, tuning: Tuning) -> Fleet:
        inside = inside_rate(self.link_bytes_per_second, self.staged, self.across_sockets, tuning)
        hop = self.hop_seconds * tuning.hop_factor
        links = HardwareRates(inside, hop, *networks.between(self.nodes, tuning))
        return Fleet(self.nodes, self.gpus / self.nodes, links)


@dataclass(frozen=True)
class Cases:
    """Rows of one model, strategy and width of gradients."""

    rows: tuple[PublishedRow, ...]
    workload: Workload
    profile: ModelProfile
    strategy: Strategy
    exchange: ExchangeOptions
    says_more: dict[str, float]  # in place of constants
    variable_inputs: bool
    spots: _Spots
    anchor_spots: _Spots
    networks: Networks
    batch: Floats
    anchor_batch: Floats
    anchor_seconds: Floats
    accumulate: Floats
    anchor_accumulate: Floats
    fixed_seconds: Floats  # by the roofline
    measured_seconds: Floats

    def predicted(self, tuning: Tuning) -> StepParts:
        """Every row from its anchor."""
        return step_parts(self._table(self.spots, self._compute(tuning), tuning, self.accumulate))

    def by_stack(self, tuning: Tuning) -> Floats:
        """Logarithms of seconds by every software stack of the grid (down). An anchor of several GPUs ran under
        the same stack, so that only what a row differs from it counts."""
        compute = self._compute(tuning)
        found = np.log(step_seconds(self._table(self.spots, compute, tuning, self.accumulate)))
        if not np.any(self.anchor_spots.gpus > 1):
            return found
        of_anchor = compute * self.anchor_batch / self.batch
        table = self._table(self.anchor_spots, of_anchor, tuning, self.anchor_accumulate)
        usual = np.log(step_parts(table).step_seconds)
        return found - np.where(self.anchor_spots.gpus > 1, np.log(step_seconds(table)) - usual, 0)

    def _compute(self, tuning: Tuning) -> Floats:
        """One GPU's step, or, where the anchor has several GPUs, the compute that makes the model give the
        anchor's step; at each row's batch."""
        compute = self.anchor_seconds
        if np.any(self.anchor_spots.gpus > 1):
            for _ in range(_ANCHOR_ROUNDS):
                table = self._table(self.anchor_spots, compute, tuning, self.anchor_accumulate)
                compute = compute * self.anchor_seconds / step_parts(table).step_seconds
        fixed = np.minimum(self.fixed_seconds, MOST_FIXED * compute)
        return fixed + (compute - fixed) * self.batch / self.anchor_batch

    def no_overlap_seconds(self, tuning: Tuning) -> Floats:
        """The formula p·Tcomp/(Tcomm+Tcomp): the anchor's step and all of the exchange after it."""
        compute = self.perfect_seconds
        parts = step_parts(self._table(self.spots, compute, tuning, self.accumulate))
        return compute + parts.communication_seconds / self.accumulate

    @property
    def perfect_seconds(self) -> Floats:
        return self.anchor_seconds * self.batch / self.anchor_batch

    def _table(
        self, spots: _Spots, compute: Floats, tuning: Tuning, accumulate: Floats
    ) -> StepTable:
        tuning = replace(tuning, **self.says_more)
        nothing = np.zeros_like(compute)
        fleet = spots.fleet(self.networks, tuning)
        scenario = Scenario(
            self.workload,
            self.profile,
            fleet,
            ComputeLines(compute, nothing),
            self.strategy,
            self.exchange,
            variation=c.variation(
                tuning.variation_variable if self.variable_inputs else tuning.variation
            ),
            tuning=tuning,
        )
        table = scenario.table(fleet.rows(np.arange(len(compute)), nothing))
        return replace(table, accumulate=accumulate)


def compiled(rows: Sequence[PublishedRow]) -> list[Cases]:
    """Rows that share a model, a strategy and a width of gradients become one table."""
    alike: dict[tuple[str, PublishedStrategy, int], list[PublishedRow]] = {}
    for row in rows:
        alike.setdefault((row.model, row.strategy, row.gradient_bits), []).append(row)
    return [_cases(*key, tuple(members)) for key, members in alike.items()]


def _cases(
    model: str, published: PublishedStrategy, bits: int, rows: tuple[PublishedRow, ...]
) -> Cases:
    def column(read: Callable[[PublishedRow], float]) -> Floats:
        return np.array([read(row) for row in rows], dtype=float)

    def wire(row: PublishedRow) -> float:
        network = row.machines.network
        return (network.rate or 0.0) * network.rails if network else np.inf

    def flow(row: PublishedRow) -> float:
        network = row.machines.network
        return network.per_flow * network.flows if network and network.per_flow else np.inf

    return Cases(
        rows=rows,
        workload=Workload(name=model, model=model),
        profile=published_profile(model),
        strategy=STRATEGIES["ddp" if published in _SAYS_MORE else published],
        exchange=ExchangeOptions(compress=None if bits == 32 else f"fp{bits}"),
        says_more=_SAYS_MORE.get(published, {}),
        variable_inputs=model in VARIABLE_INPUTS,
        spots=_spots([(row, row.nodes, row.gpus) for row in rows]),
        anchor_spots=_spots([(row, row.anchor.nodes, row.anchor.gpus) for row in rows]),
        networks=Networks(
            column(wire),
            column(flow),
            np.full(len(rows), np.nan),
            np.array(
                [(n := row.machines.network) is not None and n.protocol == "tcp" for row in rows]
            ),
        ),
        batch=column(lambda row: row.batch_per_gpu),
        anchor_batch=column(lambda row: row.anchor.batch_per_gpu),
        anchor_seconds=column(lambda row: row.anchor.step_seconds),
        accumulate=column(lambda row: row.accumulate),
        anchor_accumulate=column(lambda row: row.anchor.accumulate),
        fixed_seconds=column(lambda row: _fixed_seconds(model, row.machines.gpu, row.precision)),
        measured_seconds=column(lambda row: row.gpus * row.batch_per_gpu / row.samples_per_second),
    )


def _spots(found: Sequence[tuple[PublishedRow, int, int]]) -> _Spots:
    rings = [
        _ring(row.machines.gpu, row.machines.topology, row.machines.peer_to_peer, -(-gpus // nodes))
        for row, nodes, gpus in found
    ]
    return _Spots(
        nodes=np.array([nodes for _, nodes, _ in found], dtype=float),
        gpus=np.array([gpus for _, _, gpus in found], dtype=float),
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
        fact = fact.model_copy(update={"pcie_peer_to_peer": False})
        topology = "workstation" if count <= 4 else "dual-socket"
    ring = all_reduce(build_preset(topology, fact, count), [f"GPU{i}" for i in range(count)])
    return ring.bytes_per_second, ring.latency_seconds, ring.staged, ring.kind == "socket"


@lru_cache(maxsize=1024)
def _fixed_seconds(model: str, gpu: str, precision: Precision) -> float:
    if model not in models() or not gpu or gpus().get(gpu).peak_flops(precision) is None:
        return 0.0
    return roofline(models().get(model), gpus().get(gpu), precision).fixed_seconds
