"""Colocation against a room of one's own, side by side; the figures are what the planner takes."""

from dataclasses import dataclass

from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.housing import BUILD_YEARS, RoomTerms, room_terms

HOURS_PER_MONTH = 8766 / 12


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
    colocation, own = (_cost(design, terms) for terms in room_terms(design.rules))
    return colocation, own


def _cost(design: FacilityDesign, terms: RoomTerms) -> RoomCost:
    peak_kw = design.peak_watts / 1000
    rent, build = terms.rent_usd_per_kw_month, terms.build_usd_per_kw
    kilowatt_hours = design.typical_watts / 1000 * HOURS_PER_MONTH * terms.pue
    return RoomCost(
        way=terms.way,
        energy_usd_per_month=kilowatt_hours * terms.usd_per_kwh,
        rent_usd_per_month=None if rent is None else peak_kw * rent,
        build_usd_per_month=None if build is None else build * peak_kw / (BUILD_YEARS * 12),
        build_usd=None if build is None else build * peak_kw,
        pue=terms.pue,
        usd_per_kwh=terms.usd_per_kwh,
    )
