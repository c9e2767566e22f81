"""The colours of a drawing. It has its own white ground, so it looks the same on light and dark pages."""

import math
from collections.abc import Iterable
from typing import TypeGuard

from gpuyard.hardware.graph import DeviceKind, WireKind

GROUND, FRAME = "#ffffff", "#d0d7de"
INK, FADED = "#1f2937", "#57606a"
NVLINK_FILL = "#e9f5d6"
BOXES: dict[DeviceKind, tuple[str, str]] = {  # fill, stroke
    "socket": ("#eef1f5", "#475569"),
    "host-bridge": ("#ffffff", "#64748b"),
    "switch": ("#e4effb", "#2c6cb0"),
    "gpu": ("#f4f9ec", "#4d7c0f"),
    "nic": ("#f2ecfb", "#7c4dbd"),
    "nvme": ("#fdf1e3", "#b4661a"),
    "nvswitch": ("#4d7c0f", "#3a5f0b"),
}
WIRES: dict[WireKind, str] = {
    "pcie": "#2c6cb0",
    "socket": "#d97706",
    "nvlink": "#5c9411",
    "internal": "#64748b",
}
# ColorBrewer's YlGnBu: told apart by people with any colour vision
_RAMP = ((255, 255, 217), (199, 233, 180), (65, 182, 196), (34, 94, 168), (8, 29, 88))
_NONE = "#eceff2"


class HeatScale:
    """Rates to colours, by their logarithm between the slowest and the fastest."""

    def __init__(self, rates: Iterable[float | None]) -> None:
        usable = [rate for rate in rates if _known(rate)]
        self.low, self.high = min(usable, default=1.0), max(usable, default=1.0)

    def fill(self, rate: float | None) -> str:
        if not _known(rate):
            return _NONE
        return "#{:02x}{:02x}{:02x}".format(*self._rgb(rate))

    def ink(self, rate: float | None) -> str:
        """Dark or white, whichever reads better on the fill."""
        if not _known(rate):
            return FADED
        red, green, blue = self._rgb(rate)
        return "#ffffff" if 0.3 * red + 0.59 * green + 0.11 * blue < 140 else INK

    def steps(self, count: int) -> list[float]:
        """Rates from the slowest to the fastest, evenly apart on the scale."""
        ratio = self.high / self.low
        return [self.low * ratio ** (i / (count - 1)) for i in range(count)]

    def _rgb(self, rate: float) -> tuple[int, int, int]:
        if self.high <= self.low:
            share = 0.3
        else:
            share = math.log(rate / self.low) / math.log(self.high / self.low)
        at = (0.07 + 0.83 * min(max(share, 0.0), 1.0)) * (len(_RAMP) - 1)
        index = min(int(at), len(_RAMP) - 2)
        one, two = _RAMP[index], _RAMP[index + 1]
        red, green, blue = (
            round(a + (b - a) * (at - index)) for a, b in zip(one, two, strict=True)
        )
        return red, green, blue


def _known(rate: float | None) -> TypeGuard[float]:
    return rate is not None and math.isfinite(rate) and rate > 0
