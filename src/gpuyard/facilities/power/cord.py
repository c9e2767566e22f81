"""The cord from a device to an outlet: its plugs, its length, and the current that it may carry."""

from dataclasses import dataclass

from gpuyard.catalog.facility import plugs
from gpuyard.errors import GpuyardError
from gpuyard.facilities.power.rack_pdu import RackPdu

# the connector that fits each inlet
CONNECTORS = {"c14": "c13", "c16": "c15", "c20": "c19"}
# the outlets for which cords are sold, by the connector at the device, the most common first
_OUTLETS = {
    "c13": ("c13", "c39", "c19", "nema-5-15r", "nema-5-20r", "nema-6-20r", "nema-l6-20r", "cee-7-4",
            "bs-1363", "nema-l5-20r"),
    "c15": ("c13", "c39", "c19", "nema-5-15r", "nema-5-20r", "nema-l6-20r", "cee-7-4", "bs-1363"),
    "c19": ("c19", "c39", "nema-5-20r", "nema-6-20r", "nema-l6-20r", "nema-l6-30r", "nema-l5-20r",
            "cee-7-4", "bs-1363", "iec-60309-16a-2p-e-6h", "iec-60309-32a-2p-e-6h"),
}  # fmt: skip
_LENGTHS_M = (0.6, 1.0, 1.2, 1.8, 2.4, 3.0, 4.5)


@dataclass(frozen=True)
class CordKind:
    """A cord to order: the plug at the outlet, and the connector at the device."""

    plug: str
    connector: str
    length_m: float
    amps: float
    """The rating of the weaker end."""


def find_outlets(inlet: str) -> tuple[str, ...]:
    """Return the outlets to which a cord from this inlet is sold."""
    return _OUTLETS[CONNECTORS[inlet]]


def find_plug(outlet: str) -> str:
    """Return the plug for this outlet. A C39 accepts a C14 and a C20; the larger one is used."""
    return "c20" if outlet == "c39" else plugs().get(outlet).mates[0]


def find_max_amps(inlet: str, outlet: str, pdu: RackPdu) -> float:
    """Return the continuous current that the weakest of outlet, cord, and inlet allows."""
    connector = plugs().get(CONNECTORS[inlet]).amps(pdu.region) or 0.0
    return min(pdu.outlet_amps(outlet), connector * pdu.continuous_load)


def choose_cord(inlet: str, outlet: str, pdu: RackPdu, distance_m: float) -> CordKind:
    """Return the shortest common cord that is long enough."""
    length = next((length for length in _LENGTHS_M if length >= distance_m), None)
    if length is None:
        raise GpuyardError(
            f"{pdu.name} needs a power cord of {distance_m:.1f} m, but the longest common cord is"
            f" {_LENGTHS_M[-1]:g} m: {distance_m - _LENGTHS_M[-1]:.1f} m short; move the"
            " outlet closer or use a lower rack"
        )
    amps = find_max_amps(inlet, outlet, pdu) / pdu.continuous_load
    return CordKind(find_plug(outlet), CONNECTORS[inlet], length, amps)
