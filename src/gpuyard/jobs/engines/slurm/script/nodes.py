"""The nodes of a running job: those that Slurm gave it, and those that companion jobs hold for it.

A companion is a Slurm job of the same user that only holds nodes while the job runs. So a job can grow without giving up
the nodes that it has. To shrink, it cancels a companion or lets Slurm shrink the job itself.
"""

import os
import re
import subprocess
import time
from typing import Dict, List, Optional, Tuple

from gpuyard.jobs.engines.slurm.script.processes import run_slurm
from gpuyard.jobs.engines.slurm.script.task_directory import Document, TaskDirectory, log_message

RESIZE_FILE = "resize.json"  # The number of nodes that `gpuyard queue rebalance` requests.
COMPANION_FILE = re.compile(r"companion-(\d+)\.json")
COMPANION_POLL_SECONDS = 5.0
COMPANION_REQUEST_SECONDS = 120.0  # A companion without a request exits after this time.
SHRINK_ATTEMPTS = 10
OTHER_JOB = "OTHER_JOB"
COMMENT = "gpuyard:"
COMPANION_COMMENT = "gpuyard-companion:"
ACTIVE_STATES = ("RUNNING", "RESIZING", "SIGNALING", "SUSPENDED", "STOPPED")


def read_state(number: str, comment: str) -> str:
    """Return Slurm's state of a job; empty if Slurm does not answer, OTHER_JOB if the number was reused."""
    output = run_slurm(
        "squeue", "--noheader", "--states=all", "--format=%T %k", f"--jobs={number}"
    ).strip()
    state, _, actual = output.partition(" ")
    return state if not output or actual == comment else OTHER_JOB


def is_active(number: str, comment: str) -> bool:
    """Return whether a job still has its nodes; assume so if Slurm does not answer."""
    return (read_state(number, comment) or ACTIVE_STATES[0]) in ACTIVE_STATES


def list_nodes(number: str) -> List[str]:
    nodes = run_slurm("squeue", "--noheader", "--states=all", "--format=%N", f"--jobs={number}")
    return (
        run_slurm("scontrol", "show", "hostnames", nodes.strip()).split() if nodes.strip() else []
    )


class JobNodes:
    """The allocations of a job in the order of its ranks: (Slurm's job number, nodes), the job's own first."""

    def __init__(self, directory: TaskDirectory, uuid: str) -> None:
        self.directory = directory
        self.comment = COMPANION_COMMENT + uuid
        self.own = os.environ["SLURM_JOB_ID"]
        names = run_slurm("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"])
        self.allocations = [(self.own, names.split() or [os.environ["SLURMD_NODENAME"]])]

    def all(self) -> List[str]:
        return [node for _, nodes in self.allocations for node in nodes]

    def read_resize(self) -> Optional[Document]:
        """Return the requested change if it is possible now: the nodes of a companion must be there."""
        resize = self.directory.read_json(RESIZE_FILE)
        if resize is None or resize.get("refused") or resize.get("number") != int(self.own):
            return None
        companion = resize["companion"]
        if companion and self.directory.read_json(f"companion-{companion}.json") is None:
            return None
        return resize

    def resize(self, resize: Document) -> None:
        """Change the nodes while no process of the job runs."""
        remaining, kept, refusal = int(resize["nodes"]), [], ""
        for number, nodes in self.allocations + self._claim_companion(resize):
            keep = nodes[:remaining]
            remaining -= len(keep)
            if not keep:
                self._cancel(number)
            elif len(keep) < len(nodes):
                refusal = self._shrink(number, len(keep))
                keep = list_nodes(number) or nodes
            if keep:
                kept.append((number, keep))
        self.allocations = kept
        if refusal:
            log_message(f"Slurm does not let the job shrink: {refusal}")
            self.directory.write_json(RESIZE_FILE, {"refused": refusal})
        else:
            self.directory.remove(RESIZE_FILE)

    def drop_lost(self) -> bool:
        """Drop the nodes of companions that have ended; return whether there were any."""
        active = [a for a in self.allocations if a[0] == self.own or is_active(a[0], self.comment)]
        lost = len(active) < len(self.allocations)
        self.allocations = active
        return lost

    def release(self) -> None:
        """Cancel all companions, including waiting ones and those of an earlier run of the script."""
        self.allocations = self.allocations[:1]
        waiting = (self.directory.read_json(RESIZE_FILE) or {}).get("companion")
        matches = [COMPANION_FILE.fullmatch(n.decode()) for n in os.listdir(self.directory.path)]
        for number in {match.group(1) for match in matches if match} | ({waiting} - {None}):
            self._cancel(str(number))
        self.directory.remove(RESIZE_FILE)

    def _claim_companion(self, resize: Document) -> List[Tuple[str, List[str]]]:
        number = resize["companion"]
        if not number or not is_active(number, self.comment):
            return []
        companion = self.directory.read_json(f"companion-{number}.json") or {"nodes": []}
        if companion["nodes"]:
            self.directory.write_json(f"companion-{number}.json", dict(companion, claimed=True))
        return [(number, companion["nodes"])]

    def _cancel(self, number: str) -> None:
        if read_state(number, self.comment) not in ("", OTHER_JOB):
            run_slurm("scancel", number)
        self.directory.remove(f"companion-{number}.json")

    def _shrink(self, number: str, nodes: int) -> str:
        """Let Slurm shrink a job; return its reason if it refuses."""
        message = ""
        for _ in range(SHRINK_ATTEMPTS):  # Slurm may still be saving the last change.
            update = subprocess.run(
                ["scontrol", "update", f"JobId={number}", f"NumNodes={nodes}"],
                cwd=self.directory.path,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for suffix in ("sh", "csh"):  # Slurm writes these files for shells.
                self.directory.remove(f"slurm_job_{number}_resize.{suffix}")
            message = update.stderr.decode(errors="replace").strip()
            if update.returncode == 0:
                if number == self.own:
                    update_environment(list_nodes(number))
                return ""
            if "try again" not in message:
                break
            time.sleep(3.0)
        return message or "no reason given"


def update_environment(nodes: List[str]) -> None:
    """Describe the new allocation in the variables that srun and the job read."""
    for name in ("SLURM_JOB_CPUS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS"):
        os.environ.pop(name, None)
    for name in ("SLURM_NODELIST", "SLURM_JOB_NODELIST"):
        os.environ[name] = ",".join(nodes)
    for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"):
        os.environ[name] = str(len(nodes))


def srun_environment(number: str, own: str) -> Dict[bytes, bytes]:
    """Return the environment for an srun in the job's own allocation or in a companion's."""
    variables = os.environb.items()
    return {
        n: v for n, v in variables if number == own or n == b"SLURM_CONF" or not n.startswith(b"SLURM")
    }  # fmt: skip


def hold_nodes(job: Document, number: str) -> int:
    """Hold nodes as a companion until Slurm's job `number` has ended."""
    directory, began = TaskDirectory(job["directory"], ""), time.time()
    own = str(directory.number)
    name, nodes = f"companion-{own}.json", list_nodes(own)
    comment = COMMENT + job["uuid"]
    if nodes and read_state(number, comment) in ACTIVE_STATES:
        directory.write_json(name, {"nodes": nodes, "claimed": False}, seconds=0.0)
        while is_active(number, comment) and not directory.is_unlocked():
            time.sleep(COMPANION_POLL_SECONDS)
            claimed = (directory.read_json(name) or {"claimed": False})["claimed"]
            requested = (directory.read_json(RESIZE_FILE) or {}).get("companion") == own
            late = time.time() > began + COMPANION_REQUEST_SECONDS
            if late and not claimed and not requested:
                break
    directory.remove(name)
    return 0
