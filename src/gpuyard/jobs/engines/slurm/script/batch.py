"""The job's main program on its first node: starts the job, restarts it if necessary, and records each result."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import List, Optional, Tuple

from gpuyard.jobs.engines.slurm.script.launch import (
    NodeWatch,
    add_variables,
    checkpoint_signal,
    count_torchrun_words,
    create_rendezvous,
    run_on_node,
    signal_job,
    start_here,
    start_on_nodes,
)
from gpuyard.jobs.engines.slurm.script.nodes import (
    ACTIVE_STATES,
    COMMENT,
    JobNodes,
    hold_nodes,
    read_state,
)
from gpuyard.jobs.engines.slurm.script.processes import ProcessGroup, SignalState, run_slurm
from gpuyard.jobs.engines.slurm.script.task_directory import (
    Document,
    TaskDirectory,
    encode,
    log_message,
)

KILLED = 128 + int(signal.SIGKILL)
TIMED_OUT = (
    124  # The status of timeout(1): a job that stops early on its time limit has not succeeded.
)
ROOT_CAUSE = re.compile(r"exitcode\s*:\s*(-?\d+)")
LOG_TAIL_BYTES = 200_000
REQUEUE_ATTEMPTS = 30
CONTROLLER_ATTEMPTS, CONTROLLER_POLL_SECONDS = 30, 10.0
SRUN_FAILED = "Slurm did not start its processes on all nodes, or did not keep them"
SRUN_DELAY_SECONDS = 60.0  # Slurm needs time to notice that a node is down.


class Batch:
    """One run of the script, which may start the job several times."""

    def __init__(self, job: Document, script: str) -> None:
        self.job, self.script = job, script
        self.signals = SignalState()
        # A restored controller may run the same job number twice, so each run has its own token.
        self.directory = TaskDirectory(job["directory"], os.urandom(16).hex())
        self.directory.redirect_messages()
        self.nodes = JobNodes(self.directory, job["uuid"])
        if len(self.nodes.all()) != int(os.environ["SLURM_JOB_NUM_NODES"]):
            log_message("scontrol did not list the nodes of the job")
            sys.exit(1)

    def run(self) -> int:
        if not self.directory.acquire():
            log_message("an earlier start of the job is still running; it never runs twice at once")
            return 1
        self.nodes.release()
        try:
            return self.run_starts()
        finally:
            self.nodes.release()

    def run_starts(self) -> int:
        earlier = self.directory.starts()
        result = find_result(earlier)
        if result is not None:  # Slurm can requeue a job that has finished.
            log_message(f"the job has already {result['outcome']} as Slurm job {result['number']}")
            return 0 if result["outcome"] == "succeeded" else int(result["exit_status"] or 1)
        if earlier and count_lost(earlier) > self.job["retries"]["lost"]:
            reason = f"it was lost {count_lost(earlier)} times"
            self.directory.record_start(
                dict(earlier[-1], outcome="lost", again=False, reason=reason)
            )
            return 1
        while not self.signals.stop:
            start, resize, silent_node = self.run_start()
            lost_node = silent_node is not None and start["again"] and not self.signals.stop
            if start["outcome"] == "checkpointed" or lost_node:
                return self.requeue()  # This also stops processes that remain on other nodes.
            if self.signals.stop or self.directory.is_superseded() or not start["again"]:
                return int(start["exit_status"])
            if start["reason"] == SRUN_FAILED:
                self.signals.sleep_until_stop(SRUN_DELAY_SECONDS)
            if len(start["nodes"]) > 1 and not self.has_allocation():
                return int(start["exit_status"] or 1)
            if resize is not None:
                self.nodes.resize(resize)
        return KILLED

    def run_start(self) -> Tuple[Document, Optional[Document], Optional[str]]:
        """Run one start; return its record, and the change of nodes or the silent node for which it was stopped."""
        nodes = self.nodes.all()
        used = sum((s["ended"] or s["started"]) - s["started"] for s in self.directory.starts())
        name, output = self.directory.create_log()
        start: Document = {
            "name": name,
            "number": self.directory.number,
            "task": self.directory.task,
            "nodes": nodes,
            "gpus": len(nodes) * self.job["gpus_per_node"],
            "started": time.time(),
            "ended": None,
            "outcome": "running",
            "exit_status": None,
            "again": False,
            "reason": "",
        }
        self.directory.record_start(start)
        if len(nodes) == 1:
            processes = start_here(self.job, nodes, 0, {"start": name}, output, self.directory)
        else:
            with open(self.script, "rb") as file:
                self.directory.write("script.py", file.read())
            self.directory.request_checkpoint("")
            self.directory.create_signs_of_life(name, len(nodes))
            rendezvous = create_rendezvous(nodes, self.job["uuid"], name)
            script = self.directory.file("script.py")
            processes = start_on_nodes(self.nodes, rendezvous, script, output, self.directory)
        monitor = StartMonitor(self, processes, output, used, name)
        status = processes.wait(self.signals, monitor.poll)
        if status:
            self.signals.expect_stop(status)
        os.close(output)
        self.directory.remove_signs_of_life(name, len(nodes))
        start.update(ended=time.time(), exit_status=status)
        start.update(self.judge(status, monitor, f"{name}.log"))
        self.directory.record_start(start)
        return start, monitor.resize, monitor.silent_node

    def judge(self, status: int, monitor: "StartMonitor", log: str) -> Document:
        """Decide the outcome of a start, and whether the job starts again."""
        job = self.job
        if status and self.directory.is_superseded():
            return {"outcome": "lost", "again": True, "reason": "Slurm started it elsewhere"}
        if self.signals.stop:
            return judge_stop(self.directory)
        if status not in (0, KILLED) and count_torchrun_words(job["argv"]):
            status = find_root_cause(self.directory.file(log)) or status
        stopped_on_request = status in (0, 128 + checkpoint_signal(job))
        if monitor.resize and (monitor.killed or stopped_on_request):
            gpus = monitor.resize["nodes"] * job["gpus_per_node"]
            reason = f"it was stopped to continue with {gpus} GPUs"
            return {"outcome": "resized", "again": True, "reason": reason}
        if monitor.signaled and stopped_on_request:
            continues = job["requeues"] and not monitor.time_is_up
            return {
                "outcome": "checkpointed" if continues else "failed",
                "again": continues,
                "reason": "it reached its time limit and got the signal to write a checkpoint and exit",
                "exit_status": status if continues else status or TIMED_OUT,
            }
        if status == 0:
            return {"outcome": "succeeded"}
        earlier = self.directory.starts()[:-1]
        if self.nodes.drop_lost():
            outcome, reason = "lost", "it lost the nodes of a companion job"
        elif monitor.silent_node is not None:
            outcome, reason = "lost", f"its processes on {monitor.silent_node} vanished"
        elif status == KILLED:
            outcome, reason = "lost", "one of its processes was killed"
        elif monitor.multi_node and not self.directory.has_node_failure(monitor.start, status):
            outcome, reason = "lost", SRUN_FAILED
        else:
            outcome, reason = "failed", f"it exited with status {status}"
        failures = sum(start["outcome"] == "failed" for start in earlier)
        count = count_lost(earlier) if outcome == "lost" else failures
        timed_out = monitor.signaled and not monitor.resize
        again = count < job["retries"][outcome] and not timed_out
        return {"outcome": outcome, "again": again, "reason": reason, "exit_status": status}

    def has_allocation(self) -> bool:
        """Return whether Slurm still runs this job, once its controller answers; srun would fail without both."""
        for _ in range(CONTROLLER_ATTEMPTS):
            state = read_state(self.nodes.own, COMMENT + self.job["uuid"])
            if state:
                return state in ACTIVE_STATES
            self.signals.sleep_until_stop(CONTROLLER_POLL_SECONDS)
        return False

    def requeue(self) -> int:
        """Let Slurm stop this script and start it again later with the same number."""
        self.nodes.release()
        message = ""
        for _ in range(REQUEUE_ATTEMPTS):
            process = subprocess.run(
                ["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], stderr=subprocess.PIPE
            )
            if process.returncode == 0:
                time.sleep(60.0)
                return 0
            message = process.stderr.decode(errors="replace").strip()
            time.sleep(10.0)
        log_message(f"Slurm did not requeue the job: {message}")
        return 1


class StartMonitor:
    """Watches a running start: asks for a checkpoint before the time limit or a change of nodes, and enforces the limit."""

    def __init__(
        self, batch: Batch, processes: ProcessGroup, output: int, used_seconds: float, start: str
    ) -> None:
        self.job, self.signals, self.nodes = batch.job, batch.signals, batch.nodes
        self.processes, self.output, self.start = processes, output, start
        limit = self.job["time_limit"]
        self.end = time.time() + limit - used_seconds if limit else None
        self.multi_node = len(self.nodes.all()) > 1
        self.watch = NodeWatch(batch.directory, start, self.nodes.all())
        self.silent_node: Optional[str] = None
        self.signaled = self.time_is_up = self.stop_forwarded = self.killed = False
        self.command_ran = False
        self.resize: Optional[Document] = None
        self.deadline = 0.0

    def poll(self) -> None:
        if self.multi_node and self.silent_node is None:
            self.silent_node = self.watch.find_silent()
        if self.silent_node is not None:
            self.processes.send(signal.SIGKILL)
        if self.end is not None and time.time() > self.end:
            self.time_is_up = self.signals.checkpoint = True
        if self.job["elastic"] and not self.signals.checkpoint and not self.signaled:
            self.resize = self.nodes.read_resize()
        if self.resize and self.signaled and time.time() > self.deadline:
            self.killed = True  # It had enough time for a checkpoint.
            self.processes.send(signal.SIGTERM if self.multi_node else signal.SIGKILL)
        if (self.signals.checkpoint or self.resize) and not self.signaled:
            self._request_checkpoint()
        if self.signals.stop and not self.stop_forwarded:
            self.stop_forwarded = True
            if read_job_info().get("JobState") == "RUNNING":  # Only this script was signaled.
                self.processes.send(signal.SIGTERM)

    def _request_checkpoint(self) -> None:
        if not self.command_ran:
            self.command_ran = True
            self._run_checkpoint_command()
        if self.multi_node:
            try:
                self.nodes.directory.request_checkpoint(self.start, seconds=0.0)
            except OSError:
                return  # The disk is full; the next poll tries again.
        else:
            signal_job(self.job, self.processes)
        self.signaled = True
        self.deadline = time.time() + (self.job["checkpoint"] or {"seconds": 0.0})["seconds"]

    def _run_checkpoint_command(self) -> None:
        checkpoint = self.job["checkpoint"]
        if not checkpoint or not checkpoint["command"]:
            return
        try:
            subprocess.run(
                [encode(word) for word in checkpoint["command"]],
                env=add_variables(self.job["environment"]),
                cwd=encode(self.job["cwd"]),
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                timeout=checkpoint["seconds"],
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            os.write(self.output, f"gpuyard: the checkpoint command failed: {error}\n".encode())


def find_result(starts: List[Document]) -> Optional[Document]:
    """Return the start with which the job finished: one that succeeded, or the last one if nothing starts it again."""
    for start in starts:
        if start["outcome"] == "succeeded":
            return start
    last = starts[-1] if starts else {"outcome": "", "again": False}
    return last if last["outcome"] in ("failed", "lost") and not last["again"] else None


def count_lost(starts: List[Document]) -> int:
    """Count the lost starts; one without a result was lost with its node."""
    return sum(start["outcome"] in ("lost", "running") for start in starts)


def read_job_info() -> Document:
    output = run_slurm("scontrol", "--oneliner", "show", "job", os.environ["SLURM_JOB_ID"])
    return dict(re.findall(r"\b(JobState|Reason|Restarts)=(\S*)", output))


def judge_stop(directory: TaskDirectory) -> Document:
    """Decide the outcome of a start that Slurm stopped."""
    info = read_job_info()
    if not info:
        reason = "Slurm stopped it and did not answer why"
        return {"outcome": "stopped", "again": True, "reason": reason}
    if info.get("Reason") == "TimeLimit" or info.get("JobState") == "TIMEOUT":
        return {"outcome": "failed", "again": False, "reason": "it reached its time limit"}
    if int(info.get("Restarts", "0")) > directory.slurm_restarts:
        return {"outcome": "stopped", "again": True, "reason": "Slurm requeued it"}
    return {"outcome": "cancelled", "again": False, "reason": "it was canceled"}


def find_root_cause(log: bytes) -> int:
    """Find the failed rank's exit status in torchrun's output: torchrun itself always exits with 1.

    A rank that was killed counts first: its failure came from outside.
    """
    with open(log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
        parts = file.read().decode(errors="replace").split("Root Cause")[1:]
    codes = [int(code) for part in parts for code in ROOT_CAUSE.findall(part)[:1]]
    first = -int(signal.SIGKILL) if -signal.SIGKILL in codes else codes[0] if codes else 0
    return first if first >= 0 else 128 - first


def main(job: Document, arguments: List[str], script: str) -> None:
    if arguments[:1] == ["node"]:
        status = run_on_node(job, json.loads(arguments[1]))
        sys.stderr.flush()
        os._exit(status)  # A signal during Python's cleanup would replace the status.
    if arguments[:1] == ["companion"]:
        sys.exit(hold_nodes(job, arguments[1]))
    sys.exit(Batch(job, script).run())
