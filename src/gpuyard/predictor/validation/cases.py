"""Published rows in the form of the vectorized core.

Once compiled, they can be predicted with any constants, as a fit needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gpuyard.catalog import ModelProfile, gpus, models
from gpuyard.catalog.published import VARIABLE_INPUTS, published_profile
from gpuyard.catalog.published_rows import PublishedRow, PublishedStrategy
from gpuyard.hardware import build_preset, estimate_all_reduce
from gpuyard.predictor import constants as c
from gpuyard.predictor.compute import MAX_FIXED, ComputeLines, roofline
from gpuyard.predictor.constants import Tuning
from gpuyard.predictor.platform import Fleet
from gpuyard.predictor.scenario import Scenario
from gpuyard.predictor.software_stacks.posterior import step_seconds_by_stack
from gpuyard.predictor.strategies import STRATEGIES, Strategy
from gpuyard.predictor.table import (
    Floats,
    HardwareRates,
    StepParts,
    StepTable,
    compute_step_parts,
)
from gpuyard.predictor.transport import Networks, inside_rate
from gpuyard.specs import ExchangeOptions, Precision, Topology, Workload

_ANCHOR_ITERATIONS = 4
# A synthetic GPU sleeps during the last two thirds of its step while its gradients are sent. Nothing slows a sleep
# down, and it leaves the host's cores to the network.
SYNTHETIC_BACKWARD = 2 / 3
_TUNING_OVERRIDES: dict[PublishedStrategy, dict[str, float]] = {
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
"""DDP setups whose published description replaces some constants."""


@dataclass(frozen=True)
class _Machines:
    """The machines of published rows, one entry per row."""

    nodes: Floats
    gpus: Floats
    link_bytes_per_second: Floats
    hop_seconds: Floats
    memory_bytes_per_second: Floats  # of a host that stages the exchange, otherwise infinite
    switch_gain: Floats

    def create_fleet(self, networks: Networks, tuning: Tuning) -> Fleet:
        inside = inside_rate(self.link_bytes_per_second, self.memory_bytes_per_second, tuning)
        hop = self.hop_seconds * tuning.hop_factor
        rates = HardwareRates(
            inside,
            hop,
            *networks.exchange_rates(self.nodes, tuning),
            switch_gain=self.switch_gain,
            trees=(self.switch_gain > 1) & ~networks.tcp,
        )
        return Fleet(self.nodes, self.gpus / self.nodes, rates)


@dataclass(frozen=True)
class Cases:
    """Rows with the same model, strategy, and gradient format."""

    rows: tuple[PublishedRow, ...]
    workload: Workload
    profile: ModelProfile
    strategy: Strategy
    exchange: ExchangeOptions
    tuning_overrides: dict[str, float]
    variable_inputs: bool
    machines: _Machines
    anchor_machines: _Machines
    networks: Networks
    batch: Floats
    anchor_batch: Floats
    anchor_seconds: Floats
    accumulate: Floats
    anchor_accumulate: Floats
    fixed_seconds: Floats  # roofline estimate
    measured_seconds: Floats

    def predict(self, tuning: Tuning) -> StepParts:
        """Predict every row from its anchor."""
        compute = self._compute_seconds(tuning)
        return compute_step_parts(
            self._build_table(self.machines, compute, tuning, self.accumulate)
        )

    def log_seconds_by_stack(self, tuning: Tuning) -> Floats:
        """Return the log step times, one row per software stack of the grid.

        An anchor with several GPUs ran under the same stack, so only the difference between row and anchor counts.
        """
        compute = self._compute_seconds(tuning)
        table = self._build_table(self.machines, compute, tuning, self.accumulate)
        log_seconds = np.log(step_seconds_by_stack(table))
        if not np.any(self.anchor_machines.gpus > 1):
            return log_seconds
        anchor_compute = compute * self.anchor_batch / self.batch
        table = self._build_table(
            self.anchor_machines, anchor_compute, tuning, self.anchor_accumulate
        )
        usual = np.log(compute_step_parts(table).step_seconds)
        anchor_difference = np.log(step_seconds_by_stack(table)) - usual
        return log_seconds - np.where(self.anchor_machines.gpus > 1, anchor_difference, 0)

    def _compute_seconds(self, tuning: Tuning) -> Floats:
        """Return one GPU's step at each row's batch.

        If the anchor has several GPUs, it is the compute time for which the model gives the anchor's step.
        """
        compute = self.anchor_seconds
        if np.any(self.anchor_machines.gpus > 1):
            for _ in range(_ANCHOR_ITERATIONS):
                table = self._build_table(
                    self.anchor_machines, compute, tuning, self.anchor_accumulate
                )
                compute = compute * self.anchor_seconds / compute_step_parts(table).step_seconds
        fixed = np.minimum(self.fixed_seconds, MAX_FIXED * compute)
        return fixed + (compute - fixed) * self.batch / self.anchor_batch

    def no_overlap_seconds(self, tuning: Tuning) -> Floats:
        """Apply the formula p·Tcomp/(Tcomm+Tcomp): the anchor's step followed by the whole exchange."""
        compute = self.perfect_seconds
        parts = compute_step_parts(
            self._build_table(self.machines, compute, tuning, self.accumulate)
        )
        return compute + parts.communication_seconds / self.accumulate

    @property
    def perfect_seconds(self) -> Floats:
        return self.anchor_seconds * self.batch / self.anchor_batch

    def _build_table(
        self, machines: _Machines, compute: Floats, tuning: Tuning, accumulate: Floats
    ) -> StepTable:
        tuning = replace(tuning, **self.tuning_overrides)
        zero = np.zeros_like(compute)
        fleet = machines.create_fleet(self.networks, tuning)
        scenario = Scenario(
            self.workload,
            self.profile,
            fleet,
            ComputeLines(compute, zero),
            self.strategy,
            self.exchange,
            variation=c.variation(
                tuning.variation_variable if self.variable_inputs else tuning.variation
            ),
            tuning=tuning,
        )
        table = scenario.build_table(fleet.select_rows(np.arange(len(compute)), zero))
        return replace(table, accumulate=accumulate)


def compile_cases(rows: Sequence[PublishedRow]) -> list[Cases]:
    """Group rows with the same model, strategy, and gradient format into tables."""
    groups: dict[tuple[str, PublishedStrategy, int], list[PublishedRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.strategy, row.gradient_bits), []).append(row)
    return [_compile_group(*key, tuple(members)) for key, members in groups.items()]


def _compile_group(
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
        strategy=STRATEGIES["ddp" if published in _TUNING_OVERRIDES else published],
        exchange=ExchangeOptions(compress=None if bits == 32 else f"fp{bits}"),
        tuning_overrides=_TUNING_OVERRIDES.get(published, {}),
        variable_inputs=model in VARIABLE_INPUTS,
        machines=_compile_machines([(row, row.nodes, row.gpus) for row in rows]),
        anchor_machines=_compile_machines(
            [(row, row.anchor.nodes, row.anchor.gpus) for row in rows]
        ),
        networks=Networks(
            column(wire),
            column(flow),
            np.full(len(rows), np.nan),
            np.array(
                [(n := row.machines.network) is not None and n.protocol == "tcp" for row in rows]
            ),
            column(lambda row: row.machines.network.rails if row.machines.network else 1),
        ),
        batch=column(lambda row: row.batch_per_gpu),
        anchor_batch=column(lambda row: row.anchor.batch_per_gpu),
        anchor_seconds=column(lambda row: row.anchor.step_seconds),
        accumulate=column(lambda row: row.accumulate),
        anchor_accumulate=column(lambda row: row.anchor.accumulate),
        fixed_seconds=column(lambda row: _fixed_seconds(model, row.machines.gpu, row.precision)),
        measured_seconds=column(lambda row: row.gpus * row.batch_per_gpu / row.samples_per_second),
    )


def _compile_machines(rows: Sequence[tuple[PublishedRow, int, int]]) -> _Machines:
    rings = [
        _ring(row.machines.gpu, row.machines.topology, row.machines.peer_to_peer, -(-gpus // nodes))
        for row, nodes, gpus in rows
    ]
    return _Machines(
        nodes=np.array([nodes for _, nodes, _ in rows], dtype=float),
        gpus=np.array([gpus for _, _, gpus in rows], dtype=float),
        link_bytes_per_second=np.array([ring[0] for ring in rings]),
        hop_seconds=np.array([ring[1] for ring in rings]),
        memory_bytes_per_second=np.array([ring[2] for ring in rings]),
        switch_gain=np.array([ring[3] for ring in rings]),
    )


@lru_cache(maxsize=1024)
def _ring(
    gpu: str, topology: Topology, peers: bool, count: int
) -> tuple[float, float, float, float]:
    """Return rate, hop latency, rate of the host memory that stages it, and switch gain of the first GPUs' all-reduce."""
    if count == 1:
        return np.inf, 0.0, np.inf, 1.0
    entry = gpus().get(gpu)
    if not peers:  # NVLink is unused too, and only the PCIe of a usual host remains
        entry = entry.model_copy(update={"pcie_peer_to_peer": False})
        topology = "workstation" if count <= 4 else "dual-socket"
    ring = estimate_all_reduce(
        build_preset(topology, entry, count), [f"GPU{i}" for i in range(count)]
    )
    memory = ring.memory_bytes_per_second
    return ring.bytes_per_second, ring.latency_seconds, memory, ring.switch_gain


@lru_cache(maxsize=1024)
def _fixed_seconds(model: str, gpu: str, precision: Precision) -> float:
    if model not in models() or not gpu or gpus().get(gpu).peak_flops(precision) is None:
        return 0.0
    return roofline(models().get(model), gpus().get(gpu), precision).fixed_seconds
