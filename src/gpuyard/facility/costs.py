"""Colocation against a room of one's own, side by side; the figures are what the planner takes."""

from dataclasses import dataclass

from gpuyard.catalog import facility_costs
from gpuyard.facility.design import FacilityDesign

HOURS_PER_MONTH = 8766 / 12
_BUILD_YEARS = 10
"""A room is written off over so long; assumed."""


@dataclass(frozen=True)
class RoomCost:
    """What one way to house the cluster costs a month, without the hardware itself. A part that
    nobody gave a figure for is None and not in the total."""

    way: str
    energy_usd_per_month: float
    rent_usd_per_month: float | None
    build_usd_per_month: float | None
    build_usd: float | None
    pue: float
    usd_per_kwh: float

    @property
    def usd_per_month(self) -> float:
        parts = (self.energy_usd_per_month, self.rent_usd_per_month, self.build_usd_per_month)
        return sum(part for part in parts if part is not None)

    @property
    def complete(self) -> bool:
        return self.rent_usd_per_month is not None or self.build_usd_per_month is not None


def compare_costs(design: FacilityDesign) -> tuple[RoomCost, RoomCost]:
    """(colocation, on premises): rent by the kW at peak, energy by what is typically drawn."""
    rules, site = design.rules, design.site
    owned_pue = (
        rules.pue if site.kind != "colocation" else facility_costs().get("pue-average-2023").value
    )
    shared_pue = (
        rules.pue if site.kind == "colocation" else facility_costs().get("pue-new-sites").value
    )
    peak_kw = design.peak_watts / 1000
    colocation = RoomCost(
        way="colocation",
        energy_usd_per_month=_energy(design, shared_pue),
        rent_usd_per_month=peak_kw * rules.colocation_usd_per_kw_month,
        build_usd_per_month=None,
        build_usd=None,
        pue=shared_pue,
        usd_per_kwh=rules.tariff_usd_per_kwh,
    )
    build = site.build * peak_kw if site.build is not None else None
    own = RoomCost(
        way="office" if site.kind == "office" else "on premises",
        energy_usd_per_month=_energy(design, owned_pue),
        rent_usd_per_month=None,
        build_usd_per_month=build / (_BUILD_YEARS * 12) if build is not None else None,
        build_usd=build,
        pue=owned_pue,
        usd_per_kwh=rules.tariff_usd_per_kwh,
    )
    return colocation, own


def _energy(design: FacilityDesign, pue: float) -> float:
    kilowatt_hours = design.typical_watts / 1000 * HOURS_PER_MONTH * pue
    return kilowatt_hours * design.rules.tariff_usd_per_kwh
