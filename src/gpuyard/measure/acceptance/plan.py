"""The plan of an acceptance run: its phases, their sizes, and how long they take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.measure.acceptance.expected import ClusterPromise, choose_workload, read_promise
from gpuyard.measure.acceptance.pairs import plan_rounds
from gpuyard.measure.acceptance.records import PHASES, ClusterPrice, Phase
from gpuyard.measure.record import Testbed, discover_testbed, hash_key
from gpuyard.run.places import Place
from gpuyard.specs import Cluster, Workload
from gpuyard.table import Column, Table
from gpuyard.units import format_bytes, format_count, format_duration
from gpuyard.workloads.resolve import require_torch

START_SECONDS = 6.0
"""A guess of the time to start ranks."""
DEFAULT_SECONDS = 1800.0
_MESSAGE_SECONDS = 0.1
_MIN_MESSAGE_BYTES, _MAX_MESSAGE_BYTES = 64_000, 256_000_000
_UNKNOWN_RATE = 1.25e9  # 10 Gbit/s
_PAIR_REPEATS = 3
_GEMM_SECONDS = 1.0
_TRAINING_SECONDS = 5.0
_STORAGE_BYTES = 256_000_000


@dataclass(frozen=True)
class AcceptancePlan:
    """The measurements and the nodes that make them. All figures follow from the spec, the place, and the time."""

    place: Place
    promise: ClusterPromise
    phases: tuple[Phase, ...]
    seconds: float
    storage: str | None
    workload: Workload
    price: ClusterPrice | None
    testbed: Testbed
    key: str
    gemm_seconds: float = _GEMM_SECONDS
    storage_bytes: int = _STORAGE_BYTES
    training_seconds: float = _TRAINING_SECONDS
    pair_repeats: int = _PAIR_REPEATS

    @property
    def cluster(self) -> Cluster:
        return self.promise.cluster

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.place.nodes

    @property
    def used_cores(self) -> Sequence[int]:
        return self.place.host_cores

    @property
    def message_bytes(self) -> int:
        """The size of a message that takes a tenth of a second at the promised rate."""
        rate = (self.promise.link_bytes_per_second or _UNKNOWN_RATE) / self.place.dilation
        size = min(_MAX_MESSAGE_BYTES, max(_MIN_MESSAGE_BYTES, rate * _MESSAGE_SECONDS))
        return int(size) // 4 * 4

    @property
    def all_reduce_bytes(self) -> int:
        return 2 * self.message_bytes

    def estimate_seconds(self, phase: Phase) -> float:
        """Guess how long a phase takes; nodes of a lab run one after the other."""
        count, in_turn = len(self.nodes), self.place.on_this_machine
        pairs = sum(map(len, plan_rounds(count)))
        steps = pairs if in_turn else math.ceil(math.log2(max(2, count))) * 2
        message_seconds = 2 * (1 + self.pair_repeats) * _MESSAGE_SECONDS
        match phase:
            case "inventory":
                return START_SECONDS
            case "alone":
                return (count if in_turn else 1) * (3 * self.gemm_seconds + START_SECONDS / 3)
            case "pairs":
                return START_SECONDS + steps * message_seconds
            case "all":
                return START_SECONDS + 4.0
            case "training":
                return START_SECONDS + 3 * self.training_seconds

    def describe(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster.model_dump(mode="json"),
            "place": self.place.record(len(self.nodes)).model_dump(mode="json"),
            "nodes": list(self.nodes),
            "phases": [
                {"phase": phase, "task": self._describe_phase(phase),
                 "estimated_seconds": self.estimate_seconds(phase)}
                for phase in self.phases
            ],
            "rounds": [[list(pair) for pair in pairs] for pairs in plan_rounds(len(self.nodes))],
            "message_bytes": self.message_bytes,
            "expected_link_bytes_per_second": self.promise.link_bytes_per_second,
            "workload": self.workload.name,
            "price": None if self.price is None else self.price.model_dump(mode="json"),
            "seconds": self.seconds,
            "key": self.key,
        }  # fmt: skip

    def build_table(self) -> Table:
        total = sum(map(self.estimate_seconds, self.phases))
        return Table(
            f"{self.cluster.name}: acceptance of {format_count(len(self.nodes), 'node')}, about "
            f"{format_duration(total)} of at most {format_duration(self.seconds)}",
            ["phase", "task", Column("about", 1)],
            [
                [phase, self._describe_phase(phase), format_duration(self.estimate_seconds(phase))]
                for phase in self.phases
            ],
        )

    def _describe_phase(self, phase: Phase) -> str:
        rounds = plan_rounds(len(self.nodes))
        storage = f", and storage in {self.storage}" if self.storage is not None else ""
        match phase:
            case "inventory":
                return "read the parts of every node"
            case "alone":
                return f"time matrix products, memory, and GPUs on each node{storage}"
            case "pairs":
                return (
                    f"send {format_bytes(self.message_bytes)} both ways in "
                    f"{sum(map(len, rounds))} pairs, {format_count(len(rounds), 'round')}"
                )
            case "all":
                return f"all-reduce {format_bytes(self.all_reduce_bytes)} over all nodes"
            case "training":
                return f"train {self.workload.name} on all nodes"


def plan_acceptance(
    cluster: Cluster,
    place: Place,
    *,
    seconds: float = DEFAULT_SECONDS,
    phases: Sequence[str] = PHASES,
    storage: str | None = None,
    price: ClusterPrice | None = None,
) -> AcceptancePlan:
    """Plan an acceptance run, and check everything that can be checked before a process starts."""
    require_torch()
    for phase in phases:
        if phase not in PHASES:
            raise UnknownName("phase", phase, PHASES)
    if not 0 < seconds < math.inf:
        raise UserMistake(f"expected a time above 0, got {seconds} s")
    promise = read_promise(cluster)
    testbed = discover_testbed()
    chosen = tuple(phase for phase in PHASES if phase in phases or phase == "inventory")
    if len(place.nodes) == 1:
        chosen = tuple(phase for phase in chosen if phase in ("inventory", "alone"))
    key = hash_key(
        {
            "kind": "acceptance",
            "cluster": cluster.model_dump(mode="json"),
            "place": place.identity(),
            "phases": chosen,
            "storage": storage,
            "gpuyard": testbed.gpuyard,
        }
    )
    return AcceptancePlan(
        place=place,
        promise=promise,
        phases=chosen,
        seconds=seconds,
        storage=storage,
        workload=choose_workload(promise),
        price=price,
        testbed=testbed,
        key=key,
    )
