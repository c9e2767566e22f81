"""Find the cheapest network that keeps a workload's scaling efficiency above a target."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.catalog import ModelProfile
from gpuyard.catalog.fabric import Switch, switches
from gpuyard.errors import UserMistake
from gpuyard.facilities.fabric import (
    FabricBill,
    FabricDesign,
    TypicalFloor,
    design_direct_fabric,
    design_fabrics,
    is_suitable_switch,
)
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor import Prediction, predict_cluster
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.transport import create_fabric
from gpuyard.specs import Cluster, Network, Workload
from gpuyard.units import format_bit_rate, format_share, format_usd

_OVERSUBSCRIPTIONS = (1.0, 2.0, 4.0)
_NEGLIGIBLE_LOSS = 0.01  # of the samples per second on the fastest network


@dataclass(frozen=True)
class FabricCandidate:
    """A fabric with its price and the prediction of the workload on it."""

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
    """The cheapest fabric that reaches the target, or the most efficient one if none does."""

    target_efficiency: float
    chosen: FabricCandidate
    reached: bool
    frontier: tuple[FabricCandidate, ...]  # cheapest first, each more efficient than the one before
    tried: int
    enough: FabricCandidate  # the cheapest within 1% of the fastest
    verdict: str


def exchange_bytes_per_second(design: FabricDesign) -> float:
    """Return the rate of one machine in an exchange over all machines, as used in predictions."""
    fabric, _ = create_fabric(design.network)
    return fabric.pipe(design.request.nodes, load_tuning()).bytes_per_second


def choose_fabric(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    target_efficiency: float,
    *,
    batch: int | None = None,
    floor: TypicalFloor | None = None,
) -> FabricChoice:
    """Try every switch in the catalog with one or fewer ports per GPU and several oversubscription ratios."""
    if cluster.nodes < 2:
        raise UserMistake(
            f"{cluster.name} is one machine, which needs no network; use a cluster of two or more"
        )
    _, machine = resolve_machine(cluster)
    predictions: dict[Network, Prediction] = {}
    candidates = []
    for design in _list_designs(
        cluster.nodes, machine.gpus, floor or TypicalFloor.from_node_count(cluster.nodes)
    ):
        bill = design.bill
        if bill.total_usd is None:
            continue
        network = design.network
        if network not in predictions:
            result = predict_cluster(
                workload,
                profile,
                cluster.model_copy(update={"network": network}),
                [cluster.nodes * machine.gpus],
                batches=[batch] if batch else (),
            )
            predictions[network] = result.predictions[0]
        candidates.append(FabricCandidate(design, bill, predictions[network]))
    frontier = _find_frontier(candidates)
    reaching = [c for c in frontier if c.efficiency >= target_efficiency]
    chosen = reaching[0] if reaching else frontier[-1]
    enough = _find_sufficient(frontier)
    return FabricChoice(
        target_efficiency=target_efficiency,
        chosen=chosen,
        reached=bool(reaching),
        frontier=frontier,
        tried=len(candidates),
        enough=enough,
        verdict=_format_verdict(chosen, enough, target_efficiency, bool(reaching)),
    )


def _list_designs(nodes: int, gpus: int, floor: TypicalFloor) -> Iterator[FabricDesign]:
    available = [switch for switch in switches() if not switch.discontinued]
    if nodes == 2:
        for switch in {switch.link: switch for switch in available}.values():
            for ports in _list_port_counts(switch, gpus):
                yield design_direct_fabric(switch, ports, floor)
    for switch in available:
        for ports in _list_port_counts(switch, gpus):
            if not is_suitable_switch(switch, nodes * ports):
                continue
            for ratio in _OVERSUBSCRIPTIONS:
                try:
                    yield from design_fabrics(switch, nodes, ports, ratio, floor)
                except UserMistake:
                    continue  # too many ports for this switch
                if nodes * ports <= switch.ports:
                    break  # a single switch has no uplinks to oversubscribe


def _list_port_counts(switch: Switch, gpus: int) -> list[int]:
    if switch.link == "ethernet-1g":
        return [1]
    return [ports for ports in (1, 2, 4, 8) if gpus % ports == 0]


def _find_frontier(candidates: list[FabricCandidate]) -> tuple[FabricCandidate, ...]:
    best: list[FabricCandidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.price_usd, -c.efficiency)):
        if not best or candidate.efficiency > best[-1].efficiency + 1e-9:
            best.append(candidate)
    return tuple(best)


def describe_fabric(candidate: FabricCandidate) -> str:
    """Describe a network as in "2 × 200 Gbit/s per machine on nvidia-qm8700"."""
    design = candidate.design
    rate = format_bit_rate(design.switch.port_bytes_per_second)
    over = design.oversubscription
    ratio = f", {over:.3g}:1 oversubscribed" if over > 1 else ""
    ports = f"{design.request.ports_per_node} × {rate} per machine"
    if design.request.direct:
        return f"{ports}, cabled directly"
    return f"{ports} on {design.switch.id}{ratio}"


def _find_sufficient(frontier: tuple[FabricCandidate, ...]) -> FabricCandidate:
    """Return the cheapest fabric that is practically as fast as the fastest."""
    minimum = (1 - _NEGLIGIBLE_LOSS) * frontier[-1].prediction.samples_per_second
    return next(c for c in frontier if c.prediction.samples_per_second >= minimum)


def _format_verdict(
    chosen: FabricCandidate, enough: FabricCandidate, target: float, reached: bool
) -> str:
    if not reached:
        choke = chosen.prediction.choke
        why = "" if choke in ("none", "network") else f"; the choke is the {choke}, not the network"
        return (
            f"No network in the catalog keeps {format_share(target)}: the best, "
            f"{describe_fabric(chosen)}, reaches {format_share(chosen.efficiency)}{why}."
        )
    first = (
        f"{describe_fabric(chosen)} is the cheapest that keeps {format_share(target)}: "
        f"{format_share(chosen.efficiency)} for about {format_usd(chosen.price_usd)}."
    )
    if enough.price_usd <= chosen.price_usd:
        return f"{first} A faster network gains nothing."
    gain = enough.prediction.samples_per_second / chosen.prediction.samples_per_second - 1
    extra_usd = enough.price_usd - chosen.price_usd
    return (
        f"{first} {describe_fabric(enough)} gains {100 * gain:.1f}% more samples/s for about "
        f"{format_usd(extra_usd)} more; beyond it a faster network gains nothing."
    )
