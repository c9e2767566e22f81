"""Workers on the nodes of the Slurm allocation that gpuyard itself runs in, one a node, by srun."""

import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.run.launch import Meeting
from gpuyard.run.places.place import Cores, RunPlace, torchrun_environment

_PORTS = (20_000, 30_000)
_SLURM_SECONDS = 20
_JOB = re.compile(r"^JobId=(?P<job>\d+) .*\bJobState=(?P<state>\w+)", re.MULTILINE)
_NODE = re.compile(
    r"^NodeName=(?P<name>\S+) .*\bNodeAddr=(?P<address>\S+) .*\bState=(?P<state>\S+)",
    re.MULTILINE,
)
_NOT_THERE = re.compile(r"DOWN|FAIL|NOT_RESPONDING|\*")


@dataclass(frozen=True)
class SlurmAllocation:
    """A step of one task for each rank; `--overlap`, because the batch script holds the cores too."""

    names: tuple[str, ...]
    address: str | None = None  # of the first; None: its name is one
    port: int = field(default_factory=lambda: random.randrange(*_PORTS))
    dilation: float = 1.0
    # srun passes an end on to its task; one that is killed outright leaves the task running
    stop_signal: signal.Signals = signal.SIGTERM

    def cores_by_worker(self, most_workers: int, *, computing: bool) -> Cores:  # noqa: ARG002
        if most_workers > len(self.names):
            raise UserMistake(
                f"{most_workers} workers need {most_workers} nodes, the allocation has "
                f"{len(self.names)}"
            )
        return ((),) * most_workers

    def identity(self) -> Mapping[str, Any]:
        return {"kind": "slurm", "hosts": list(self.names)}

    def command(self, rank: int, argv: Sequence[str], processes: int) -> Sequence[str]:  # noqa: ARG002
        one = ["--nodes=1", "--ntasks=1", f"--nodelist={self.names[rank]}", "--overlap"]
        # a job that was given --gpus in all would want all of them for each step, on one node
        gpus = ["--gpus=1"] if "SLURM_GPUS" in os.environ else []
        # a batch job may have been submitted with --export=NONE, and a shell in a step has that step's cores
        free = ["env", "--unset=SLURM_CPU_BIND"]
        return [*free, "srun", *one, *gpus, "--export=ALL", "--kill-on-bad-exit=0", *argv]

    def environment(self, rank: int, processes: int) -> Mapping[str, str]:
        return torchrun_environment(rank, processes, self.meeting())

    def meeting(self) -> Meeting:
        return Meeting(self.address or self.names[0], self.port)

    def record(self, workers: int) -> RunPlace:
        return RunPlace(kind="slurm", nodes=self.names[:workers])


def allocation() -> SlurmAllocation:
    """The allocation of this shell; raises where there is none, or not any more, or a node of it is down."""
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
            f"srun has started this command {tasks} times; leave srun away, gpuyard calls it itself"
        )
    _check_is_running(job)
    names = tuple(_scontrol("show", "hostnames", nodes).split())
    return SlurmAllocation(names, _address_of_first(names, nodes))


def _check_is_running(job: str) -> None:
    try:
        listed = _scontrol("show", "job", job)
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
                f"{name} of the Slurm allocation is not there (Slurm says {found['state']}); "
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
