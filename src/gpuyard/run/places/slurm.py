"""Workers on the nodes of the Slurm allocation that gpuyard itself runs in, started by srun."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.run.places.hosts import OtherMachines
from gpuyard.run.places.place import Meeting, PlaceKind, room_for_ranks
from gpuyard.run.probe import ask
from gpuyard.run.process import Command

_SLURM_SECONDS = 20
_JOB = re.compile(r"^JobId=(?P<job>\d+) .*\bJobState=(?P<state>\w+)", re.MULTILINE)
_NODE = re.compile(
    r"^NodeName=(?P<name>\S+) .*\bNodeAddr=(?P<address>\S+) .*\bState=(?P<state>\S+)",
    re.MULTILINE,
)
_NOT_THERE = re.compile(r"DOWN|FAIL|NOT_RESPONDING|\*")
_ALLOCATED = re.compile(r"\bNodes=(?P<nodes>\S+) CPU_IDs=\S* Mem=\S* GRES=(?P<gres>\S*)")
_GPUS = re.compile(r"\bgpu(?::[^:,(]+)?:(\d+)")  # gpu:t4:2(IDX:0-1), with a type or without
# what the job was given in all or a task; a step on one node says itself what it needs
_NOT_OF_A_STEP = (
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_PER_TASK",
    "SLURM_TRES_PER_TASK",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_CPU_BIND",  # of the step whose shell this is
)


@dataclass(frozen=True)
class SlurmAllocation(OtherMachines):
    """A step of one task for each process; `--overlap`, because the batch script holds the cores too."""

    address: str | None = None  # of the first; None: its name is one
    allocated_gpus: tuple[int, ...] = ()

    kind: ClassVar[PlaceKind] = "slurm"

    @property
    def meeting(self) -> Meeting:
        return Meeting(self.address or self.names[0], self.port)

    def command(
        self, node: int, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Command:
        free = ("env", *(f"--unset={name}" for name in _NOT_OF_A_STEP))
        one = ("--nodes=1", "--ntasks=1", f"--nodelist={self.names[node]}", "--overlap")
        # an agent's ranks share the cores of its task, and all see the GPUs of the job on this node
        bound = ("--cpu-bind=none",)
        count = self.allocated_gpus[node] if self.allocated_gpus else 0
        gpus = (f"--gpus={count}",) if count else ()
        # a batch job may have been submitted with --export=NONE
        passed_on = ("--export=ALL", "--kill-on-bad-exit=0")
        return Command(
            self.names[node],
            (*free, "srun", *one, *bound, *gpus, *passed_on, *argv),
            environment or {},
            # srun passes an end on to its task; one that is killed outright leaves the task running
            stop_signal=signal.SIGTERM,
        )


def allocation(ranks_per_node: int | None = None) -> SlurmAllocation:
    """The allocation of this shell; raises where there is none, or not any more, or a node of it is down.

    A node has one rank for each GPU that the job has there, or as many as are asked for.
    """
    job, nodes = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NODELIST")
    if job is None or nodes is None:
        raise UserMistake(
            "this is not inside a Slurm allocation; start one with: salloc --nodes=2, or name --hosts"
        )
    for program in ("scontrol", "srun"):
        if shutil.which(program) is None:
            raise MissingRequirement(
                f"ranks are started by Slurm's srun, and {program} is not on the PATH here"
            )
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks != "1":
        raise UserMistake(
            f"srun has started this command {tasks} times; run it without srun, gpuyard calls srun itself"
        )
    listed = _running(job)
    names = _hostnames(nodes)
    allocated = _gpus_by_node(listed)
    counts = tuple(allocated.get(name, 0) for name in names)
    found = SlurmAllocation(
        names,
        address=_address_of_first(names, nodes),
        room=room_for_ranks(counts, ranks_per_node),
        allocated_gpus=counts,
    )
    if not any(counts):
        return found
    # whether torch can use them is known there alone: this shell may be on a login node
    return replace(found, gpus=tuple(one.gpus for one in ask(found)))


def _running(job: str) -> str:
    """What Slurm says of it."""
    try:
        listed = _scontrol("--details", "show", "job", job)
    except GpuyardError as error:
        if "Invalid job id" not in str(error):
            raise
        listed = ""  # Slurm forgets a job some minutes after its end
    states = {found["job"]: found["state"] for found in _JOB.finditer(listed)}
    state = states.get(job, "Slurm does not know it any more")
    if state != "RUNNING":
        raise GpuyardError(
            f"the Slurm allocation of this shell, job {job}, has ended ({state}); "
            "start another one with: salloc --nodes=2"
        )
    return listed


def _gpus_by_node(listed: str) -> dict[str, int]:
    counts = {}
    for found in _ALLOCATED.finditer(listed):
        for name in _hostnames(found["nodes"]):
            counts[name] = sum(map(int, _GPUS.findall(found["gres"])))
    return counts


def _hostnames(nodes: str) -> tuple[str, ...]:
    return tuple(_scontrol("show", "hostnames", nodes).split())


def _address_of_first(names: Sequence[str], nodes: str) -> str | None:
    """Slurm's own names of nodes need not resolve; None where a site hides its nodes from users."""
    try:
        listed = _scontrol("show", "node", nodes)
    except GpuyardError:
        return None
    known = {found["name"]: found for found in _NODE.finditer(listed)}
    for name, found in known.items():
        if _NOT_THERE.search(found["state"]):
            raise GpuyardError(
                f"{name} of the Slurm allocation is not available (Slurm says {found['state']}); "
                f"start another allocation with: salloc --nodes={len(names)} --exclude={name}"
            )
    return known[names[0]]["address"] if names[0] in known else None


def _scontrol(*words: str) -> str:
    try:
        said = subprocess.run(
            ["scontrol", "--oneliner", *words],  # noqa: S607  on the PATH, as was checked
            capture_output=True,
            text=True,
            check=False,
            timeout=_SLURM_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise GpuyardError(
            f"Slurm's controller has not answered for {_SLURM_SECONDS} s; see whether it is up: "
            "scontrol ping"
        ) from None
    except OSError as error:
        raise GpuyardError(f"scontrol can't be started: {error.strerror}") from error
    if said.returncode != 0:
        raise GpuyardError(
            f"scontrol {' '.join(words)} failed: {said.stderr.strip() or said.returncode}; "
            "see whether Slurm is up: scontrol ping"
        )
    return said.stdout
