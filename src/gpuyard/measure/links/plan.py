"""The plan of a link bench: the links to measure on this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import psutil

from gpuyard.cpu import usable_cores
from gpuyard.errors import UserMistake
from gpuyard.measure.links.facts import find_gpu_addresses
from gpuyard.measure.links.loopback import MAX_BYTES
from gpuyard.measure.links.memory import choose_core_counts
from gpuyard.measure.links.probe import CudaProbe, name_gpus
from gpuyard.measure.links.records import PlannedLink
from gpuyard.measure.record import Testbed, discover_testbed, hash_key
from gpuyard.table import Table
from gpuyard.units import format_bytes

MIN_BYTES = 64_000
MAX_REPEATS = 1000
# a staged exchange keeps two copies in host memory, and half of the memory stays free
_MEMORY_SHARE = 4


@dataclass(frozen=True)
class LinkPlan:
    """The links to time, one after another. GPUs are in torch's order, addresses in NVML's."""

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
        return {
            "size_bytes": self.size_bytes,
            "repeats": self.repeats,
            "host": self.testbed.model_dump(mode="json"),
            "gpus": list(self.gpus),
            "key": self.key,
            "links": [link.model_dump(mode="json") for link in self.links],
        }

    def build_table(self) -> Table:
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
    """Plan a link bench, and check everything that can be checked before it starts."""
    _check(size_bytes, repeats)
    testbed, cores = discover_testbed(), usable_cores()
    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    probe = None
    if testbed.gpus:
        import torch

        from gpuyard.hardware.nvml import read_nvml

        nvml = read_nvml()
        addresses = tuple(nvml.products) if nvml else find_gpu_addresses()
        names = name_gpus(torch, addresses)
        probe = CudaProbe(torch, names, size_bytes)
    return LinkPlan(
        size_bytes=size_bytes,
        repeats=repeats,
        testbed=testbed,
        cores=cores,
        gpus=names,
        addresses=addresses,
        links=(*list_gpu_links(names, probe), *list_host_links(len(cores))),
        key=_hash_parameters(size_bytes, repeats, testbed),
        probe=probe,
    )


def list_gpu_links(gpus: Sequence[str], probe: CudaProbe | None) -> Iterator[PlannedLink]:
    """List the links of each GPU with the host and with each other GPU.

    Each is timed in either direction and in both at once, and GPU pairs with and without peer access.
    """
    for gpu in gpus:
        yield PlannedLink(kind="host-gpu", source="host", target=gpu, direction="one-way")
        yield PlannedLink(kind="host-gpu", source=gpu, target="host", direction="one-way")
        yield PlannedLink(kind="host-gpu", source="host", target=gpu, direction="both-ways")
    for a, b in combinations(gpus, 2):
        for peer in (True, False) if probe and probe.has_peer_access(a, b) else (False,):
            yield PlannedLink(kind="gpu-gpu", source=a, target=b, direction="one-way", peer=peer)
            yield PlannedLink(kind="gpu-gpu", source=b, target=a, direction="one-way", peer=peer)
            yield PlannedLink(kind="gpu-gpu", source=a, target=b, direction="both-ways", peer=peer)


def list_host_links(usable: int) -> Iterator[PlannedLink]:
    """List the links of every machine: memory, by the number of copying cores, and loopback."""
    for cores in choose_core_counts(usable):
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
    if not 1 <= repeats <= MAX_REPEATS:
        raise UserMistake(f"expected 1 to {MAX_REPEATS} repeats, got {repeats}")
    max_bytes = min(MAX_BYTES, psutil.virtual_memory().available // _MEMORY_SHARE)
    if not MIN_BYTES <= size_bytes <= max_bytes:
        raise UserMistake(
            f"--bytes must be between {format_bytes(MIN_BYTES)} and {format_bytes(max_bytes)} here, "
            f"got {format_bytes(size_bytes)}"
        )


def _hash_parameters(size_bytes: int, repeats: int, testbed: Testbed) -> str:
    return hash_key(
        {
            "kind": "links",
            "size_bytes": size_bytes,
            "repeats": repeats,
            "host": testbed.fingerprint(),
            "torch": testbed.torch,
            "gpuyard": testbed.gpuyard,
        }
    )
