"""What a fabric weighs, draws and costs, and that for each port of a machine."""

from dataclasses import dataclass

from gpuyard.catalog.fabric import Switch
from gpuyard.facility.fabric.design import FabricDesign
from gpuyard.facility.fabric.director import Boards


@dataclass(frozen=True)
class FabricBill:
    """Totals; None where the catalog does not know a part of it. All prices are estimates."""

    switches_usd: float | None
    cables_usd: float
    cards_usd: float
    endpoints: int
    switch_watts: float | None
    cable_watts: float
    rack_units: float
    weight_kg: float | None

    @property
    def total_usd(self) -> float | None:
        if self.switches_usd is None:
            return None
        return self.switches_usd + self.cables_usd + self.cards_usd

    @property
    def usd_per_port(self) -> float | None:
        """Switches and cables, for each port of a machine."""
        if self.switches_usd is None:
            return None
        return (self.switches_usd + self.cables_usd) / self.endpoints


def bill_of(design: FabricDesign) -> FabricBill:
    """Add it up."""
    above = design.shape.spines + design.shape.cores
    parts = [
        (design.switch, design.shape.leaves, design.boards),
        (design.spine_switch, above, design.spine_boards),
    ]
    used = [(switch, count, boards) for switch, count, boards in parts if count]
    return FabricBill(
        switches_usd=_sum([_price(switch, boards, count) for switch, count, boards in used]),
        cables_usd=sum(run.total_usd for run in design.cables),
        cards_usd=design.request.endpoints * design.switch.card_price_usd,
        endpoints=design.request.endpoints,
        switch_watts=_sum([_times(switch.max_watts, count) for switch, count, _ in used]),
        cable_watts=sum(run.count * run.watts for run in design.cables),
        rack_units=sum(switch.rack_units * count for switch, count, _ in used),
        weight_kg=_sum([_times(switch.weight_kg, count) for switch, count, _ in used]),
    )


def _price(switch: Switch, boards: Boards | None, count: int) -> float | None:
    share = boards.price_share if boards is not None else 1.0
    return _times(switch.price_usd, count * share)


def _times(value: float | None, count: float) -> float | None:
    return None if value is None else value * count


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
