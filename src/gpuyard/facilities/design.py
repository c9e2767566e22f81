"""Design the room for a cluster at a site: racks, power, cords, and networks, or a list of what the site lacks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gpuyard.errors import GpuyardError
from gpuyard.facilities.device import Contents, RackDevice
from gpuyard.facilities.housing import HousingCost, find_housing_terms
from gpuyard.facilities.network.cables import NetworkCable, lay_network_cables
from gpuyard.facilities.network.room_network import RoomNetwork, design_networks
from gpuyard.facilities.power.cord_list import PlacedCord, list_rack_cords
from gpuyard.facilities.power.pdu_choice import PduChoice, choose_pdus
from gpuyard.facilities.power.rack_power import CannotPower, RackPower, power_rack
from gpuyard.facilities.power.wall_power import WallPower
from gpuyard.facilities.racks.floor_plan import RACK_WIDTH_M, ROW_PITCH_M, Room
from gpuyard.facilities.racks.packing import RackLimits, RackPacking, pack_racks
from gpuyard.facilities.racks.placing import place_devices
from gpuyard.facilities.server import build_server_device
from gpuyard.facilities.shortfalls import find_device_shortfalls, find_room_shortfalls
from gpuyard.facilities.site_rules import SiteRules, choose_default_site, resolve_site_rules
from gpuyard.specs import Cluster
from gpuyard.specs.site import Site

_MAX_TRIES = 12
_MAX_DEVICES_PROBED = 84
_ROW_COUNTS_TRIED = 2  # on each side of the row count that makes the floor square


@dataclass(frozen=True)
class FacilityDesign:
    """A room in which every breaker, bank, outlet, rack, and port stays within its limit.

    That holds even after one feed has failed. `power` has one entry per rack.
    """

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
        """The costs of (colocation, on premises)."""
        peak_kw, typical_kw = self.peak_watts / 1000, self.typical_watts / 1000
        terms = find_housing_terms(self.rules)
        return tuple(HousingCost(place_terms, peak_kw, typical_kw) for place_terms in terms)

    @property
    def cords(self) -> Iterator[PlacedCord]:
        """All power cords, rack by rack."""
        for rack in range(self.room.floor.racks):
            yield from self.list_rack_cords(rack)

    def list_rack_cords(self, rack: int) -> Iterator[PlacedCord]:
        return list_rack_cords(self.room, self.power[rack], rack)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The values that neither the cluster file nor the site file sets."""
        rows: tuple[str, ...] = ()
        if self.room.floor.per_row != self.rules.site.rack.per_row:
            rows = (f"rows of {self.room.floor.per_row} racks, which keep cables short",)
        return (*self.rules.assumptions, *rows, *self.network.assumptions)

    @property
    def on_desk(self) -> bool:
        """True if all machines are towers beside a desk, without a rack; a switch stands on the desk."""
        return all(p.device.tower for p in self.room.placed if not p.device.is_switch)


def design_facility(
    cluster: Cluster, site: Site | None = None, priced_as: str | None = None
) -> FacilityDesign:
    """Design the room. Raises GpuyardError with a line for each thing that the site lacks, and by how much."""
    server, wall_power = build_server_device(cluster)
    rules = resolve_site_rules(site or choose_default_site(server, cluster.nodes), priced_as)
    server = replace(server, tower=server.tower and _stands_on_floor(cluster, rules))
    _raise_shortfalls(find_device_shortfalls(server, rules), rules)
    limits = _find_rack_limits(rules, server)
    pdu_choice = choose_pdus(server, cluster.nodes, rules, limits)
    model = pdu_choice.model
    if model is not None and model.rack_units:
        limits = replace(limits, units=limits.units - model.rack_units * rules.site.feeds)
    network = design_networks(
        cluster,
        pdu_choice.servers_per_rack,
        rules.site.rack.per_row,
        office=rules.site.kind == "office",
        redundant=rules.site.feeds == 2,
    )
    kinds = [(server, cluster.nodes), *network.devices]
    with _mention_assumed_storage(network):
        for device, _ in network.devices:
            _raise_shortfalls(find_device_shortfalls(device, rules), rules)
        packing, room, power = _fill_racks(kinds, limits, pdu_choice, network, rules)
        cables = lay_network_cables(network, room)
        _raise_shortfalls(find_room_shortfalls(room, power, rules, _find_longest_m(cables)), rules)
    _check_cord_lengths(room, power)
    return FacilityDesign(
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


@contextmanager
def _mention_assumed_storage(network: RoomNetwork) -> Iterator[None]:
    """Add to an error that storage servers were assumed: they may be what does not fit."""
    try:
        yield
    except GpuyardError as error:
        storage = network.storage_attachment
        if storage is not None and storage.servers_assumed:
            plural = storage.servers > 1
            error.args = (
                f"{error}\n  this includes {storage.servers} assumed storage server{'s' if plural else ''};"
                f" to leave {'them' if plural else 'it'} out, set 'storage: {{servers: 0}}' in the cluster file",
            )
        raise


def _stands_on_floor(cluster: Cluster, rules: SiteRules) -> bool:
    """Tell whether towers stand on the floor.

    Outside an office, several towers, or one with storage servers, go on the shelves of racks.
    """
    alone = cluster.nodes == 1 and not (cluster.storage and cluster.storage.servers)
    return alone or rules.site.kind == "office"


def _find_rack_limits(rules: SiteRules, server: RackDevice) -> RackLimits:
    rack = rules.site.rack
    units = max(rack.units, server.rack_units) if server.tower else rack.units
    return RackLimits(units, rack.weight, rules.rack_watts)


def _raise_shortfalls(shortfalls: Iterable[str], rules: SiteRules) -> None:
    lines = list(shortfalls)
    if lines:
        raise GpuyardError("\n  ".join([f"{rules.site.name} cannot house this cluster:", *lines]))


def _fill_racks(
    kinds: Sequence[tuple[RackDevice, int]],
    limits: RackLimits,
    pdu_choice: PduChoice,
    network: RoomNetwork,
    rules: SiteRules,
) -> tuple[RackPacking, Room, tuple[RackPower, ...]]:
    """Pack, place, and power the devices. If the cords of a mixed rack don't fit, put fewer devices into each."""
    max_counts = [(device, _count_powerable(device, limits, pdu_choice)) for device, _ in kinds]
    tries = [
        replace(
            limits,
            max_by_cords=tuple((device, max(count - fewer, 1)) for device, count in max_counts),
        )
        for fewer in range(_MAX_TRIES)
    ]
    if kinds[0][0].tower:  # a small switch uses the free outlet beside a workstation
        tries.insert(0, limits)
    reason = ""
    for tried_limits in tries:
        packing = pack_racks(kinds, tried_limits)
        room = _place_within_cable_limit(packing, tried_limits, network, rules)
        try:
            return packing, room, _power_racks(room, pdu_choice)
        except CannotPower as error:
            reason = str(error)
    raise GpuyardError(f"{rules.site.name} cannot power this cluster: {reason}")


def _place_within_cable_limit(
    packing: RackPacking, limits: RackLimits, network: RoomNetwork, rules: SiteRules
) -> Room:
    """Place the devices in the site's rows.

    If the site file does not set the length of rows and a cable would be too long, choose the length that makes
    the longest cable shortest.
    """
    rack, limit_m = rules.site.rack, rules.site.cable_limit
    room = place_devices(packing, limits, rack.per_row, network)
    if limit_m is None or "per_row" in rack.model_fields_set:
        return room
    if _find_longest_m(lay_network_cables(network, room)) <= limit_m:
        return room
    square = max(1, round((room.floor.racks * RACK_WIDTH_M / ROW_PITCH_M) ** 0.5))
    row_counts = range(max(1, square - _ROW_COUNTS_TRIED), square + _ROW_COUNTS_TRIED + 1)
    lengths = dict.fromkeys(-(-room.floor.racks // count) for count in row_counts)
    rooms = [room, *(place_devices(packing, limits, length, network) for length in lengths)]
    return min(rooms, key=lambda other: _find_longest_m(lay_network_cables(network, other)))


def _find_longest_m(cables: Sequence[NetworkCable]) -> float:
    return max((cable.length_m for cable in cables), default=0.0)


def _count_powerable(device: RackDevice, limits: RackLimits, pdu_choice: PduChoice) -> int:
    """Return how many of this device alone the PDUs of one rack can power.

    The count may exceed what fits into the rack: the difference is capacity for other devices.
    """
    low, high = 1, min(max(3 * limits.max_count(device), 1), _MAX_DEVICES_PROBED)
    while low < high:
        middle = (low + high + 1) // 2
        try:
            power_rack(((device, middle),), pdu_choice.pdus, pdu_choice.per_feed)
        except CannotPower:
            high = middle - 1
        else:
            low = middle
    return low


def _power_racks(room: Room, pdu_choice: PduChoice) -> tuple[RackPower, ...]:
    """Power all racks; racks with the same contents are wired the same."""
    by_contents: dict[Contents, RackPower] = {}
    power = []
    for rack in range(room.floor.racks):
        contents = room.count_contents(rack)
        if contents not in by_contents:
            by_contents[contents] = power_rack(contents, pdu_choice.pdus, pdu_choice.per_feed)
        power.append(by_contents[contents])
    return tuple(power)


def _check_cord_lengths(room: Room, power: Sequence[RackPower]) -> None:
    """Raise GpuyardError if a cord would be too long. Racks with the same contents are checked once."""
    different = {room.count_contents(rack): rack for rack in range(room.floor.racks)}
    for rack in different.values():
        for _ in list_rack_cords(room, power[rack], rack):
            pass
