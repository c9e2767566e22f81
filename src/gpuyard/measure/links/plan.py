"""Which links would be measured here, as a value, before anything is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import psutil

from gpuyard.cpu import usable_cores
from gpuyard.errors import UserMistake
from gpuyard.measure.links.facts import gpu_addresses
from gpuyard.measure.links.loopback import MOST_BYTES
from gpuyard.measure.links.memory import core_counts
from gpuyard.measure.links.probe import CudaProbe, name_gpus
from gpuyard.measure.links.records import PlannedLink
from gpuyard.measure.record import Testbed, key_of, this_testbed
from gpuyard.table import Table
from gpuyard.units import format_bytes

FEWEST_BYTES = 64_000
MOST_REPEATS = 1000
_COPIES_HELD = (
    4  # both directions of a staged exchange keep two in host memory; half of it stays free
)


@dataclass(frozen=True)
class LinkPlan:
    """What would be timed, one after the other. GPUs are in torch's order, addresses in NVML's."""

    size_bytes: int
    repeats: int
    testbed: Testbed
    cores: tuple[int, ...]
    gpus: tuple[str, ...]
    addresses: tuple[str, ...]
    links: tuple[PlannedLink, ...]
    key: str
    probe: CudaProbe | None

    def describe(self) -> dict[str, Any]:
        """For `--dry-run` and programs."""
        return {
            "size_bytes": self.size_bytes,
            "repeats": self.repeats,
            "host": self.testbed.model_dump(mode="json"),
            "gpus": list(self.gpus),
            "key": self.key,
            "links": [link.model_dump(mode="json") for link in self.links],
        }

    def listing(self) -> Table:
        """For `--dry-run` and people."""
        size = format_bytes(self.size_bytes)
        return Table(
            f"{self.testbed.host}: {len(self.links)} links, {self.repeats} repeats of {size}",
            ["link", "direction", ""],
            [[link.label, link.direction, "would be measured"] for link in self.links],
        )

    @property
    def used_cores(self) -> tuple[int, ...]:
        return self.cores


def plan_links(size_bytes: int, repeats: int) -> LinkPlan:
    """Check everything that can be checked before a byte is moved."""
    _check(size_bytes, repeats)
    testbed, cores = this_testbed(), usable_cores()
    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    probe = None
    if testbed.gpus:
        import torch

        from gpuyard.hardware.nvml import read_nvml

        nvml = read_nvml()
        addresses = tuple(nvml.products) if nvml else gpu_addresses()
        names = name_gpus(torch, addresses)
        probe = CudaProbe(torch, names, size_bytes)
    return LinkPlan(
        size_bytes=size_bytes,
        repeats=repeats,
        testbed=testbed,
        cores=cores,
        gpus=names,
        addresses=addresses,
        links=(*gpu_links(names, probe), *host_links(len(cores))),
        key=_key(size_bytes, repeats, testbed),
        probe=probe,
    )


def gpu_links(gpus: Sequence[str], probe: CudaProbe | None) -> Iterator[PlannedLink]:
    """Host and GPU in both directions and at once; every pair of GPUs so, with peer access and without."""
    for gpu in gpus:
        yield PlannedLink(kind="host-gpu", source="host", target=gpu, direction="one-way")
        yield PlannedLink(kind="host-gpu", source=gpu, target="host", direction="one-way")
        yield PlannedLink(kind="host-gpu", source="host", target=gpu, direction="both-ways")
    for a, b in combinations(gpus, 2):
        for peer in (True, False) if probe and probe.reaches(a, b) else (False,):
            yield PlannedLink(kind="gpu-gpu", source=a, target=b, direction="one-way", peer=peer)
            yield PlannedLink(kind="gpu-gpu", source=b, target=a, direction="one-way", peer=peer)
            yield PlannedLink(kind="gpu-gpu", source=a, target=b, direction="both-ways", peer=peer)


def host_links(usable: int) -> Iterator[PlannedLink]:
    """What every machine has: memory, by cores that copy at once, and the loopback interface."""
    for cores in core_counts(usable):
        yield PlannedLink(
            kind="memory", source="memory", target="memory", direction="one-way", cores=cores
        )
    for direction in ("one-way", "both-ways"):
        yield PlannedLink.model_validate(
            {
                "kind": "loopback",
                "source": "process 0",
                "target": "process 1",
                "direction": direction,
            }
        )


def _check(size_bytes: int, repeats: int) -> None:
    if not 1 <= repeats <= MOST_REPEATS:
        raise UserMistake(f"expected 1 to {MOST_REPEATS} repeats, got {repeats}")
    most = min(MOST_BYTES, psutil.virtual_memory().available // _COPIES_HELD)
    if not FEWEST_BYTES <= size_bytes <= most:
        raise UserMistake(
            f"{format_bytes(size_bytes)} can't be copied here; ask for {format_bytes(FEWEST_BYTES)} to "
            f"{format_bytes(most)}"
        )


def _key(size_bytes: int, repeats: int, testbed: Testbed) -> str:
    asked = {
        "kind": "links",
        "size_bytes": size_bytes,
        "repeats": repeats,
        "host": testbed.fingerprint(),
        "torch": testbed.torch,
        "gpuyard": testbed.gpuyard,
    }
    return key_of(asked)
