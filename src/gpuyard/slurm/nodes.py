"""Slurm's nodes: the GPUs of a partition, and the names, addresses, and states of single nodes."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from gpuyard.errors import UserMistake, quote
from gpuyard.slurm.client import query, run

_GPUS = re.compile(r"\bgpu(?::[^:,(=]+)?[:=]([0-9]{1,6})\b")
_GPU_TYPES = re.compile(r"\bgpu:([^:,(]+):\d+")
_COLUMNS = ("NodeList", "Partition", "Gres", "GresUsed", "StateCompact")
_ACCEPTS_JOBS = re.compile(r"(?:idle|mix|alloc|comp|plnd)[^*]*$")  # A star means no response.
_DOWN = re.compile(r"DOWN|FAIL|NOT_RESPONDING|\*")
_NODE = re.compile(
    r"^NodeName=(?P<name>\S+) .*\bNodeAddr=(?P<address>\S+) .*\bState=(?P<state>\S+)", re.MULTILINE
)


_GPU_NODE = re.compile(
    r"^NodeName=(?P<name>\S+) .*\bGres=(?P<gres>\S+) .*\bNodeHostName=(?P<host>\S+) .*\bState=(?P<state>\S+)"
    r"(?:.* Reason=(?P<reason>.*))?",
    re.MULTILINE,
)
_REFUSES_JOBS = re.compile(r"DRAIN|DOWN|FAIL|FUTURE|POWER")


@dataclass(frozen=True)
class GpuNode:
    """A node with GPUs, on the host that its daemon runs on."""

    name: str
    host: str
    state: str
    reason: str
    gpus: int = 0
    gpu_type: str = ""
    """Slurm's name for the GPUs."""

    @property
    def accepts_jobs(self) -> bool:
        return _REFUSES_JOBS.search(self.state) is None


@dataclass(frozen=True)
class PartitionNodes:
    """The nodes that a job could get."""

    gpus: tuple[int, ...] | None = None
    """GPUs of each node; None if Slurm was not asked."""
    used: tuple[int, ...] = ()
    """GPUs of each node that are in use; all of them if the node accepts no jobs."""
    gpu_types: frozenset[str] = frozenset()
    """Slurm's names for the GPU types."""

    def count_nodes(self, min_gpus: int) -> int:
        """Count the nodes with at least this many GPUs."""
        if self.gpus is None:
            from gpuyard.specs.job import MAX_GPUS

            return MAX_GPUS
        return sum(gpus >= min_gpus for gpus in self.gpus)


@dataclass(frozen=True)
class SlurmNode:
    """A node's address and state."""

    address: str
    state: str

    @property
    def is_down(self) -> bool:
        return _DOWN.search(self.state) is not None


def count_gpus(gres: str) -> int:
    """Count the GPUs in a GRES string such as "gpu:t4:2(IDX:0-1),nic:1"."""
    return sum(map(int, _GPUS.findall(gres)))


def list_gpu_nodes() -> list[GpuNode]:
    """List all nodes with GPUs."""
    output = run("scontrol", "--oneliner", "show", "node")
    return [
        GpuNode(
            node["name"],
            node["host"],
            node["state"],
            node["reason"] or "",
            count_gpus(node["gres"]),
            "".join(_GPU_TYPES.findall(node["gres"])[:1]),
        )
        for node in _GPU_NODE.finditer(output)
        if count_gpus(node["gres"])
    ]


def drain_node(name: str, reason: str) -> None:
    """Let a node start no more jobs; those that run continue."""
    run("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")


def resume_node(name: str) -> None:
    """Let a drained node start jobs again."""
    run("scontrol", "update", f"NodeName={name}", "State=RESUME")


def list_partition(partition: str | None, without: Collection[str] = ()) -> PartitionNodes:
    """List the nodes of this partition, or of the default one, except some."""
    options = (f"--partition={partition}",) if partition else ()
    rows = query("sinfo", _COLUMNS, "--Node", *options)
    if partition and not rows:
        raise UserMistake(f"Slurm has no partition {quote(partition)}; `sinfo` lists them")
    rows = [row for row in rows if partition or row["Partition"].endswith("*")] or rows
    nodes = {row["NodeList"]: row for row in rows if row["NodeList"] not in without}.values()
    return PartitionNodes(
        gpus=tuple(count_gpus(node["Gres"]) for node in nodes),
        used=tuple(
            count_gpus(node["GresUsed" if _ACCEPTS_JOBS.match(node["StateCompact"]) else "Gres"])
            for node in nodes
        ),
        gpu_types=frozenset(name for node in nodes for name in _GPU_TYPES.findall(node["Gres"])),
    )


def expand_hostnames(nodelist: str) -> tuple[str, ...]:
    """Expand "node[1-2]" to its names."""
    return tuple(run("scontrol", "show", "hostnames", nodelist).split())


def read_nodes(nodelist: str) -> dict[str, SlurmNode]:
    """Read the address and state of each node by name."""
    output = run("scontrol", "--oneliner", "show", "node", nodelist)
    return {
        node["name"]: SlurmNode(node["address"], node["state"]) for node in _NODE.finditer(output)
    }
