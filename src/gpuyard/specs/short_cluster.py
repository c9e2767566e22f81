"""A cluster in a few characters, as a command line has it: `2x4xrtx-3090@10G`."""

import re
from dataclasses import dataclass

from gpuyard import units
from gpuyard.errors import UserMistake

_SHORT = re.compile(
    r"^\s*(?:(\d{1,6})\s*[x×]\s*)?(?:(\d{1,6})\s*[x×]\s*)?([^@\s]+)(?:\s*@\s*(.+?))?\s*$"
)
_RAILS = re.compile(r"^(\d{1,3})\s*[x×]\s*(.+)$")
_BARE_PREFIX = re.compile(r"^[\d.]+\s*[kMGT]$")
_NO_SECOND = re.compile(r"^[\d.]+\s*[kMGT]bit$")


@dataclass(frozen=True)
class ShortCluster:
    """How many of what, and what joins them; which of both the numbers count depends on the name."""

    counts: tuple[int, ...]
    name: str  # of a GPU, or of a machine
    network: str | None

    @classmethod
    def of(cls, text: str) -> "ShortCluster | None":
        """None for what is not written like this."""
        match = _SHORT.match(text)
        if match is None:
            return None
        counts = tuple(int(count) for count in match.groups()[:2] if count is not None)
        return cls(counts, match[3], match[4])

    @property
    def rails(self) -> int:
        """Ports of each machine: `@8xinfiniband-ndr`."""
        match = _RAILS.match(self.network or "")
        return int(match[1]) if match else 1

    @property
    def link(self) -> str:
        """A catalog link, or a rate."""
        match = _RAILS.match(self.network or "")
        return match[2] if match else self.network or ""

    def rate(self) -> str:
        """ "10G" → "10G bit/s", as rates of networks are said. Raises where it is none."""
        written = self.link
        for shape, rest in ((_BARE_PREFIX, "bit/s"), (_NO_SECOND, "/s")):
            if shape.match(written):
                written += rest
        try:
            units.parse_rate(written)
        except UserMistake as mistake:
            raise UserMistake(f"{mistake}, or name a link: @ethernet-10g") from None
        return written
