"""The cheapest network that keeps a workload's efficiency above a target."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.catalog import ModelProfile
from gpuyard.catalog.fabric import Switch, switches
from gpuyard.errors import UserMistake
from gpuyard.facility.fabric import (
    FabricBill,
    FabricDesign,
    TypicalFloor,
    bill_of,
    direct_fabric,
    fabrics_on,
    proposed_for,
)
from gpuyard.hardware.clusters import machine_of
from gpuyard.predict import Prediction, predict_cluster
from gpuyard.predict.constants import fitted
from gpuyard.predict.transport import between_machines
from gpuyard.specs import Cluster, Network, Workload
from gpuyard.units import format_bit_rate, format_share, format_usd

_OVERSUBSCRIPTIONS = (1.0, 2.0, 4.0)
# less than this share of the fastest network's samples/s below it is as good as it
_NOTHING = 0.01


@dataclass(frozen=True)
class FabricCandidate:
    """A fabric, what it costs, and how the workload does on it."""

    design: FabricDesign
    bill: FabricBill
    prediction: Prediction

    @property
    def price_usd(self) -> float:
        return self.bill.total_usd or 0.0

    @property
    def efficiency(self) -> float:
        return self.prediction.scaling_efficiency


@dataclass(frozen=True)
class FabricChoice:
    """The cheapest that reaches the target, or the best where none does."""

    target_efficiency: float
    chosen: FabricCandidate
    reached: bool
    frontier: tuple[FabricCandidate, ...]  # from the cheapest on, each more efficient than the last
    tried: int
    enough: FabricCandidate  # the cheapest that is within 1 % of the fastest
    verdict: str


def exchange_bytes_per_second(design: FabricDesign) -> float:
    """What predictions use: the rate of one machine in an exchange over all of them."""
    fabric, _ = between_machines(design.network)
    return fabric.pipe(design.request.nodes, fitted()).bytes_per_second


def choose_fabric(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    target_efficiency: float,
    *,
    batch: int | None = None,
    floor: TypicalFloor | None = None,
) -> FabricChoice:
    """Try every switch of the catalog, with one port a GPU and fewer, and some oversubscription."""
    if cluster.nodes < 2:
        raise UserMistake(f"{cluster.name} is one machine: it needs no network between machines")
    _, machine = machine_of(cluster)
    known: dict[Network, Prediction] = {}
    candidates = []
    for design in _designs(cluster.nodes, machine.gpus, floor or TypicalFloor.of(cluster.nodes)):
        bill = bill_of(design)
        if bill.total_usd is None:
            continue
        network = design.network
        if network not in known:
            result = predict_cluster(
                workload,
                profile,
                cluster.model_copy(update={"network": network}),
                [cluster.nodes * machine.gpus],
                batches=[batch] if batch else (),
            )
            known[network] = result.predictions[0]
        candidates.append(FabricCandidate(design, bill, known[network]))
    frontier = _frontier(candidates)
    reaching = [c for c in frontier if c.efficiency >= target_efficiency]
    chosen = reaching[0] if reaching else frontier[-1]
    return FabricChoice(
        target_efficiency=target_efficiency,
        chosen=chosen,
        reached=bool(reaching),
        frontier=frontier,
        tried=len(candidates),
        enough=_enough(frontier),
        verdict=_verdict(chosen, _enough(frontier), target_efficiency, bool(reaching)),
    )


def _designs(nodes: int, gpus: int, floor: TypicalFloor) -> Iterator[FabricDesign]:
    sold = [switch for switch in switches() if not switch.discontinued]
    if nodes == 2:
        for switch in {switch.link: switch for switch in sold}.values():
            for ports in _ports(switch, gpus):
                yield direct_fabric(switch, ports, floor)
    for switch in sold:
        for ports in _ports(switch, gpus):
            if not proposed_for(switch, nodes * ports):
                continue
            for ratio in _OVERSUBSCRIPTIONS:
                try:
                    yield from fabrics_on(switch, nodes, ports, ratio, floor)
                except UserMistake:
                    continue  # too many ports for this switch
                if nodes * ports <= switch.ports:
                    break  # on one switch there is nothing to oversubscribe


def _ports(switch: Switch, gpus: int) -> list[int]:
    if switch.link == "ethernet-1g":
        return [1]
    return [ports for ports in (1, 2, 4, 8) if gpus % ports == 0]


def _frontier(candidates: list[FabricCandidate]) -> tuple[FabricCandidate, ...]:
    best: list[FabricCandidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.price_usd, -c.efficiency)):
        if not best or candidate.efficiency > best[-1].efficiency + 1e-9:
            best.append(candidate)
    return tuple(best)


def describe(candidate: FabricCandidate) -> str:
    """A network in words: 2 × 200 Gbit/s per machine on nvidia-qm8700."""
    design = candidate.design
    rate = format_bit_rate(design.switch.port_bytes_per_second)
    over = design.oversubscription
    ratio = f", {over:.3g}:1 oversubscribed" if over > 1 else ""
    ports = f"{design.request.ports_per_node} × {rate} per machine"
    if design.request.direct:
        return f"{ports}, cabled to each other"
    return f"{ports} on {design.switch.id}{ratio}"


def _enough(frontier: tuple[FabricCandidate, ...]) -> FabricCandidate:
    """The cheapest that is as good as the fastest."""
    least = (1 - _NOTHING) * frontier[-1].prediction.samples_per_second
    return next(c for c in frontier if c.prediction.samples_per_second >= least)


def _verdict(chosen: FabricCandidate, enough: FabricCandidate, target: float, reached: bool) -> str:
    if not reached:
        waits = chosen.prediction.choke
        why = "" if waits in ("none", "network") else f"; it waits for the {waits}, not the network"
        return (
            f"No network of the catalog keeps {format_share(target)}: the best, "
            f"{describe(chosen)}, gives {format_share(chosen.efficiency)}{why}."
        )
    first = (
        f"{describe(chosen)} is the cheapest that keeps {format_share(target)}: "
        f"{format_share(chosen.efficiency)} for about {format_usd(chosen.price_usd)}."
    )
    if enough.price_usd <= chosen.price_usd:
        return f"{first} A faster network buys nothing."
    gain = enough.prediction.samples_per_second / chosen.prediction.samples_per_second - 1
    more = enough.price_usd - chosen.price_usd
    return (
        f"{first} {describe(enough)} brings {100 * gain:.1f} % more samples/s for about "
        f"{format_usd(more)} more; beyond it a faster network buys nothing."
    )
