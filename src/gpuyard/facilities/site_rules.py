"""Typical values for what a site file does not set, and the site to assume without a file."""

from dataclasses import dataclass

from gpuyard.catalog.electricity import Tariff, select_tariff
from gpuyard.catalog.facility import Region, facility_costs
from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.power.electricity import apparent_va, find_continuous_load
from gpuyard.facilities.power.rack_pdu import find_region
from gpuyard.specs.site import Site

# the heat that a rack may produce, by kind of site; assumed unless the site file sets it
_RACK_WATTS = {"office": 5_000.0, "room": 10_000.0, "colocation": 20_000.0}
_RACK_WATTS_BY_COOLING = {"rear-door": 45_000.0, "liquid": 130_000.0}
_MAX_OFFICE_VA = 1_800.0


@dataclass(frozen=True)
class SiteRules:
    """A site with a value for everything. `assumptions` lists what its file does not set."""

    site: Site
    continuous_load: float
    region: Region
    rack_watts: float
    pue: float
    tariff: Tariff
    colocation_usd_per_kw_month: float
    assumptions: tuple[str, ...]


def resolve_site_rules(site: Site, priced_as: str | None = None) -> SiteRules:
    """Return the site's own values, and typical ones for the rest.

    `priced_as` names another country or region whose electricity price is used.
    """
    assumptions = []
    share = site.continuous_load
    if share is None:
        share = find_continuous_load(site.country)
        assumptions.append(
            f"{100 * share:.0f}% of a breaker as continuous load, the rule in {site.country}"
        )
    rack_watts = site.rack.power
    if rack_watts is None:
        rack_watts = _RACK_WATTS_BY_COOLING.get(site.cooling, _RACK_WATTS[site.kind])
        assumptions.append(
            f"{rack_watts / 1000:.0f} kW per rack, typical of {_describe_kind(site)}"
        )
    costs = facility_costs()
    pue_row = costs.get("pue-new-sites" if site.kind == "colocation" else "pue-average-2023")
    rent_row = costs.get("colocation-2024")
    if site.pue is None:
        assumptions.append(f"PUE {pue_row.value:g}, {pue_row.name} ({pue_row.date})")
    if site.colocation_rate is None:
        assumptions.append(f"${rent_row.value:g}/kW/month, {rent_row.name} ({rent_row.date})")
    return SiteRules(
        site=site,
        continuous_load=share,
        region=find_region(site.country),
        rack_watts=rack_watts,
        pue=site.pue or pue_row.value,
        tariff=select_tariff(
            None if priced_as else site.tariff,
            priced_as or site.place,
            "--country, or 'country' or 'tariff' in the site file",
        ),
        colocation_usd_per_kw_month=site.colocation_rate or rent_row.value,
        assumptions=tuple(assumptions),
    )


def _describe_kind(site: Site) -> str:
    if site.cooling != "air":
        return f"{site.cooling} cooling"
    return {"office": "an office", "room": "a small machine room"}.get(
        site.kind, "air-cooled colocation"
    )


def choose_default_site(device: RackDevice, nodes: int) -> Site:
    """Return the site to assume without a site file.

    It is an office for one workstation that an office circuit can power. Otherwise it is a colocation site with as
    many circuits as needed.
    """
    if device.tower and nodes == 1 and apparent_va(device.peak_watts) <= _MAX_OFFICE_VA:
        wall = {"voltage": "120 V", "amps": "20 A", "receptacle": "nema-5-20r"}
        return Site.model_validate(
            {"name": "an office in the US with 20 A circuits", "kind": "office", "circuits": [wall]}
        )
    cee = {"voltage": "400 V", "amps": "32 A", "phases": 3, "receptacle": "iec-60309-32a-3p-n-e-6h"}
    return Site.model_validate(
        {
            "name": "a European colocation site with rear-door coolers, 400 V 32 A",
            "kind": "colocation",
            "country": "DE",
            "feeds": 2,
            "circuits": [cee],
            "rack": {"units": 48},
            "cooling": "rear-door",
        }
    )
