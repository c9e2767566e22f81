"""A rectangle with names for its sides, and the sizes that a drawing is made of."""

from dataclasses import dataclass

from gpuyard.hardware.graph import DeviceKind

SIBLING_GAP = 14.0
GROUP_GAP = 22.0
ROOT_GAP = 84.0
RAIL_GAP = 14.0  # left of a column, for the wire to its lower device
COLUMN_GAP = 8.0
CPU_HEIGHT = 84.0
BRIDGE_HEIGHT = 26.0
BRIDGE_INSET = 7.0
SWITCH_HEIGHT = 46.0
DEVICE_HEIGHT = 72.0
NVSWITCH_HEIGHT = 38.0
PERIPHERALS: frozenset[DeviceKind] = frozenset({"nic", "nvme"})
_MANY_GPUS = 8


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def box_width(kind: DeviceKind, gpus: int) -> float:
    """Many GPUs are drawn narrower, so that sixteen still fit on a page."""
    few = gpus <= _MANY_GPUS
    widths: dict[DeviceKind, float] = {
        "socket": 190,
        "host-bridge": 116,
        "switch": 150 if few else 132,
        "gpu": 106 if few else 78,
    }
    return widths.get(kind, 84 if few else 74)
