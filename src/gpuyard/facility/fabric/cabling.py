"""The cables of a fabric: how long each is on the floor, of which kind, and what it costs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low
from typing import Literal

from gpuyard.catalog import Cable, cables
from gpuyard.errors import UserMistake
from gpuyard.facility.fabric.floor import Floor
from gpuyard.facility.fabric.wiring import Wiring

Tier = Literal["node", "leaf", "spine", "core"]


@dataclass(frozen=True)
class CableRun:
    """Cables that are alike: between which tiers, of which kind and length, how many."""

    from_tier: Tier
    to_tier: Tier
    cable: str
    kind: str
    length_m: float
    count: int
    watts: float
    price_usd: float

    @property
    def total_usd(self) -> float:
        return self.count * self.price_usd


@dataclass(frozen=True)
class SwitchRacks:
    """The rack that each switch stands in: a leaf amid its machines, the upper tiers in the middle."""

    leaves: tuple[int, ...]
    spines: tuple[int, ...]
    cores: tuple[int, ...]


def place_switches(wiring: Wiring, floor: Floor) -> SwitchRacks:
    """Where cables come out short."""
    below: dict[int, list[int]] = {leaf: [] for leaf in range(wiring.shape.leaves)}
    for node, _, leaf in wiring.endpoints:
        below[leaf].append(floor.rack_of(node))
    middle = floor.rack_of(wiring.demand.nodes - 1) // 2
    # a leaf without machines is a spare: it stands in the middle
    leaves = tuple(median_low(racks) if racks else middle for racks in below.values())
    shape = wiring.shape
    if shape.tiers == 3:
        of_pod = [
            median_low(leaves[pod * shape.leaves_per_pod : (pod + 1) * shape.leaves_per_pod])
            for pod in range(shape.pods)
        ]
        spines = tuple(of_pod[spine // shape.spines_per_pod] for spine in range(shape.spines))
    else:
        spines = (middle,) * shape.spines
    return SwitchRacks(leaves, spines, (middle,) * shape.cores)


def lay_cables(
    wiring: Wiring, floor: Floor, port_gbit: float, uplink_gbit: float
) -> tuple[CableRun, ...]:
    """All cables, those that are alike together."""
    racks = place_switches(wiring, floor)
    down = Counter((floor.rack_of(node), racks.leaves[leaf]) for node, _, leaf in wiring.endpoints)
    up: Counter[tuple[int, int]] = Counter()
    for bundle in wiring.leaf_spine():
        up[racks.leaves[bundle.lower], racks.spines[bundle.upper]] += bundle.links
    top: Counter[tuple[int, int]] = Counter()
    for bundle in wiring.spine_core():
        top[racks.spines[bundle.lower], racks.cores[bundle.upper]] += bundle.links
    return (
        *_runs("node", "leaf", _lengths(floor, down), port_gbit),
        *_runs("leaf", "spine", _lengths(floor, up), uplink_gbit),
        *_runs("spine", "core", _lengths(floor, top), uplink_gbit),
    )


def _lengths(floor: Floor, between: Counter[tuple[int, int]]) -> Counter[float]:
    lengths: Counter[float] = Counter()
    for (rack, other), count in between.items():
        lengths[floor.length_m(rack, other)] += count
    return lengths


def _runs(lower: Tier, upper: Tier, lengths: Counter[float], gbit: float) -> Iterable[CableRun]:
    sold: Counter[tuple[str, float]] = Counter()
    for needed_m, count in lengths.items():
        cable = choose_cable(gbit, needed_m)
        sold[cable.id, cable.sold_length_m(needed_m)] += count
    for (name, length_m), count in sorted(sold.items(), key=lambda item: item[0][1]):
        cable = cables().get(name)
        cost = cable.cost_usd(length_m)
        yield CableRun(lower, upper, name, cable.kind, length_m, count, cable.watts, round(cost, 2))


def choose_cable(gbit_per_second: float, needed_m: float) -> Cable:
    """The cheapest cable that is long enough: copper while it reaches, then light."""
    of_rate = [cable for cable in cables() if cable.gbit_per_second == gbit_per_second]
    reaching = [cable for cable in of_rate if cable.reach_m >= needed_m]
    if not reaching:
        longest = max((cable.reach_m for cable in of_rate), default=0.0)
        raise UserMistake(
            f"a cable of {needed_m:.0f} m at {gbit_per_second:g} Gbit/s is needed and the longest in the "
            f"catalog is {longest:g} m: put more machines in a rack, or more racks in a row"
        )
    return min(reaching, key=lambda cable: cable.cost_usd(cable.sold_length_m(needed_m)))
