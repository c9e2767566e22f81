"""The nodes of a running job: those that Slurm gave it, and those that companions hold for it.

A companion is another job of Slurm's, of the same user, that does nothing but keep nodes as long as the job runs. So a job
gets more without giving up what it has. It gives some back by ending a companion, or by having Slurm shrink its own job.
"""

import fcntl
import json
import os
import re
import subprocess
import time
from typing import Any, Dict, List, Optional, Tuple

from gpuyard.jobs.engines.slurm.script.place import Document, TaskDirectory, say
from gpuyard.jobs.engines.slurm.script.running import ask

WANTED = "wanted.json"  # the nodes that the job should have, as whoever looks at all jobs has it
COMPANION = re.compile(r"more-(\d+)\.json")
HOLD_SECONDS = 5.0
ASKED_SECONDS = 120.0  # in which whoever started a companion has said what for
SHRINK_TRIES = 10
OF_ANOTHER = "ANOTHER"
COMMENT = "gpuyard:"
COMPANION_COMMENT = "gpuyard-more:"
RUNS = ("RUNNING", "RESIZING", "SIGNALING", "SUSPENDED", "STOPPED")


def state_of(number: str, comment: str) -> str:
    """As Slurm calls it; nothing where it does not say. A number can come to be another job's."""
    said = ask("squeue", "--noheader", "--states=all", "--format=%T %k", f"--jobs={number}").strip()
    state, _, found = said.partition(" ")
    return state if not said or found == comment else OF_ANOTHER


def nodes_of(number: str) -> List[str]:
    listed = ask("squeue", "--noheader", "--states=all", "--format=%N", f"--jobs={number}").strip()
    return ask("scontrol", "show", "hostnames", listed).split() if listed else []


class JobNodes:
    """In the order of the ranks: (Slurm's number, nodes), the job's own first."""

    def __init__(self, place: TaskDirectory, uuid: str) -> None:
        self.place = place
        self.comment = COMPANION_COMMENT + uuid
        self.own = os.environ["SLURM_JOB_ID"]
        listed = ask("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"])
        self.parts = [(self.own, listed.split() or [os.environ["SLURMD_NODENAME"]])]

    def all(self) -> List[str]:
        return [node for _, nodes in self.parts for node in nodes]

    def wanted(self) -> Optional[Document]:
        """What it was asked to change, if it can do so now: nodes that are still to come are waited for."""
        found = read_document(self.place, WANTED)
        if found is None or found.get("refused") or found.get("number") != int(self.own):
            return None
        if found["more"] and read_document(self.place, f"more-{found['more']}.json") is None:
            return None
        return found

    def change(self, wanted: Document) -> None:
        """While nothing of the job runs."""
        left, kept, refused = int(wanted["nodes"]), [], ""
        for number, nodes in self.parts + self._companion(wanted):
            keep = nodes[:left]
            left -= len(keep)
            if not keep:
                self._end(number)
            elif len(keep) < len(nodes):
                refused = self._shrink(number, len(keep))
                keep = nodes_of(number) or nodes
            if keep:
                kept.append((number, keep))
        self.parts = kept
        if refused:
            say(f"Slurm does not let the job shrink: {refused}")
            self.place.write(WANTED, json.dumps({"refused": refused}).encode())
        else:
            self.place.remove(WANTED)

    def drop_lost(self) -> bool:
        """Whether companions have ended under the job; their nodes are then no longer counted on."""
        there = [(n, nodes) for n, nodes in self.parts if n == self.own or self._is_there(n)]
        lost = len(there) < len(self.parts)
        self.parts = there
        return lost

    def release(self) -> None:
        """All companions: those that wait, and those that an earlier run of the script left behind, as well."""
        self.parts = self.parts[:1]
        waiting = (read_document(self.place, WANTED) or {}).get("more")
        found = [COMPANION.fullmatch(name.decode()) for name in os.listdir(self.place.path)]
        for number in {match.group(1) for match in found if match} | ({waiting} - {None}):
            self._end(str(number))
        self.place.remove(WANTED)

    def _companion(self, wanted: Document) -> List[Tuple[str, List[str]]]:
        number = wanted["more"]
        if not number or not self._is_there(number):
            return []
        held = read_document(self.place, f"more-{number}.json") or {"nodes": []}
        if held["nodes"]:
            self.place.write(f"more-{number}.json", json.dumps(dict(held, taken=True)).encode())
        return [(number, held["nodes"])]

    def _is_there(self, number: str) -> bool:
        """Slurm that says nothing has not taken it away."""
        return (state_of(number, self.comment) or RUNS[0]) in RUNS

    def _end(self, number: str) -> None:
        if state_of(number, self.comment) not in ("", OF_ANOTHER):
            ask("scancel", number)
        self.place.remove(f"more-{number}.json")

    def _shrink(self, number: str, nodes: int) -> str:
        """Why Slurm did not; nothing where it did."""
        said = ""
        for _ in range(SHRINK_TRIES):  # it may have to write down the last change first
            asked = subprocess.run(
                ["scontrol", "update", f"JobId={number}", f"NumNodes={nodes}"],
                cwd=self.place.path,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for ending in ("sh", "csh"):  # which it writes for shells to read
                self.place.remove(f"slurm_job_{number}_resize.{ending}")
            said = asked.stderr.decode(errors="replace").strip()
            if asked.returncode == 0:
                if number == self.own:
                    tell_environment(nodes_of(number))
                return ""
            if "try again" not in said:
                break
            time.sleep(3.0)
        return said or "it does not say why"


def read_document(place: TaskDirectory, name: str) -> Optional[Document]:
    try:
        with open(place.file(name), "rb") as file:
            found: Any = json.loads(file.read().decode())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def tell_environment(nodes: List[str]) -> None:
    """srun, and what the job starts, read there what the allocation is."""
    for name in ("SLURM_JOB_CPUS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS"):
        os.environ.pop(name, None)
    for name in ("SLURM_NODELIST", "SLURM_JOB_NODELIST"):
        os.environ[name] = ",".join(nodes)
    for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"):
        os.environ[name] = str(len(nodes))


def environment_of(number: str, own: str) -> Dict[bytes, bytes]:
    """For srun, where it starts something in a companion."""
    if number == own:
        return dict(os.environb)
    kept = (b"SLURM_CONF",)
    return {n: v for n, v in os.environb.items() if n in kept or not n.startswith(b"SLURM")}


def hold_nodes(job: Document, number: str) -> int:
    """As a companion of Slurm's job `number`, until that has ended."""
    place, began = TaskDirectory(job["directory"], ""), time.time()
    own = str(place.number)
    name, nodes = f"more-{own}.json", nodes_of(own)
    main = COMMENT + job["uuid"]
    if nodes and state_of(number, main) in RUNS:
        place.write(name, json.dumps({"nodes": nodes, "taken": False}).encode(), patience=0.0)
        while (state_of(number, main) or RUNS[0]) in RUNS and not lock_is_free(place):
            time.sleep(HOLD_SECONDS)
            held = read_document(place, name) or {"taken": False}
            asked = (read_document(place, WANTED) or {}).get("more") == own
            if not held["taken"] and not asked and time.time() > began + ASKED_SECONDS:
                break
    place.remove(name)
    return 0


def lock_is_free(place: TaskDirectory) -> bool:
    try:
        fcntl.flock(place.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(place.lock, fcntl.LOCK_UN)
    return True
