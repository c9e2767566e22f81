"""Explain a refused room: how many of the machines the site can house, and the changes with which all would fit."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpuyard.catalog.facility import Region, plugs
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facilities.design import FacilityDesign, design_facility
from gpuyard.facilities.requirements import calculate_requirements
from gpuyard.facilities.site_rules import resolve_site_rules
from gpuyard.specs import Cluster
from gpuyard.specs.site import Circuit, Site

# the strongest circuits in common use, which the catalog has PDUs for: (voltage, amps, phases, receptacle)
_STRONG_CIRCUITS: Mapping[Region, tuple[str, str, int, str]] = {
    "north-america": ("415 V", "60 A", 3, "iec-60309-60a-3p-n-e-6h"),
    "iec": ("400 V", "63 A", 3, "iec-60309-60a-3p-n-e-6h"),
}
_OFFICE_CIRCUITS: Mapping[Region, tuple[str, str, int, str]] = {
    "north-america": ("208 V", "30 A", 1, "nema-l6-30r"),
    "iec": ("230 V", "32 A", 1, "iec-60309-32a-2p-e-6h"),
}
_STRONG_RACK = {"units": 60, "depth": "1.5 m", "weight": "3000 kg"}
_RACK_KILOWATTS = (15, 20, 30, 45, 130)


def design_or_advise(
    cluster: Cluster, site: Site | None = None, priced_as: str | None = None
) -> FacilityDesign:
    """Design the room, or raise the refusal with how many machines fit and what would make all fit."""
    try:
        return design_facility(cluster, site, priced_as)
    except GpuyardError as error:
        if site is None or isinstance(error, UserMistake):
            raise
        lines = [str(error), _describe_count(cluster, site), _describe_changes(cluster, site)]
        raise GpuyardError("\n  ".join(filter(None, lines))) from None


def can_house(cluster: Cluster, site: Site) -> bool:
    """Return whether the site can house all machines."""
    return _try_design(cluster, site) is not None


def count_housable(cluster: Cluster, site: Site) -> int:
    """Return how many of the cluster's machines the site can house, by bisection."""
    fits, too_many = 0, cluster.nodes
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if _try_design(cluster.model_copy(update={"nodes": middle}), site):
            fits = middle
        else:
            too_many = middle
    return fits


def find_changes(cluster: Cluster, site: Site) -> tuple[str, ...]:
    """Return changes of the site with which all machines fit; nothing if none of those tried is enough.

    It applies all changes, with the lowest power per rack that is enough. Then it drops each change that the design
    does not need, the most expensive first.
    """
    changes = _list_changes(site)
    own_power = resolve_site_rules(site).rack_watts
    for kilowatts in _RACK_KILOWATTS:
        changes["rack power"] = {"rack": {"power": f"{max(kilowatts, own_power / 1000):g} kW"}}
        if _try_design(cluster, _apply(site, changes)):
            break
    else:
        return ()
    for name in list(changes):
        fewer = {key: change for key, change in changes.items() if key != name}
        if _try_design(cluster, _apply(site, fewer)):
            changes = fewer
    design = _try_design(cluster, _apply(site, changes))
    return tuple(_describe_change(name, design, site) for name in changes) if design else ()


def _describe_count(cluster: Cluster, site: Site) -> str:
    if cluster.nodes == 1:
        return ""
    fits = count_housable(cluster, site)
    return f"the site can house {fits or 'none'} of the {cluster.nodes} machines"


def _describe_changes(cluster: Cluster, site: Site) -> str:
    changes = find_changes(cluster, site)
    everything = "it" if cluster.nodes == 1 else f"all {cluster.nodes}"
    if not changes:
        return f"no change of circuits, racks, or cooling that was tried makes {everything} fit"
    return f"{everything} would fit with {'; '.join(changes)}"


def _list_changes(site: Site) -> dict[str, dict[str, Any]]:
    """Return the changes that are tried, the most expensive first, as the keys of the site that they replace."""
    region = resolve_site_rules(site).region
    strong = (_OFFICE_CIRCUITS if site.kind == "office" else _STRONG_CIRCUITS)[region]
    keys = dict(zip(("voltage", "amps", "phases", "receptacle"), strong, strict=True))
    more = tuple(circuit.model_copy(update={"count": None}) for circuit in site.circuits)
    return {
        "circuits": {"circuits": (Circuit.model_validate(keys),), "pdu": None},
        "floor load": {"floor_load": None},
        "cable limit": {"cable_limit": None},
        "rack size": {"rack": _STRONG_RACK},
        "rack power": {},
        "racks": {"rack": {"count": None}},
        "cooling": {"cooling_power": None},
        "more circuits": {"circuits": more},
    }


def _apply(site: Site, changes: Mapping[str, Mapping[str, Any]]) -> Site:
    """Return the site with the changes; stronger circuits replace a larger number of the site's own."""
    updates: dict[str, Any] = {}
    rack = site.rack
    for change in reversed(list(changes.values())):
        for key, value in change.items():
            if key == "rack":
                limits = type(rack).model_validate(value)
                own = {name: getattr(limits, name) for name in limits.model_fields_set}
                rack = rack.model_copy(update=own)
            else:
                updates[key] = value
    return site.model_copy(update={**updates, "rack": rack})


def _try_design(cluster: Cluster, site: Site) -> FacilityDesign | None:
    try:
        return design_facility(cluster, site)
    except GpuyardError:
        return None


def _describe_change(name: str, design: FacilityDesign, site: Site) -> str:
    """Describe what the design needs in place of what the site has."""
    needs, device = calculate_requirements(design), design.server
    own_rack_watts = resolve_site_rules(site).rack_watts
    longest_m = max((cable.length_m for cable in design.cables), default=0.0)
    circuits = " and ".join(_describe_circuits(design))
    descriptions = {
        "circuits": f"{circuits}, in place of those it has",
        "more circuits": circuits,
        "rack power": f"racks that may draw {design.rules.rack_watts / 1000:g} kW, not"
        f" {own_rack_watts / 1000:g} kW",
        "rack size": f"racks for machines of {device.rack_units} U, {device.depth_mm:.0f} mm, and"
        f" {device.weight_kg:.0f} kg",
        "racks": f"{len(needs.racks)} racks, not {site.rack.count}",
        "cooling": f"cooling for {math.ceil(needs.peak_watts / 1000)} kW, not"
        f" {(site.cooling_power or 0.0) / 1000:g} kW",
        "floor load": f"a floor that bears {needs.floor_kg_per_m2:,.0f} kg/m²",
        "cable limit": f"network cables of up to {longest_m:.1f} m",
    }
    return descriptions[name]


def _describe_circuits(design: FacilityDesign) -> Iterator[str]:
    """Yield the circuits that the design needs; feeds with equal ones are described together."""
    feeds: dict[tuple[Circuit, int], list[str]] = {}
    for need in calculate_requirements(design).circuits:
        circuit = need.circuit.model_copy(update={"feed": None})
        feeds.setdefault((circuit, need.count), []).append(need.feed)
    for (circuit, count), names in feeds.items():
        circuits = "1 circuit" if count == 1 else f"{count} circuits"
        phases = ", three phases," if circuit.phases == 3 else ""
        on = (
            ""
            if design.site.feeds == 1
            else f" on feed{'s' * (len(names) > 1)} {' and '.join(names)}"
        )
        each = " each" if len(names) > 1 else ""
        socket = plugs().get(circuit.receptacle).name
        yield (
            f"{circuits} of {circuit.voltage:.0f} V and {circuit.amps:.0f} A{phases}{on}{each} ({socket})"
        )
