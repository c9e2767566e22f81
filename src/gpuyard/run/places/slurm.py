"""Workers on the nodes of the Slurm allocation in which gpuyard itself runs, started with srun."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.run.places.hosts import RemoteMachines
from gpuyard.run.places.place import PlaceKind, RendezvousPoint, count_rank_slots
from gpuyard.run.probe import probe_nodes
from gpuyard.run.process import Command
from gpuyard.slurm.client import require_programs
from gpuyard.slurm.jobs import read_allocation
from gpuyard.slurm.nodes import expand_hostnames, read_nodes

# These describe the whole job or its tasks; a step on one node states its own needs.
_JOB_VARIABLES = (
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_PER_TASK",
    "SLURM_TRES_PER_TASK",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_CPU_BIND",  # of the step in which this shell runs
)


@dataclass(frozen=True)
class SlurmAllocation(RemoteMachines):
    """An allocation; each process is a step of one task, with `--overlap` because the batch script uses the cores too."""

    address: str | None = None
    """Address of the first node; None if its name resolves."""
    allocated_gpus: tuple[int, ...] = ()

    kind: ClassVar[PlaceKind] = "slurm"

    @property
    def rendezvous_point(self) -> RendezvousPoint:
        return RendezvousPoint(self.address or self.names[0], self.port)

    def select(self, nodes: Sequence[int], slots: Sequence[int] | None = None) -> Self:
        selected = super().select(nodes, slots)
        allocated = self.allocated_gpus and tuple(self.allocated_gpus[node] for node in nodes)
        address = self.address
        if selected.names[0] != self.names[0]:
            address = _find_first_address(selected.names, ",".join(selected.names))
        return replace(selected, allocated_gpus=allocated, address=address)

    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        gpus = self.allocated_gpus[node] if self.allocated_gpus else 0
        return Command(
            self.names[node],
            (
                "env",
                *(f"--unset={name}" for name in _JOB_VARIABLES),
                *("srun", "--nodes=1", "--ntasks=1", f"--nodelist={self.names[node]}", "--overlap"),
                # The ranks of an agent share its task's cores, and all see the job's GPUs on this node.
                "--cpu-bind=none",
                *((f"--gpus={gpus}",) if gpus else ()),
                "--export=ALL",  # The batch job may have been submitted with --export=NONE.
                "--kill-on-bad-exit=0",
                *argv,
            ),
            environment or {},
            # srun forwards SIGTERM to its task; SIGKILL would leave the task running.
            stop_signal=signal.SIGTERM,
        )


def find_allocation(ranks_per_node: int | None = None) -> SlurmAllocation:
    """Find the allocation of this shell; raise if there is none, if it has ended, or if one of its nodes is down.

    A node gets one rank for each GPU that the job has there, unless `ranks_per_node` is given.
    """
    job, nodelist = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NODELIST")
    if job is None or nodelist is None:
        raise UserMistake(
            "gpuyard does not run inside a Slurm allocation; start one with: salloc --nodes=2, or pass --hosts"
        )
    require_programs("scontrol", "srun")
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1":
        raise UserMistake(
            f"srun started this command {tasks} times; run it without srun, as gpuyard calls srun itself"
        )
    state, gpus_by_node = read_allocation(job)
    if state != "RUNNING":
        raise GpuyardError(
            f"this shell's Slurm allocation, job {job}, has ended ({state or 'Slurm no longer knows it'}); "
            "start another one with: salloc --nodes=2"
        )
    names = expand_hostnames(nodelist)
    gpus = tuple(gpus_by_node.get(name, 0) for name in names)
    place = SlurmAllocation(
        names,
        address=_find_first_address(names, nodelist),
        slots=count_rank_slots(gpus, ranks_per_node),
        allocated_gpus=gpus,
    )
    if not any(gpus):
        return place
    # Only the nodes know whether torch can use the GPUs: this shell may run on a login node.
    return replace(place, gpus=tuple(node.gpus for node in probe_nodes(place)))


def _find_first_address(names: Sequence[str], nodelist: str) -> str | None:
    """Return the first node's address, as Slurm's node names need not resolve; None if the site hides its nodes."""
    try:
        nodes = read_nodes(nodelist)
    except GpuyardError:
        return None
    for name, node in nodes.items():
        if node.is_down:
            raise GpuyardError(
                f"{name} of the Slurm allocation is unavailable (state {node.state}); "
                f"start another allocation with: salloc --nodes={len(names)} --exclude={name}"
            )
    return nodes[names[0]].address if names[0] in nodes else None
