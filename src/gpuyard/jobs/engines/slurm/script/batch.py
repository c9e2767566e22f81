"""On the first node of a job: starts it, again where that is due, and says how each start ended."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import List, Optional

from gpuyard.jobs.engines.slurm.script.launch import (
    meeting_of,
    run_on_node,
    signal_job,
    signal_of,
    start_here,
    start_on_nodes,
    words_of_torchrun,
)
from gpuyard.jobs.engines.slurm.script.nodes import JobNodes, hold_nodes
from gpuyard.jobs.engines.slurm.script.place import Document, TaskDirectory, exact, say
from gpuyard.jobs.engines.slurm.script.running import HeardSignals, Running, ask

KILLED = 128 + int(signal.SIGKILL)
TIMED_OUT = 124  # as of timeout(1): what ended well, and too late, has not succeeded
ROOT_CAUSE = re.compile(r"exitcode\s*:\s*(-?\d+)")
READ_BYTES = 200_000
REQUEUE_TRIES = 30


class Batch:
    """All starts of the job that this run of the script makes."""

    def __init__(self, job: Document, script: str) -> None:
        self.job, self.script = job, script
        # a controller that was killed may start the same number twice
        self.told, self.place = (
            HeardSignals(),
            TaskDirectory(job["directory"], os.urandom(16).hex()),
        )
        self.place.take_messages()
        self.change: Optional[Document] = None
        self.nodes = JobNodes(self.place, job["uuid"])
        if len(self.nodes.all()) != int(os.environ["SLURM_JOB_NUM_NODES"]):
            say("scontrol does not say which nodes the job has")
            sys.exit(1)

    def run(self) -> int:
        if not self.place.claim():
            say("an earlier start of the job does not end, and it is never run twice at once")
            return 1
        self.nodes.release()
        try:
            return self.run_all()
        finally:
            self.nodes.release()

    def run_all(self) -> int:
        earlier = self.place.starts()
        for start in earlier:
            asked_for = start["number"] == self.place.number and self.place.slurm_restarts > 0
            if start["outcome"] == "succeeded" and not asked_for:  # by `scontrol requeue`
                say(f"the job has succeeded already, as Slurm's job {start['number']}")
                return 0
        if earlier and lost(earlier) > self.job["retries"]["lost"]:
            reason = f"it was lost {lost(earlier)} times"
            self.place.keep(dict(earlier[-1], outcome="lost", again=False, reason=reason))
            return 1
        while True:
            start = self.start()
            if start["outcome"] == "checkpointed":
                return self.requeue()
            elsewhere = self.told.stop or self.place.superseded()
            if elsewhere or not start["again"]:
                return int(start["exit_status"])
            if self.change is not None:
                self.nodes.change(self.change)

    def start(self) -> Document:
        """One, from its log to how it ended."""
        nodes = self.nodes.all()
        used = sum((s["ended"] or s["started"]) - s["started"] for s in self.place.starts())
        name, output = self.place.new_log()
        start: Document = {
            "name": name,
            "number": self.place.number,
            "task": self.place.task,
            "nodes": nodes,
            "gpus": len(nodes) * self.job["gpus_per_node"],
            "started": time.time(),
            "ended": None,
            "outcome": "running",
            "exit_status": None,
            "again": False,
            "reason": "",
        }
        self.place.keep(start)
        if len(nodes) == 1:
            running = start_here(self.job, nodes, 0, {"start": name}, output, self.place)
        else:
            with open(self.script, "rb") as file:
                self.place.write("script.py", file.read())
            self.place.tell_to_end("")
            meeting = meeting_of(nodes, self.job["uuid"], name)
            script = self.place.file("script.py")
            running = start_on_nodes(self.nodes, meeting, script, output, self.place)
        watch = BatchWatch(self.job, running, self.told, output, used, self.nodes, name)
        status = running.wait(self.told, watch.look)
        if status:
            time.sleep(0.5)  # where Slurm ends it, this script may hear of it last
        os.close(output)
        start.update(ended=time.time(), exit_status=status)
        start.update(self.judge(status, watch, f"{name}.log"))
        self.place.keep(start)
        self.change = watch.change
        return start

    def judge(self, status: int, watch: "BatchWatch", log: str) -> Document:
        """How it ended, and whether it starts again."""
        job = self.job
        if status and self.place.superseded():
            return {"outcome": "lost", "again": True, "reason": "Slurm has started it elsewhere"}
        if self.told.stop:
            return stopped_by_slurm(self.place)
        if status not in (0, KILLED) and words_of_torchrun(job["argv"]):
            status = root_cause(self.place.file(log)) or status
        if watch.change and (watch.ended or status in (0, 128 + signal_of(job))):
            gpus = watch.change["nodes"] * job["gpus_per_node"]
            reason = f"it was stopped to go on with {gpus} GPUs"
            return {"outcome": "resized", "again": True, "reason": reason}
        if watch.signalled and status in (0, 128 + signal_of(job)):
            resumes = job["resumes"] and not watch.over
            return {
                "outcome": "checkpointed" if resumes else "failed",
                "again": resumes,
                "reason": "its time was over, and it was asked to write a checkpoint and end",
                "exit_status": status if resumes else status or TIMED_OUT,
            }
        if status == 0:
            return {"outcome": "succeeded"}
        earlier = self.place.starts()[:-1]
        if self.nodes.drop_lost():
            outcome, times, reason = "lost", lost(earlier), "nodes that were added to it are lost"
        elif status == KILLED:
            outcome, times, reason = "lost", lost(earlier), "a process of it was killed"
        else:
            outcome, reason = "failed", f"it ended with exit status {status}"
            times = sum(start["outcome"] == "failed" for start in earlier)
        again = times < job["retries"][outcome] and not (watch.signalled and not watch.change)
        return {"outcome": outcome, "again": again, "reason": reason, "exit_status": status}

    def requeue(self) -> int:
        """Slurm ends this script, and starts it again later with the same number."""
        self.nodes.release()
        said = ""
        for _ in range(REQUEUE_TRIES):
            asked = subprocess.run(
                ["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], stderr=subprocess.PIPE
            )
            if asked.returncode == 0:
                time.sleep(60.0)
                return 0
            said = asked.stderr.decode(errors="replace").strip()
            time.sleep(10.0)
        say(f"Slurm did not queue it again: {said}")
        return 1


class BatchWatch:
    """What is due while it runs: a checkpoint when the time is nearly over or its nodes change, the end of its time."""

    def __init__(
        self,
        job: Document,
        running: Running,
        told: HeardSignals,
        output: int,
        used: float,
        nodes: JobNodes,
        start: str,
    ) -> None:
        self.job, self.running, self.told, self.output = job, running, told, output
        self.end = time.time() + job["time_limit"] - used if job["time_limit"] else None
        self.start, self.nodes, self.several = start, nodes, len(nodes.all()) > 1
        self.signalled = self.over = self.passed_on = self.ended = self.commanded = False
        self.change: Optional[Document] = None
        self.patience = 0.0

    def look(self) -> None:
        if self.end is not None and time.time() > self.end:
            self.over = self.told.checkpoint = True
        if self.job["elastic"] and not self.told.checkpoint and not self.signalled:
            self.change = self.nodes.wanted()
        if self.change and self.signalled and time.time() > self.patience:
            self.ended = True  # it has had its time for a checkpoint
            self.running.send(signal.SIGTERM if self.several else signal.SIGKILL)
        if (self.told.checkpoint or self.change) and not self.signalled:
            if not self.commanded:
                self.commanded = True
                self._run_command()
            self.signalled = not self.several or self._told_to_end()
            if not self.several:
                signal_job(self.job, self.running)
            self.patience = time.time() + (self.job["checkpoint"] or {"seconds": 0.0})["seconds"]
        if self.told.stop and not self.passed_on:
            self.passed_on = True
            if slurm_says().get("JobState") == "RUNNING":  # somebody ended this script alone
                self.running.send(signal.SIGTERM)

    def _told_to_end(self) -> bool:
        """Not where the disk is full: it runs on, and the next look tries again."""
        try:
            self.nodes.place.tell_to_end(self.start, patience=0.0)
        except OSError:
            return False
        return True

    def _run_command(self) -> None:
        checkpoint = self.job["checkpoint"]
        if not checkpoint or not checkpoint["command"]:
            return
        variables = dict(os.environb)
        variables.update((exact(k), exact(v)) for k, v in self.job["environment"].items())
        try:
            subprocess.run(
                [exact(word) for word in checkpoint["command"]],
                env=variables,
                cwd=exact(self.job["cwd"]),
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                timeout=checkpoint["seconds"],
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            os.write(self.output, f"gpuyard: the checkpoint's command: {error}\n".encode())


def lost(starts: List[Document]) -> int:
    """One that has no end was lost with its node."""
    return sum(start["outcome"] in ("lost", "running") for start in starts)


def slurm_says() -> Document:
    said = ask("scontrol", "--oneliner", "show", "job", os.environ["SLURM_JOB_ID"])
    return dict(re.findall(r"\b(JobState|Reason|Restarts)=(\S*)", said))


def stopped_by_slurm(place: TaskDirectory) -> Document:
    said = slurm_says()
    if said.get("Reason") == "TimeLimit" or said.get("JobState") == "TIMEOUT":
        return {"outcome": "failed", "again": False, "reason": "its time limit was over"}
    if int(said.get("Restarts", "0")) > place.slurm_restarts:
        return {"outcome": "stopped", "again": True, "reason": "Slurm has queued it again"}
    return {"outcome": "cancelled", "again": False, "reason": "Slurm was asked to end it"}


def root_cause(log: bytes) -> int:
    """torchrun ends with 1 whatever its ranks did, and prints what that was; killed is killed from outside."""
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - READ_BYTES))
        parts = file.read().decode(errors="replace").split("Root Cause")[1:]
    found = [int(code) for part in parts for code in ROOT_CAUSE.findall(part)[:1]]
    first = -int(signal.SIGKILL) if -signal.SIGKILL in found else found[0] if found else 0
    return first if first >= 0 else 128 - first


def main(job: Document, arguments: List[str], script: str) -> None:
    if arguments[:1] == ["node"]:
        sys.exit(run_on_node(job, json.loads(arguments[1])))
    if arguments[:1] == ["more"]:
        sys.exit(hold_nodes(job, arguments[1]))
    sys.exit(Batch(job, script).run())
