"""The version of a cluster's server, and the features of Kubernetes on which a job depends."""

import re
from dataclasses import dataclass
from typing import NamedTuple

_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})[0-9A-Za-z.+-]{0,60}")


class Feature(NamedTuple):
    """Something that Kubernetes has, without any setting, since a version."""

    name: str
    since: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.name} (since {format_version(self.since)})"


def format_version(numbers: tuple[int, int]) -> str:
    """Format a version, like 1.29."""
    return f"{numbers[0]}.{numbers[1]}"


INDEXED_JOBS = Feature("indexed Jobs", (1, 22))
SUSPENDED_JOBS = Feature("suspended Jobs", (1, 22))
POD_FAILURE_POLICY = Feature("pod failure policies", (1, 26))
POD_REPLACEMENT_POLICY = Feature("pod replacement policies", (1, 29))
CURRENT = (1, 29)
"""The oldest version with every feature that gpuyard uses."""


@dataclass(frozen=True)
class ServerVersion:
    """The version of a server."""

    numbers: tuple[int, int] = CURRENT
    text: str = ""
    """The server's own words, like v1.20.2; empty if the version is unknown."""

    @classmethod
    def parse(cls, text: object) -> "ServerVersion":
        """Parse a version like v1.20.2; one that is not valid is unknown, and treated as current."""
        match = _VERSION.fullmatch(text) if isinstance(text, str) else None
        return cls() if match is None else cls((int(match[1]), int(match[2])), match[0])

    def lacks(self, feature: Feature) -> bool:
        """Return whether the server is too old for a feature."""
        return self.numbers < feature.since


CURRENT_VERSION = ServerVersion()
"""An unknown version, treated as one with every feature."""
