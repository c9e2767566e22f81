"""Each network of a designed room in figures: switches, ports, bundles, cables and price by port."""

from dataclasses import dataclass

from gpuyard.facility.design import FacilityDesign
from gpuyard.facility.device import Device
from gpuyard.facility.fabric import FabricDesign
from gpuyard.facility.network.devices import TIERS


@dataclass(frozen=True)
class NetworkFigures:
    """`usd` are switches and cables by estimated prices, None where one is not known."""

    name: str
    fabric: FabricDesign
    boxes: tuple[tuple[Device, int], ...]
    cables: int
    usd: float | None

    @property
    def usd_per_port(self) -> float | None:
        return None if self.usd is None else self.usd / self.fabric.request.endpoints


def network_figures(design: FacilityDesign) -> tuple[NetworkFigures, ...]:
    """Of each network that there is."""
    return tuple(_figures(design, name, fabric) for name, fabric in design.network.fabrics.items())


def _figures(design: FacilityDesign, name: str, fabric: FabricDesign) -> NetworkFigures:
    boxes = tuple((d, n) for d, n in design.network.devices if d.kind in TIERS[name])
    cables = [cable for cable in design.cables if cable.network == name]
    prices = [d.price_usd * n if d.price_usd is not None else None for d, n in boxes]
    known = [price for price in prices if price is not None]
    laid = sum(cable.count * cable.price_usd for cable in cables)
    return NetworkFigures(
        name=name,
        fabric=fabric,
        boxes=boxes,
        cables=sum(cable.count for cable in cables),
        usd=sum(known) + laid if len(known) == len(prices) else None,
    )
