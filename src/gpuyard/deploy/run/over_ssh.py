"""Run the command on every machine over ssh. It stops everywhere when this process ends or one machine fails."""

import queue
import subprocess
import threading
import time
from collections.abc import Callable

from gpuyard.deploy.run.plan import RunPlan
from gpuyard.errors import GpuyardError
from gpuyard.jobs.torchrun import RootCauseFinder, is_torchrun
from gpuyard.run.attached import STOP_SECONDS
from gpuyard.run.process import Command, start, stop

WriteLine = Callable[[str], None]
_SSH_FAILED = 255
_FAILURE_DELAY_SECONDS = 10.0  # the other machines report their errors meanwhile
_LEAVE_SECONDS = STOP_SECONDS + 10.0


def run_over_ssh(plan: RunPlan, write: WriteLine) -> int:
    """Run the command, and return the status of the first machine that fails, or 0."""
    commands = [
        plan.over_ssh(node, plan.node_command(node), plan.node_variables(node))
        for node in range(len(plan.hosts))
    ]
    run = _Run(plan, commands, write)
    try:
        return run.wait()
    finally:
        run.close()


class _Run:
    """The ssh processes, and the lines that they print."""

    def __init__(self, plan: RunPlan, commands: list[Command], write: WriteLine) -> None:
        self._plan, self._write = plan, write
        self._lines: queue.Queue[tuple[int, str | None]] = queue.Queue()
        self._started = [(each, start(each, stderr=subprocess.STDOUT)) for each in commands]
        self._causes = [RootCauseFinder() for _ in commands] if is_torchrun(plan.command) else []
        for node, (_, process) in enumerate(self._started):
            threading.Thread(target=self._read, args=(node, process), daemon=True).start()

    def wait(self) -> int:
        running, failed, deadline = len(self._started), 0, None
        while running:
            try:
                node, line = self._lines.get(
                    timeout=None if deadline is None else max(0.0, deadline - time.monotonic())
                )
            except queue.Empty:
                self._close_connections()
                deadline = None
                continue
            if line is not None:
                self._show(node, line)
                continue
            running -= 1
            status = self._started[node][1].wait()
            if status and not failed:
                self._check_connection(node, status)
                failed = (self._causes[node].status if self._causes else 0) or status
                deadline = time.monotonic() + _FAILURE_DELAY_SECONDS
        return failed

    def close(self) -> None:
        """Stop what still runs; each machine stops its processes when its connection closes."""
        self._close_connections()
        deadline = time.monotonic() + _LEAVE_SECONDS
        for _, process in self._started:
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        stop(self._started)

    def _close_connections(self) -> None:
        for _, process in self._started:
            if process.stdin is not None:
                process.stdin.close()

    def _read(self, node: int, process: "subprocess.Popen[bytes]") -> None:
        if process.stdout is None:
            raise TypeError("expected a pipe to read from")
        with process.stdout as stdout:
            for line in stdout:
                self._lines.put((node, line.decode(errors="replace").rstrip("\r\n")))
        self._lines.put((node, None))

    def _show(self, node: int, line: str) -> None:
        if self._causes:
            self._causes[node].read(line)
        name = self._plan.hosts[node].name
        self._write(line if len(self._plan.hosts) == 1 else f"{name}: {line}")

    def _check_connection(self, node: int, status: int) -> None:
        if status == _SSH_FAILED:
            name = self._plan.hosts[node].name
            raise GpuyardError(
                f"the connection to {name} failed or was lost, so the run was stopped on all machines; check it with: "
                "gpuyard deploy verify"
            )
