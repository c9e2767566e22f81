"""What holds for a kind of site where its file does not say it, and the site that is assumed without one."""

from dataclasses import dataclass

from gpuyard.catalog.electricity import Tariff, tariff_of
from gpuyard.catalog.facility import Region, facility_costs
from gpuyard.facility.device import RackDevice
from gpuyard.facility.power.electricity import apparent_va, continuous_load_in
from gpuyard.facility.power.rack_pdu import region_of
from gpuyard.specs.site import Site

# watts that a rack may turn into heat there; assumed, a site file overrides them
_RACK_WATTS = {"office": 5_000.0, "room": 10_000.0, "colocation": 20_000.0}
_RACK_WATTS_BY_COOLING = {"rear-door": 45_000.0, "liquid": 130_000.0}
_OFFICE_WATTS = 1_800.0


@dataclass(frozen=True)
class SiteRules:
    """A site with nothing left open. `assumed` names what its file did not say."""

    site: Site
    continuous_load: float
    region: Region
    rack_watts: float
    pue: float
    tariff: Tariff
    colocation_usd_per_kw_month: float
    assumed: tuple[str, ...]


def rules_for(site: Site, priced_as: str | None = None) -> SiteRules:
    """The site's own figures, else what is typical; `priced_as` names the country or region whose electricity
    price is used instead."""
    assumed = []
    share = site.continuous_load
    if share is None:
        share = continuous_load_in(site.country)
        assumed.append(
            f"{100 * share:.0f} % of a breaker as continuous load, by the rule of {site.country}"
        )
    rack_watts = site.rack.power
    if rack_watts is None:
        rack_watts = _RACK_WATTS_BY_COOLING.get(site.cooling, _RACK_WATTS[site.kind])
        assumed.append(f"{rack_watts / 1000:.0f} kW per rack, typical of {_kind_words(site)}")
    costs = facility_costs()
    pue_row = costs.get("pue-new-sites" if site.kind == "colocation" else "pue-average-2023")
    rent_row = costs.get("colocation-2024")
    if site.pue is None:
        assumed.append(f"PUE {pue_row.value:g}, {pue_row.name} ({pue_row.date})")
    if site.colocation_rate is None:
        assumed.append(f"${rent_row.value:g}/kW/month, {rent_row.name} ({rent_row.date})")
    return SiteRules(
        site=site,
        continuous_load=share,
        region=region_of(site.country),
        rack_watts=rack_watts,
        pue=site.pue or pue_row.value,
        tariff=tariff_of(
            None if priced_as else site.tariff,
            priced_as or site.place,
            "--country, or 'country' or 'tariff' in the site file",
        ),
        colocation_usd_per_kw_month=site.colocation_rate or rent_row.value,
        assumed=tuple(assumed),
    )


def _kind_words(site: Site) -> str:
    if site.cooling != "air":
        return f"{site.cooling} cooling"
    return {"office": "an office", "room": "a small machine room"}.get(
        site.kind, "air-cooled colocation"
    )


def default_site(device: RackDevice, nodes: int) -> Site:
    """Without a site file: an office for a workstation that it can feed, else colocation with all the
    circuits that it takes."""
    if device.tower and nodes == 1 and apparent_va(device.peak_watts) <= _OFFICE_WATTS:
        wall = {"voltage": "120 V", "amps": "20 A", "receptacle": "nema-5-20r"}
        return Site.model_validate(
            {"name": "an office in the US with 20 A circuits", "kind": "office", "circuits": [wall]}
        )
    cee = {"voltage": "400 V", "amps": "32 A", "phases": 3, "receptacle": "iec-60309-32a-3p-n-e-6h"}
    return Site.model_validate(
        {
            "name": "a European colocation with rear-door coolers, 400 V 32 A",
            "kind": "colocation",
            "country": "DE",
            "feeds": 2,
            "circuits": [cee],
            "rack": {"units": 48},
            "cooling": "rear-door",
        }
    )
