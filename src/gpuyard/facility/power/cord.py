"""The cord from a device to an outlet: which plugs it has, and what it may carry."""

from dataclasses import dataclass

from gpuyard.catalog.facility import plugs
from gpuyard.errors import GpuyardError
from gpuyard.facility.power.rack_pdu import RackPdu

# the connector that goes on an inlet
CONNECTORS = {"c14": "c13", "c16": "c15", "c20": "c19"}
# cords that are sold, by the connector at the device: into which outlets, the usual one first
_OUTLETS = {
    "c13": ("c13", "c39", "c19", "nema-5-15r", "nema-5-20r", "nema-6-20r", "nema-l6-20r", "cee-7-4",
            "bs-1363", "nema-l5-20r"),
    "c15": ("c13", "c39", "c19", "nema-5-15r", "nema-5-20r", "nema-l6-20r", "cee-7-4", "bs-1363"),
    "c19": ("c19", "c39", "nema-5-20r", "nema-6-20r", "nema-l6-20r", "nema-l6-30r", "nema-l5-20r",
            "cee-7-4", "bs-1363", "iec-60309-16a-2p-e-6h", "iec-60309-32a-2p-e-6h"),
}  # fmt: skip
_LENGTHS = (0.6, 1.0, 1.2, 1.8, 2.4, 3.0, 4.5)


@dataclass(frozen=True)
class CordKind:
    """What is ordered: the plug at the outlet, the connector at the device."""

    plug: str
    connector: str
    length_m: float
    amps: float
    """What the weaker of its ends is rated for."""


def outlets_for(inlet: str) -> tuple[str, ...]:
    """The outlets that a cord reaches from this inlet."""
    return _OUTLETS[CONNECTORS[inlet]]


def plug_into(outlet: str) -> str:
    """The plug for this outlet; a C39 takes a C14 and a C20, and is given the larger."""
    return "c20" if outlet == "c39" else plugs().get(outlet).mates[0]


def cord_amps(inlet: str, outlet: str, pdu: RackPdu) -> float:
    """What may flow continuously through outlet, cord and inlet: the least of them."""
    connector = plugs().get(CONNECTORS[inlet]).amps(pdu.region) or 0.0
    return min(pdu.outlet_amps(outlet), connector * pdu.continuous_load)


def cord_for(inlet: str, outlet: str, pdu: RackPdu, distance_m: float) -> CordKind:
    """The shortest usual cord that reaches."""
    length = next((one for one in _LENGTHS if one >= distance_m), None)
    if length is None:
        raise GpuyardError(
            f"a power cord of {distance_m:.1f} m is needed from {pdu.name}, and the longest that is"
            f" common has {_LENGTHS[-1]:g} m: {distance_m - _LENGTHS[-1]:.1f} m short; put the"
            " outlet closer or take a lower rack"
        )
    amps = cord_amps(inlet, outlet, pdu) / pdu.continuous_load
    return CordKind(plug_into(outlet), CONNECTORS[inlet], length, amps)
