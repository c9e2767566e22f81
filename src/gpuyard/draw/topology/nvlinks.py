"""NVLinks added up as a drawing shows them: all links of a GPU to its NVSwitches as one bundle."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuyard.hardware.graph import MachineGraph, Wire


@dataclass(frozen=True)
class Bundle:
    """Links that run side by side, and their rate together."""

    links: int
    bytes_per_second: float
    generation: int | None

    @property
    def name(self) -> str:
        return f"NV{self.links}"


def bundle(wires: Iterable[Wire]) -> Bundle:
    found = list(wires)
    return Bundle(
        sum(wire.width for wire in found),
        sum(wire.bytes_per_second for wire in found),
        found[0].generation,
    )


def switched_bundles(graph: MachineGraph) -> dict[str, Bundle]:
    """GPU → its links to all NVSwitches; GPUs without any are left out."""
    switches = {switch.id for switch in graph.of_kind("nvswitch")}
    wires: dict[str, list[Wire]] = {gpu: [] for gpu in graph.gpus}
    for wire in graph.wires:
        if wire.kind == "nvlink":
            for gpu in (wire.a, wire.b):
                if gpu in wires and wire.other(gpu) in switches:
                    wires[gpu].append(wire)
    return {gpu: bundle(found) for gpu, found in wires.items() if found}


def direct_bundles(graph: MachineGraph) -> dict[frozenset[str], Bundle]:
    """Pair of GPUs → the links between them."""
    gpus = set(graph.gpus)
    wires: dict[frozenset[str], list[Wire]] = {}
    for wire in graph.wires:
        if wire.kind == "nvlink" and {wire.a, wire.b} <= gpus:
            wires.setdefault(frozenset((wire.a, wire.b)), []).append(wire)
    return {pair: bundle(found) for pair, found in wires.items()}


def host_wires(graph: MachineGraph) -> list[Wire]:
    """NVLink between a GPU and its host, as POWER9 and Grace have it."""
    return [
        wire
        for wire in graph.wires
        if wire.kind == "nvlink"
        and not {graph.device(end).kind for end in (wire.a, wire.b)} <= {"gpu", "nvswitch"}
    ]
