"""From a cluster and a site to the whole room: racks, power, cords, cooling, network and what is missing."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gpuyard.errors import GpuyardError
from gpuyard.facility.device import Contents, RackDevice
from gpuyard.facility.housing import HousingCost, housing_terms
from gpuyard.facility.network.cables import NetworkCable, network_cables
from gpuyard.facility.network.room_network import RoomNetwork, network_for
from gpuyard.facility.power.cord_list import check_cords
from gpuyard.facility.power.pdu_choice import PduChoice, choose_pdus
from gpuyard.facility.power.rack_power import CannotPower, RackPower, power_rack
from gpuyard.facility.power.wall_power import WallPower
from gpuyard.facility.racks.floor_plan import RACK_WIDTH_M, ROW_PITCH_M
from gpuyard.facility.racks.packing import Limits, RackPacking, pack
from gpuyard.facility.racks.placing import Room, place
from gpuyard.facility.server import server_device
from gpuyard.facility.shortfalls import device_shortfalls, room_shortfalls
from gpuyard.facility.site_rules import SiteRules, default_site, rules_for
from gpuyard.specs import Cluster
from gpuyard.specs.site import Site

_TRIES = 12
_MOST_PROBED = 84
_ROWS_TRIED = 2  # more and fewer than make the floor square


@dataclass(frozen=True)
class FacilityDesign:
    """A room that works: every breaker, bank, outlet, rack and port within its limit, also after one
    feed has failed. `power` has one entry a rack."""

    cluster: Cluster
    rules: SiteRules
    site_given: bool
    server: RackDevice
    wall_power: WallPower
    pdu_choice: PduChoice
    packing: RackPacking
    room: Room
    power: tuple[RackPower, ...]
    network: RoomNetwork
    cables: tuple[NetworkCable, ...]

    @property
    def site(self) -> Site:
        return self.rules.site

    @property
    def peak_watts(self) -> float:
        return sum(placed.device.peak_watts for placed in self.room.placed)

    @property
    def typical_watts(self) -> float:
        return sum(placed.device.typical_watts for placed in self.room.placed)

    @property
    def housing_costs(self) -> tuple[HousingCost, ...]:
        """(colocation, on premises)."""
        peak_kw, typical_kw = self.peak_watts / 1000, self.typical_watts / 1000
        return tuple(HousingCost(terms, peak_kw, typical_kw) for terms in housing_terms(self.rules))

    @property
    def assumed(self) -> tuple[str, ...]:
        """What neither file said."""
        rows: tuple[str, ...] = ()
        if self.room.floor.per_row != self.rules.site.rack.per_row:
            rows = (f"rows of {self.room.floor.per_row} racks, which keep cables short",)
        return (*self.rules.assumed, *rows, *self.network.assumed)

    @property
    def on_desk(self) -> bool:
        """Towers stand beside a desk and take no rack; a switch between them stands on it."""
        return all(p.device.tower for p in self.room.placed if not p.device.is_switch)


def design_facility(
    cluster: Cluster, site: Site | None = None, priced_as: str | None = None
) -> FacilityDesign:
    """Raises GpuyardError with a sentence for each thing that the site lacks, and by how much."""
    server, wall_power = server_device(cluster)
    rules = rules_for(site or default_site(server, cluster.nodes), priced_as)
    server = replace(server, tower=server.tower and _on_the_floor(cluster, rules))
    _refuse(device_shortfalls(server, rules), rules)
    limits = _limits(rules, server)
    pdu_choice = choose_pdus(server, cluster.nodes, rules, limits)
    model = pdu_choice.model
    if model is not None and model.rack_units:
        limits = replace(limits, units=limits.units - model.rack_units * rules.site.feeds)
    network = network_for(
        cluster,
        pdu_choice.servers_per_rack,
        rules.site.rack.per_row,
        office=rules.site.kind == "office",
        redundant=rules.site.feeds == 2,
    )
    kinds = [(server, cluster.nodes), *network.devices]
    with _telling_what_was_assumed(network):
        for device, _ in network.devices:
            _refuse(device_shortfalls(device, rules), rules)
        packing, room, power = _powered(kinds, limits, pdu_choice, network, rules)
        cables = network_cables(network, room)
        _refuse(room_shortfalls(room, power, rules, _longest_m(cables)), rules)
    design = FacilityDesign(
        cluster=cluster,
        rules=rules,
        site_given=site is not None,
        server=server,
        wall_power=wall_power,
        pdu_choice=pdu_choice,
        packing=packing,
        room=room,
        power=power,
        network=network,
        cables=cables,
    )
    check_cords(design)
    return design


@contextmanager
def _telling_what_was_assumed(network: RoomNetwork) -> Iterator[None]:
    """What nobody asked for may be what does not fit."""
    try:
        yield
    except GpuyardError as refused:
        storage = network.storage_attachment
        if storage is not None and storage.servers_assumed:
            many = storage.servers > 1
            refused.args = (
                f"{refused}\n  this includes {storage.servers} storage server{'s' if many else ''} that"
                f" nobody asked for; 'storage: {{servers: 0}}' in the cluster file leaves {'them' if many else 'it'} out",
            )
        raise


def _on_the_floor(cluster: Cluster, rules: SiteRules) -> bool:
    """Outside of an office, several towers or one with servers beside it are put on the shelves of racks."""
    alone = cluster.nodes == 1 and not (cluster.storage and cluster.storage.servers)
    return alone or rules.site.kind == "office"


def _limits(rules: SiteRules, server: RackDevice) -> Limits:
    rack = rules.site.rack
    units = max(rack.units, server.rack_units) if server.tower else rack.units
    return Limits(units, rack.weight, rules.rack_watts)


def _refuse(sentences: Iterable[str], rules: SiteRules) -> None:
    found = list(sentences)
    if found:
        lines = "\n  ".join(found)
        raise GpuyardError(f"{rules.site.name} can't house this cluster:\n  {lines}")


def _powered(
    kinds: Sequence[tuple[RackDevice, int]],
    limits: Limits,
    pdu_choice: PduChoice,
    network: RoomNetwork,
    rules: SiteRules,
) -> tuple[RackPacking, Room, tuple[RackPower, ...]]:
    """Pack, place and power; where a mixed rack's cords don't fit, fewer go into each."""
    alone = [(device, _most_alone(device, limits, pdu_choice)) for device, _ in kinds]
    reason = ""
    tries = [
        replace(limits, most=tuple((device, max(count - fewer, 1)) for device, count in alone))
        for fewer in range(_TRIES)
    ]
    if kinds[0][0].tower:  # a small switch takes the free outlet beside a workstation
        tries.insert(0, limits)
    for bounded in tries:
        packing = pack(kinds, bounded)
        room = _within_reach(packing, bounded, network, rules)
        try:
            return packing, room, _power_all(room, pdu_choice)
        except CannotPower as cannot:
            reason = str(cannot)
    raise GpuyardError(f"{rules.site.name} can't power this cluster: {reason}")


def _within_reach(
    packing: RackPacking, limits: Limits, network: RoomNetwork, rules: SiteRules
) -> Room:
    """In the site's rows. Where it leaves their length open and a cable would be too long, in rows that
    make the longest cable shortest."""
    rack, limit_m = rules.site.rack, rules.site.cable_limit
    room = place(packing, limits, rack.per_row, network)
    if limit_m is None or "per_row" in rack.model_fields_set:
        return room
    if _longest_m(network_cables(network, room)) <= limit_m:
        return room
    square = max(1, round((room.floor.racks * RACK_WIDTH_M / ROW_PITCH_M) ** 0.5))
    counts = range(max(1, square - _ROWS_TRIED), square + _ROWS_TRIED + 1)
    lengths = dict.fromkeys(-(-room.floor.racks // count) for count in counts)
    tried = [room, *(place(packing, limits, length, network) for length in lengths)]
    return min(tried, key=lambda one: _longest_m(network_cables(network, one)))


def _longest_m(cables: Sequence[NetworkCable]) -> float:
    return max((cable.length_m for cable in cables), default=0.0)


def _most_alone(device: RackDevice, limits: Limits, pdu_choice: PduChoice) -> int:
    """How many of this device alone the PDUs of one rack carry, also past what else fits into it: what
    they could carry more is left for others."""
    low, high = 1, min(max(3 * limits.most_of(device), 1), _MOST_PROBED)
    while low < high:
        middle = (low + high + 1) // 2
        try:
            power_rack(((device, middle),), pdu_choice.pdus, pdu_choice.per_feed)
        except CannotPower:
            high = middle - 1
        else:
            low = middle
    return low


def _power_all(room: Room, pdu_choice: PduChoice) -> tuple[RackPower, ...]:
    """Racks with the same contents are wired the same."""
    known: dict[Contents, RackPower] = {}
    power = []
    for rack in range(room.floor.racks):
        contents = room.contents(rack)
        if contents not in known:
            known[contents] = power_rack(contents, pdu_choice.pdus, pdu_choice.per_feed)
        power.append(known[contents])
    return tuple(power)
